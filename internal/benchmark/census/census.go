// Package census counts the tickets of a lobby: what its players were told, against what the store knows at the end.
package census

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/figures"
)

// ErrLobby: the lobby's tickets do not add up.
var ErrLobby = errors.New("the lobby's tickets do not add up")

// Census stands between a lobby and its entrance, as a matchhttp.Lobby, and notes what passes. It is safe for
// concurrent use.
type Census struct {
	lobby *match.Lobby
	queue string

	Waits          *figures.Histogram // of tickets that have got a seat
	spread, placed atomic.Int64       // sum over the matches that were placed, and their number
	noSeat, lapsed atomic.Int64       // matches dissolved; tickets whose players did not come

	door   sync.RWMutex // held for reading while a ticket is entered
	closed bool

	mu      sync.Mutex
	created uint64                       // tickets whose creation was confirmed to a player
	open    map[string]*entry            // tickets that may still change
	ended   map[string]match.State       // tickets that do not, with their last state
	sitting map[seat]string              // seats that players have taken and not left: the ticket
	taken   map[string]*match.Assignment // the same, by ticket
}

// entry is one ticket.
type entry struct {
	confirmed bool   // the store said that it exists; else its answer was lost
	match     string // the last that gave it a seat
}

// seat is one seat of a tile.
type seat struct {
	tile   fence.TileID
	number int
}

// New returns a census of a queue of a lobby.
func New(lobby *match.Lobby, queue string) *Census {
	return &Census{lobby: lobby, queue: queue, Waits: figures.NewHistogram(), open: map[string]*entry{},
		ended: map[string]match.State{}, sitting: map[seat]string{}, taken: map[string]*match.Assignment{}}
}

// Enqueue implements matchhttp.Lobby.
func (b *Census) Enqueue(ctx context.Context, queue string, t match.Ticket) (match.Status, error) {
	return b.noted(b.enter(t.ID, func() (match.Status, error) { return b.lobby.Enqueue(ctx, queue, t) }))
}

// Status implements matchhttp.Lobby.
func (b *Census) Status(ctx context.Context, queue, ticket string) (match.Status, error) {
	return b.noted(b.lobby.Status(ctx, queue, ticket))
}

// Cancel implements matchhttp.Lobby.
func (b *Census) Cancel(ctx context.Context, queue, ticket string) (match.Status, error) {
	return b.noted(b.lobby.Cancel(ctx, queue, ticket))
}

// Watch implements matchhttp.Lobby.
func (b *Census) Watch(ctx context.Context, queue, ticket string, f func(match.Status) bool) error {
	return b.lobby.Watch(ctx, queue, ticket, func(s match.Status) bool {
		_, _ = b.noted(s, nil)
		return f(s)
	})
}

// noted keeps the figures of a ticket that is shown to its players.
func (b *Census) noted(s match.Status, err error) (match.Status, error) {
	switch {
	case err != nil:
	case s.State == match.Seated && b.seated(s.Ticket.ID, s.Match):
		b.Waits.Record(s.Waited)
	case s.State.Terminal():
		b.end(s.Ticket.ID, s.State)
	}
	return s, err
}

// Finished is a hook of workers and supervisors: a match has got its seats, or found none.
func (b *Census) Finished(i match.FinishInfo) {
	if i.Err != nil {
		b.noSeat.Add(1)
		return
	}
	b.placed.Add(1)
	b.spread.Add(int64(i.Match.Spread))
}

// Reclaimed is a hook of supervisors: one has looked.
func (b *Census) Reclaimed(i match.ReclaimInfo) { b.lapsed.Add(int64(i.Lapsed)) }

// Matches are how many matches got their seats, how many found none, and how many seats were not taken.
func (b *Census) Matches() (placed, noSeat, lapsed int64) {
	return b.placed.Load(), b.noSeat.Load(), b.lapsed.Load()
}

// enter notes a ticket that is created by a call, also if the answer was lost.
func (b *Census) enter(id string, enqueue func() (match.Status, error)) (match.Status, error) {
	b.door.RLock()
	defer b.door.RUnlock()
	if b.closed {
		return match.Status{}, errors.New("the battle is over")
	}
	b.mu.Lock()
	_, ended := b.ended[id]
	b.mu.Unlock()
	if ended {
		return match.Status{}, &match.DeniedError{Err: match.ErrReused, What: "ticket " + id}
	}
	s, err := enqueue()
	if errors.Is(err, fence.ErrInvalidArgument) || errors.Is(err, match.ErrReused) ||
		errors.Is(err, match.ErrOpen) || errors.Is(err, match.ErrCrowded) {
		return s, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[id] == nil {
		b.open[id] = &entry{}
	}
	if err == nil {
		b.confirm(id)
	}
	return s, err
}

// confirm notes that an open ticket exists, and returns it; nil if it is not open. The mutex is held.
func (b *Census) confirm(id string) *entry {
	e := b.open[id]
	if e != nil && !e.confirmed {
		e.confirmed = true
		b.created++
	}
	return e
}

// seated notes the match that gave a ticket its seat; news is false if it is known.
func (b *Census) seated(id, match string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.confirm(id)
	news = e != nil && e.match != match
	if news {
		e.match = match
	}
	return news
}

// end notes that a ticket does not change any more.
func (b *Census) end(id string, s match.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.confirm(id) != nil {
		delete(b.open, id)
		b.ended[id] = s
	}
}

// Sit notes which ticket has a seat; two tickets on one seat are an ErrLobby.
func (b *Census) Sit(ticket string, a *match.Assignment) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range a.Seats[ticket] {
		s := seat{a.Tile, n}
		if other := b.sitting[s]; other != "" && other != ticket {
			return fmt.Errorf("%w: seat %d of tile %s was given to %s, and %s has it", ErrLobby, n, a.Tile, ticket,
				other)
		}
		b.sitting[s] = ticket
	}
	b.taken[ticket] = a
	return nil
}

