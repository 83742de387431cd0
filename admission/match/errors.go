package match

import (
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Classes of errors; the pointer types below carry the facts.
var (
	// ErrStale: the worker's lease ended and its claims were returned. Claim again without an epoch.
	ErrStale = errors.New("the worker's epoch is stale")
	// ErrUnknown: the store has no such ticket or match: never created, or ended longer ago than Kept.
	ErrUnknown = errors.New("unknown")
	// ErrReused: the ticket ID belongs to another ticket. Choose a new random ID for each request.
	ErrReused = errors.New("ticket ID was used for another ticket")
	// ErrOpen: a player has an open ticket in the queue. Follow that one, or cancel it.
	ErrOpen = errors.New("the player has an open ticket")
	// ErrCrowded: the queue, or the share of it that one source of tickets has, is full; or a ticket has too many
	// followers. Ask again later.
	ErrCrowded = errors.New("too many at once")
	// ErrLineup: a Strategy returned a group that cannot be a match of the queue. Its tickets wait.
	ErrLineup = errors.New("not a lineup of this queue")
	// ErrGone: a ticket left the claim, or the match was dissolved, before the call.
	ErrGone = errors.New("gone")
	// ErrNoSeat: no tile that serves has enough free seats. The tickets wait.
	ErrNoSeat = errors.New("no free seat")
	// ErrLapsed: the seat was not taken in time and went back.
	ErrLapsed = errors.New("the seat has gone back")
	// ErrStaleOffer: a higher epoch offers the tile.
	ErrStaleOffer = errors.New("the offer's epoch is stale")
)

// StaleError is a call under an epoch that has ended. Nothing was done.
type StaleError struct {
	Shard string
	Epoch Epoch
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("shard %s: epoch %d: %v: its claims were returned to the queue; claim again without an epoch",
		e.Shard, e.Epoch, ErrStale)
}

// Is matches ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// UnknownError is a ticket or a match that the store does not have.
type UnknownError struct{ What, ID string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%s %s is %v: never created in this queue, or ended more than %v ago", e.What, e.ID, ErrUnknown,
		Kept)
}

// Is matches ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// ReusedError is a ticket whose ID belongs to another one.
type ReusedError struct{ Ticket string }

func (e *ReusedError) Error() string {
	return fmt.Sprintf("ticket %s: %v: choose a new random ID for each request", e.Ticket, ErrReused)
}

// Is matches ErrReused.
func (e *ReusedError) Is(target error) bool { return target == ErrReused }

// OpenError is a ticket of a player who has another one open in the same queue. The ticket was not created.
type OpenError struct {
	Player string
	Ticket string // the open one
	// Until is when the ticket stops counting, if it has a seat that is held, or was cancelled after it was matched; or
	// if it has been announced in a queue of several shards and is not there yet.
	Until time.Time
}

func (e *OpenError) Error() string {
	until := "follow that ticket, or cancel it"
	if !e.Until.IsZero() {
		until = "it counts until " + e.Until.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("player %s: %v, %s: %s", e.Player, ErrOpen, e.Ticket, until)
}

// Is matches ErrOpen.
func (e *OpenError) Is(target error) bool { return target == ErrOpen }

// CrowdedError is a ticket, or a follower of one, for which there is no room.
type CrowdedError struct {
	What  string // "tickets of shard …", "tickets of source …", "followers of ticket …", "followers"
	Have  int
	Limit int // for this source, now: the share of each source shrinks as the queue fills
}

func (e *CrowdedError) Error() string {
	return fmt.Sprintf("%s: %v: %d, the limit is %d now: ask again in a few seconds", e.What, ErrCrowded, e.Have,
		e.Limit)
}

// Is matches ErrCrowded.
func (e *CrowdedError) Is(target error) bool { return target == ErrCrowded }

// LineupError is a group of a Strategy that was refused.
type LineupError struct {
	Queue   string
	Group   []int    // as the Strategy returned it
	Tickets []string // of the group, as far as its indexes are
	Detail  string
}

func (e *LineupError) Error() string {
	return fmt.Sprintf("queue %s: the group %v of tickets %v is %v: %s: mend the queue's Strategy", e.Queue, e.Group,
		e.Tickets, ErrLineup, e.Detail)
}

// Is matches ErrLineup.
func (e *LineupError) Is(target error) bool { return target == ErrLineup }

// GoneError is a match that cannot be recorded or published.
type GoneError struct {
	Match  string
	Ticket string // the ticket that left the claim; empty: the match was dissolved
}

func (e *GoneError) Error() string {
	if e.Ticket == "" {
		return fmt.Sprintf("match %s is %v: it was dissolved, and its tickets wait again", e.Match, ErrGone)
	}
	return fmt.Sprintf("match %s: ticket %s is %v from the claim: cancelled or returned; release the others", e.Match,
		e.Ticket, ErrGone)
}

// Is matches ErrGone.
func (e *GoneError) Is(target error) bool { return target == ErrGone }

// NoSeatError is a match that no tile has room for.
type NoSeatError struct {
	Pool  string
	Match string
	Seats int          // asked for, on one tile
	Tile  fence.TileID // not zero: the only tile that was asked
}

func (e *NoSeatError) Error() string {
	where := "a tile of pool " + e.Pool
	if e.Tile != 0 {
		where = "tile " + e.Tile.String()
	}
	return fmt.Sprintf("match %s: %v: it needs %d on %s that serves; offer more tiles", e.Match, ErrNoSeat, e.Seats,
		where)
}

// Is matches ErrNoSeat.
func (e *NoSeatError) Is(target error) bool { return target == ErrNoSeat }

// LapsedError is a seat that the ticket does not have any more.
type LapsedError struct{ Match, Ticket string }

func (e *LapsedError) Error() string {
	return fmt.Sprintf("match %s, ticket %s: %v: follow the ticket, which waits again", e.Match, e.Ticket, ErrLapsed)
}

// Is matches ErrLapsed.
func (e *LapsedError) Is(target error) bool { return target == ErrLapsed }

// StaleOfferError is an offer by a former owner of a tile.
type StaleOfferError struct {
	Tile           fence.TileID
	Epoch, Current fence.Epoch
}

func (e *StaleOfferError) Error() string {
	return fmt.Sprintf("tile %s: epoch %d: %v: epoch %d offers it; stand down", e.Tile, e.Epoch, ErrStaleOffer,
		e.Current)
}

// Is matches ErrStaleOffer.
func (e *StaleOfferError) Is(target error) bool { return target == ErrStaleOffer }
