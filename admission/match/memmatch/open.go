package memmatch

import (
	"context"
	"maps"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/internal/denied"
)

// claimed is a player's open ticket.
type claimed struct {
	ticket string
	until  time.Time // zero: until the ticket ends
}

func (c claimed) ended(now time.Time) bool { return !c.until.IsZero() && !c.until.After(now) }

// noted is the ticket that is noted as a player's.
type noted struct {
	ticket       string
	since, until time.Time
}

// Hold implements match.Store.
func (s *store) Hold(ctx context.Context, name string, h match.Hold) (match.Held, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return match.Held{}, err
	}
	defer unlock()
	now := time.Now()
	had, found := sh.holds[h.Player]
	if !found || !had.until.After(now) || had.ticket == h.Instead {
		had = noted{ticket: h.Ticket, since: now}
	}
	if had.ticket == h.Ticket {
		had.until = now.Add(h.For)
		sh.holds[h.Player] = had
	}
	return match.Held{Ticket: had.ticket, Age: now.Sub(had.since)}, nil
}

// Open implements match.Store.
func (s *store) Open(ctx context.Context, name, player string) (ticket string, until time.Time, err error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return "", time.Time{}, err
	}
	defer unlock()
	c, open := sh.players[player]
	if !open || c.ended(time.Now()) {
		return "", time.Time{}, nil
	}
	return c.ticket, c.until, nil
}

// other returns a player of a ticket who has another one open, and that one.
func (sh *shard) other(t *match.Ticket, now time.Time) (player string, c claimed, found bool) {
	for _, p := range t.Players {
		if c, open := sh.players[p.ID]; open && c.ticket != t.ID && !c.ended(now) {
			return p.ID, c, true
		}
	}
	return "", claimed{}, false
}

// keep makes a ticket the open one of its players, and of its source, until an instant; zero: until it ends.
func (sh *shard) keep(t *ticket, until time.Time) {
	for _, p := range t.Players {
		if c, open := sh.players[p.ID]; !open || c.ticket == t.ID || c.ended(time.Now()) {
			sh.players[p.ID] = claimed{t.ID, until}
		}
	}
	if t.source != "" {
		if sh.sources[t.source] == nil {
			sh.sources[t.source] = make(map[string]time.Time)
		}
		sh.sources[t.source][t.ID] = until
	}
}

// free ends what keep began.
func (sh *shard) free(t *ticket) {
	for _, p := range t.Players {
		if sh.players[p.ID].ticket == t.ID {
			delete(sh.players, p.ID)
		}
	}
	sh.leave(t.source, t.ID)
}

func (sh *shard) leave(source, ticket string) {
	delete(sh.sources[source], ticket)
	if len(sh.sources[source]) == 0 {
		delete(sh.sources, source)
	}
}

// forget ends what was kept until before now.
func (sh *shard) forget(now time.Time) {
	for p, c := range sh.players {
		if c.ended(now) {
			delete(sh.players, p)
		}
	}
	maps.DeleteFunc(sh.holds, func(_ string, n noted) bool { return !n.until.After(now) })
	for source := range sh.sources {
		sh.open(source, now)
	}
}

// open counts a source's open tickets.
func (sh *shard) open(source string, now time.Time) int {
	for id, until := range sh.sources[source] {
		if !until.IsZero() && !until.After(now) {
			sh.leave(source, id)
		}
	}
	return len(sh.sources[source])
}

// room is nil if there is room for one more ticket of a source.
func (sh *shard) room(name, source string, e match.Entry, now time.Time) error {
	open := int(sh.counts[match.Waiting] + sh.counts[match.Claimed] + sh.counts[match.Matched])
	if open >= e.Room {
		return denied.Crowded(name, "", open, e.Room)
	}
	if source == "" {
		return nil
	}
	if own, most := sh.open(source, now), share(e, open); own >= most {
		return denied.Crowded(name, source, own, most)
	}
	return nil
}

// heldUntil is until when a match's seats are held, and so its tickets open.
func heldUntil(a *match.Assignment, now time.Time) time.Time {
	if most := now.Add(match.MaxHold); a.TakeBy.After(most) {
		return most
	}
	if a.TakeBy.Before(now) {
		return now
	}
	return a.TakeBy
}

// back gives a ticket that had a match its place in the queue again.
func (sh *shard) back(t *ticket, why match.Why) {
	if _, _, taken := sh.other(&t.Ticket, time.Now()); taken {
		sh.move(t, match.Cancelled)
		t.why, t.match = match.Why{Reason: match.Superseded}, ""
		sh.free(t)
		return
	}
	sh.move(t, match.Waiting)
	t.fresh, t.turn, t.why, t.match, t.ended = true, t.enqueued, why, "", time.Time{}
	sh.keep(t, time.Time{})
	sh.arrivals++
}

// expire ends up to limit tickets that wait past their deadline.
func (sh *shard) expire(now time.Time, limit int) (late []string) {
	for id, t := range sh.tickets {
		if t.state == match.Waiting && t.deadline.Before(now) && len(late) < limit {
			sh.timeOut(t, now)
			late = append(late, id)
		}
	}
	return late
}

func (sh *shard) timeOut(t *ticket, now time.Time) {
	sh.move(t, match.TimedOut)
	t.ended = now
	sh.free(t)
}

// share is how many open tickets a source may have now: PerSource, and an eighth of the room that is left, so that
// heavy sources are refused first while the queue fills, and a source without tickets last.
func share(e match.Entry, open int) int { return min(e.PerSource, (max(e.Room-open, 0)+7)/8) }
