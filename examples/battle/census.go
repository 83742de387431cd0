package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/figures"
)

// errLobby is a battle after which the lobby's tickets do not add up.
var errLobby = errors.New("the lobby's tickets do not add up")

// book is what the entrance knows of its tickets, beside the store: the census compares the two.
type book struct {
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

func newBook() book {
	return book{open: map[string]*entry{}, ended: map[string]match.State{}, sitting: map[seat]string{},
		taken: map[string]*match.Assignment{}}
}

// enter notes a ticket that is created by a call, also if the answer was lost.
func (b *book) enter(id string, enqueue func() (match.Status, error)) (match.Status, error) {
	b.door.RLock()
	defer b.door.RUnlock()
	if b.closed {
		return match.Status{}, errors.New("the battle is over")
	}
	b.mu.Lock()
	_, ended := b.ended[id]
	b.mu.Unlock()
	if ended {
		return match.Status{}, &match.ReusedError{Ticket: id}
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
func (b *book) confirm(id string) *entry {
	e := b.open[id]
	if e != nil && !e.confirmed {
		e.confirmed = true
		b.created++
	}
	return e
}

// seated notes the match that gave a ticket its seat; news is false if it is known.
func (b *book) seated(id, match string) (news bool) {
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
func (b *book) end(id string, s match.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.confirm(id) != nil {
		delete(b.open, id)
		b.ended[id] = s
	}
}

// sit notes who has a seat; two tickets on one seat are an error.
func (b *book) sit(ticket string, a *match.Assignment) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range a.Seats[ticket] {
		s := seat{a.Tile, n}
		if other := b.sitting[s]; other != "" && other != ticket {
			return fmt.Errorf("%w: seat %d of tile %s was given to %s, and %s has it", errLobby, n, a.Tile, ticket,
				other)
		}
		b.sitting[s] = ticket
	}
	b.taken[ticket] = a
	return nil
}

// rise notes that a ticket's players leave their seats, and returns which; nil if they have none.
func (b *book) rise(ticket string) *match.Assignment {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.sitting, func(_ seat, t string) bool { return t == ticket })
	return b.taken[ticket]
}

// left notes that they have left.
func (b *book) left(ticket string, s match.State) {
	b.mu.Lock()
	delete(b.taken, ticket)
	b.mu.Unlock()
	b.end(ticket, s)
}

// lobbyReport is what became of all tickets of a battle.
type lobbyReport struct {
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

// sweep reads every open ticket. It returns how many of all tickets are in each state, and which were created and are
// not known to the store.
func (l *lobby) sweep(ctx context.Context) (states map[match.State]uint64, lost []string, err error) {
	l.book.mu.Lock()
	open := map[string]bool{} // confirmed
	for id, e := range l.book.open {
		open[id] = e.confirmed
	}
	l.book.mu.Unlock()
	states = map[match.State]uint64{}
	for _, id := range slices.Sorted(maps.Keys(open)) {
		s, err := l.tickets.Status(ctx, l.queue.Name, id)
		switch {
		case errors.Is(err, match.ErrUnknown) && open[id]:
			lost = append(lost, id)
		case errors.Is(err, match.ErrUnknown):
		case err != nil:
			return nil, nil, err
		default:
			l.book.mu.Lock()
			l.book.confirm(id) // its answer may have been lost
			l.book.mu.Unlock()
			if s.State.Terminal() {
				l.book.end(id, s.State)
			} else {
				states[s.State]++
			}
		}
	}
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	for _, s := range l.book.ended {
		states[s]++
	}
	return states, lost, nil
}

// report closes the lobby and counts its tickets: each by its own state, against what the entrance has created and
// what the store counts.
func (l *lobby) report(ctx context.Context) (*lobbyReport, error) {
	l.book.door.Lock() // no ticket is on its way
	l.book.closed = true
	l.book.door.Unlock()
	l.close(ctx)
	states, lost, err := l.sweep(ctx)
	if err != nil {
		return nil, fmt.Errorf("census of the lobby: %w", err)
	}
	depth, err := l.tickets.Depth(ctx, l.queue.Name)
	if err != nil {
		return nil, fmt.Errorf("census of the lobby: %w", err)
	}
	r := &lobbyReport{Created: l.book.created, Waiting: states[match.Waiting], Seated: states[match.Seated],
		Cancelled: states[match.Cancelled], TimedOut: states[match.TimedOut], Matches: l.placed.Load(),
		Wait: l.waits.Latency(), NoSeat: l.noSeat.Load(), Lapsed: l.lapsed.Load(), Killed: l.killed.Load()}
	if r.Matches > 0 {
		r.Spread = float64(l.spread.Load()) / float64(r.Matches)
	}
	r.Why = r.differs(states, lost, depth)
	return r, nil
}

// differs says how the tickets do not add up; nothing if they do.
func (r *lobbyReport) differs(states map[match.State]uint64, lost []string, d match.Depth) string {
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

// write adds the lines of a report for a person.
func (r *lobbyReport) write(line func(name, format string, args ...any)) {
	line("lobby", "%d tickets = %d seated + %d cancelled + %d waiting + %d timed out", r.Created, r.Seated,
		r.Cancelled, r.Waiting, r.TimedOut)
	if r.Why != "" {
		line("  DOES NOT ADD UP", "%s", r.Why)
	}
	line("  matches", "%d, mean spread %.0f points, wait p50 %.1f s, p99 %.1f s; %d found no seat; %d seats not taken",
		r.Matches, r.Spread, r.Wait.P50/1000, r.Wait.P99/1000, r.NoSeat, r.Lapsed)
}