// Rise notes that a ticket's players leave their seats, and returns which; nil if they have none.
func (b *Census) Rise(ticket string) *match.Assignment {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.sitting, func(_ seat, t string) bool { return t == ticket })
	return b.taken[ticket]
}

// Sits reports whether a ticket's players have their seats.
func (b *Census) Sits(ticket string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken[ticket] != nil
}

// Left notes that they have left.
func (b *Census) Left(ticket string, s match.State) {
	b.mu.Lock()
	delete(b.taken, ticket)
	b.mu.Unlock()
	b.end(ticket, s)
}

// Report is how many tickets of a battle ended in which state.
type Report struct {
	Created   uint64 `json:"tickets_created"`
	Seated    uint64 `json:"seated"`
	Cancelled uint64 `json:"cancelled"`
	Waiting   uint64 `json:"waiting"`
	TimedOut  uint64 `json:"timed_out"`

	Matches int64           `json:"matches"`
	Spread  float64         `json:"mean_spread"` // of the ratings of a match
	Wait    figures.Latency `json:"wait"`        // until a ticket had its seat
	NoSeat  int64           `json:"matches_without_seat"`
	Lapsed  int64           `json:"seats_not_taken"`
	Killed  int64           `json:"workers_killed,omitempty"`

	Why string `json:"does_not_add_up,omitempty"`
}

// Sweep reads every open ticket. It returns how many of all tickets are in each state, and which were created and are
// not known to the store.
func (b *Census) Sweep(ctx context.Context) (states map[match.State]uint64, lost []string, err error) {
	b.mu.Lock()
	open := map[string]bool{} // confirmed
	for id, e := range b.open {
		open[id] = e.confirmed
	}
	b.mu.Unlock()
	states = map[match.State]uint64{}
	for _, id := range slices.Sorted(maps.Keys(open)) {
		s, err := b.lobby.Status(ctx, b.queue, id)
		switch {
		case errors.Is(err, match.ErrUnknown) && open[id]:
			lost = append(lost, id)
		case errors.Is(err, match.ErrUnknown):
		case err != nil:
			return nil, nil, err
		default:
			b.mu.Lock()
			b.confirm(id) // its answer may have been lost
			b.mu.Unlock()
			if s.State.Terminal() {
				b.end(id, s.State)
			} else {
				states[s.State]++
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.ended {
		states[s]++
	}
	return states, lost, nil
}

// Close refuses further tickets. None is on its way when it returns.
func (b *Census) Close() {
	b.door.Lock()
	b.closed = true
	b.door.Unlock()
}

// Report counts the tickets after Close: each by its own state, against what the entrance has created and what the
// store counts.
func (b *Census) Report(ctx context.Context) (*Report, error) {
	states, lost, err := b.Sweep(ctx)
	if err != nil {
		return nil, fmt.Errorf("census of the lobby: %w", err)
	}
	depth, err := b.lobby.Depth(ctx, b.queue)
	if err != nil {
		return nil, fmt.Errorf("census of the lobby: %w", err)
	}
	r := &Report{Created: b.created, Waiting: states[match.Waiting], Seated: states[match.Seated],
		Cancelled: states[match.Cancelled], TimedOut: states[match.TimedOut], Wait: b.Waits.Latency()}
	r.Matches, r.NoSeat, r.Lapsed = b.Matches()
	if r.Matches > 0 {
		r.Spread = float64(b.spread.Load()) / float64(r.Matches)
	}
	r.Why = r.differs(states, lost, depth)
	return r, nil
}

// differs says how the tickets do not add up; nothing if they do.
func (r *Report) differs(states map[match.State]uint64, lost []string, d match.Depth) string {
	switch {
	case len(lost) > 0:
		return fmt.Sprintf("%d tickets were created and are unknown: %v", len(lost), lost)
	case states[match.Claimed]+states[match.Matched] > 0:
		return fmt.Sprintf("%d tickets are still claimed, %d matched", states[match.Claimed], states[match.Matched])
	case r.Created != r.Seated+r.Cancelled+r.Waiting+r.TimedOut:
		return fmt.Sprintf("%d were created, %d seated + %d cancelled + %d wait + %d timed out", r.Created, r.Seated,
			r.Cancelled, r.Waiting, r.TimedOut)
	case d.Created != r.Created || d.Seated != r.Seated || d.Cancelled != r.Cancelled || d.Waiting != r.Waiting ||
		d.TimedOut != r.TimedOut || d.Claimed+d.Matched+d.Pending > 0:
		return fmt.Sprintf("the store counts %+v, and the tickets themselves are %+v", d, *r)
	}
	return ""
}

// Write adds the lines of a report for a person.
func (r *Report) Write(line func(name, format string, args ...any)) {
	line("lobby", "%d tickets = %d seated + %d cancelled + %d waiting + %d timed out", r.Created, r.Seated,
		r.Cancelled, r.Waiting, r.TimedOut)
	if r.Why != "" {
		line("  DOES NOT ADD UP", "%s", r.Why)
	}
	line("  matches", "%d, mean spread %.0f points, wait p50 %.1f s, p99 %.1f s; %d found no seat; %d seats not taken",
		r.Matches, r.Spread, r.Wait.P50/1000, r.Wait.P99/1000, r.NoSeat, r.Lapsed)
}
