package match

import (
	"cmp"
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Kept is how long tickets that ended, and matches, can still be read.
const Kept = time.Hour

// Allocator gives matches a place to play. The one given is SeatAllocator; a game with a fleet of its own implements
// it. Workers and supervisors may ask for the same match at the same time and again at any later time.
type Allocator interface {
	// Allocate finds places for matches; the result has one for each, in their order. It is keyed by Match.ID: the
	// same match always gets the same answer once it was placed, so that a lost answer is asked for again. An
	// Allocation whose error matches ErrNoSeat says that there is no room; any other error, that it is not known,
	// and Allocate is called again.
	Allocate(ctx context.Context, matches []Match) []Allocation
	// Release gives back what a match has, if it was dissolved after it was allocated.
	Release(ctx context.Context, m Match) error
	// Lapsed returns up to limit seats that were not taken in time and are free again. It returns them until Settled
	// is called with them, when their tickets are in the queue again. An allocator without holds returns nil.
	Lapsed(ctx context.Context, limit int) ([]Lapse, error)
	Settled(ctx context.Context, settled []Lapse) error
}

// Allocation is the answer for one match.
type Allocation struct {
	Assignment Assignment
	Err        error
}

// Assignment is where a match plays.
type Assignment struct {
	Match   string            `json:"match"`
	Tile    fence.TileID      `json:"tile"`
	Epoch   fence.Epoch       `json:"epoch"`          // of the tile's owner when it was allocated
	Contact string            `json:"contact"`        // of that owner
	Info    map[string]string `json:"info,omitempty"` // what the tile's offer says: addresses of gateway and relay
	Seats   map[string][]int  `json:"seats"`          // seat numbers by ticket ID, from 0, one for each player
	TakeBy  time.Time         `json:"take_by"`        // until when the seats are held, by the store's clock
}

// Lapse is one ticket's seats that were not taken.
type Lapse struct{ Shard, Match, Ticket string }

// Offer is a tile's announcement that it serves and has seats. Its owner repeats it, as a heartbeat.
type Offer struct {
	Tile    fence.TileID
	Epoch   fence.Epoch       // under which the owner has the tile; a lower one than the last is refused
	Contact string            // 1 to 255 bytes
	Info    map[string]string // for players, in each Assignment
	Seats   int               // in all, 1 to MaxSeats; if it is lowered, taken seats stay
}

// MaxSeats is the most seats of a tile.
const MaxSeats = 1 << 16

// Load is an offer and what of it is used.
type Load struct {
	Offer
	Used    int  // seats that are held or taken
	Serving bool // the offer has not expired
}

// Order asks for the seats of one match on one tile.
type Order struct {
	Match   string
	Shard   string       // of the match, for Lapse
	Tile    fence.TileID // not zero: only this tile
	Tickets []Party
}

// Party is how many seats one ticket needs; they are taken together.
type Party struct {
	Ticket string
	Seats  int
}

// Backend keeps tickets and seats: memmatch and redismatch.
type Backend interface {
	Store
	Seats
}

// Seats is the back-end interface for seats: all tiles of a pool, and the parties that have their seats. Each method
// is one atomic step, by the store's own clock, and may be repeated after an unknown outcome. Errors: a
// *fence.StoreError or a *fence.ArgumentError, and those that methods name.
type Seats interface {
	// Offer says that a tile serves, for ttl. Errors: ErrStaleOffer.
	Offer(ctx context.Context, pool string, o Offer, ttl time.Duration) (Load, error)
	// Withdraw ends a tile's offer and frees all of its seats: the battle is over. Seats that are held
	// lapse at once. Errors: ErrStaleOffer.
	Withdraw(ctx context.Context, pool string, tile fence.TileID, e fence.Epoch) error
	// Allocate holds seats for matches, each on one tile that serves: the fullest that has room. The result has one
	// answer for each. A match that was placed gets the first answer again for at least a day, also when its seats
	// have gone back. Allocation.Err: ErrNoSeat.
	Allocate(ctx context.Context, pool string, orders []Order, hold time.Duration) ([]Allocation, error)
	// Take says that a ticket's players have come: its seats do not lapse any more. Errors: ErrLapsed.
	Take(ctx context.Context, pool, match, ticket string) error
	// Free gives seats back, held or taken: the players have left. It is ignored if the ticket has none.
	Free(ctx context.Context, pool, match, ticket string) error
	// Lapsed frees seats that were not taken in time, and returns up to limit that are not settled.
	Lapsed(ctx context.Context, pool string, limit int) ([]Lapse, error)
	// Settled ends lapses: their tickets are back in the queue.
	Settled(ctx context.Context, pool string, settled []Lapse) error
	// Tiles lists the tiles of a pool.
	Tiles(ctx context.Context, pool string) ([]Load, error)
}

// MaxHold is how long seats wait for their players at most: a lapse must be settled while its ticket is Kept.
const MaxHold = Kept / 2

// SeatAllocator is the Allocator over Seats. Its methods may be called from any goroutine.
type SeatAllocator struct {
	seats Seats
	pool  string
	hold  time.Duration
}

var _ Allocator = (*SeatAllocator)(nil)

// NewSeatAllocator returns an allocator of the seats of one pool. hold is how long seats wait for their players; zero
// means 30 s. Errors: a *fence.ArgumentError.
func NewSeatAllocator(seats Seats, pool string, hold time.Duration) (*SeatAllocator, error) {
	hold = cmp.Or(hold, 30*time.Second)
	switch {
	case seats == nil:
		return nil, &fence.ArgumentError{Field: "seats", Value: nil, Want: "a back end, such as memmatch.New()"}
	case !nameForm.MatchString(pool):
		return nil, &fence.ArgumentError{Field: "pool", Value: pool, Want: nameWant}
	case hold < time.Millisecond || hold > MaxHold:
		return nil, &fence.ArgumentError{Field: "hold", Value: hold, Want: "1ms to 30m, or zero for 30s"}
	}
	return &SeatAllocator{seats, pool, hold}, nil
}

// Allocate implements Allocator.
func (a *SeatAllocator) Allocate(ctx context.Context, matches []Match) []Allocation {
	orders := make([]Order, len(matches))
	for i, m := range matches {
		orders[i] = Order{Match: m.ID, Shard: m.Shard, Tile: m.Tile}
		for _, t := range m.Tickets {
			if len(t.Players) > 0 {
				orders[i].Tickets = append(orders[i].Tickets, Party{t.ID, len(t.Players)})
			}
		}
	}
	answers, err := a.seats.Allocate(ctx, a.pool, orders, a.hold)
	if err != nil {
		answers = make([]Allocation, len(matches))
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers
}

// Take takes the seats of a ticket: its players have come, and the seats do not lapse any more. It may be repeated,
// also by each of the players. Errors: ErrLapsed if the ticket has no seats; as Seats.
func (a *SeatAllocator) Take(ctx context.Context, s Status) error {
	if s.Assignment == nil {
		return s.seatless()
	}
	return a.seats.Take(ctx, a.pool, s.Assignment.Match, s.Ticket.ID)
}

// Leave gives the seats of a ticket back: its players have left. It may be repeated. Errors: ErrLapsed if the ticket is
// not seated; as Seats.
func (a *SeatAllocator) Leave(ctx context.Context, s Status) error {
	if s.Assignment == nil {
		return s.seatless()
	}
	return a.seats.Free(ctx, a.pool, s.Assignment.Match, s.Ticket.ID)
}

func (s Status) seatless() error {
	return &DeniedError{ErrLapsed, "ticket " + s.Ticket.ID + ", which is " + s.State.String()}
}

// Release implements Allocator. It does nothing: the hold ends by itself, and to free seats now could put out players
// that have taken them.
func (a *SeatAllocator) Release(context.Context, Match) error { return nil }

// Lapsed implements Allocator.
func (a *SeatAllocator) Lapsed(ctx context.Context, limit int) ([]Lapse, error) {
	return a.seats.Lapsed(ctx, a.pool, limit)
}

// Settled implements Allocator.
func (a *SeatAllocator) Settled(ctx context.Context, settled []Lapse) error {
	return a.seats.Settled(ctx, a.pool, settled)
}
