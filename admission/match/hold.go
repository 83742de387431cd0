package match

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"time"
)

// The tickets of a player may be in any shard, and a step of the store is in one. So in a queue of several shards a
// player's ticket is noted before it is made, in a place of the player's own, and another ticket takes the note over
// only when the one that is noted is not open any more.

const (
	// holds is how many places the notes of a queue are in. It does not follow Queue.Shards, which may rise.
	holds = 64
	// holdGrace is how long a noted ticket that is in no shard may be on its way to one.
	holdGrace = 10 * time.Second
)

// hold is the place of a player's note.
func (q Queue) hold(player string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(player))
	return q.Name + "/players-" + strconv.Itoa(int(h.Sum32()%holds))
}

// holdFor is the longest that a ticket is open: it waits, and leaves seats empty.
func (q Queue) holdFor() time.Duration { return q.MaxWait + MaxLapses*MaxHold }

// enqueue is Lobby.Enqueue of a ticket that no shard has, in a queue of several.
func (l *Lobby) enqueue(ctx context.Context, q Queue, shard string, t Ticket) (Status, error) {
	began := time.Now()
	if err := l.note(ctx, q, t); err != nil {
		return Status{}, err
	}
	s, err := l.store.Enqueue(ctx, shard, t, q.entry())
	switch {
	case errors.Is(err, ErrOpen), errors.Is(err, ErrCrowded), errors.Is(err, ErrReused):
		l.unnote(ctx, q, t, t.Players)
		return Status{}, err
	case err != nil || time.Since(began) < holdGrace/2:
		return s, err
	}
	// This process was slow: another ticket may have been noted meanwhile.
	if err := l.note(ctx, q, t); err != nil {
		if _, failed := l.store.Cancel(ctx, shard, t.ID); failed != nil {
			return Status{}, failed
		}
		return Status{}, err
	}
	return s, nil
}

// note notes a ticket as that of all its players. Errors: an *OpenError, and then it is noted for none.
func (l *Lobby) note(ctx context.Context, q Queue, t Ticket) error {
	for i, p := range t.Players {
		h := Hold{Player: p.ID, Ticket: t.ID, For: q.holdFor()}
		for {
			held, err := l.store.Hold(ctx, q.hold(p.ID), h)
			if err != nil {
				return err
			}
			if held.Ticket == t.ID {
				break
			}
			open, until, err := l.open(ctx, q, p.ID, held)
			if err != nil {
				return err
			}
			if open {
				l.unnote(ctx, q, t, t.Players[:i])
				return &OpenError{Player: p.ID, Ticket: held.Ticket, Until: until}
			}
			h.Instead = held.Ticket
		}
	}
	return nil
}

// unnote removes what note has noted. What it cannot remove is taken over holdGrace later.
func (l *Lobby) unnote(ctx context.Context, q Queue, t Ticket, players []Player) {
	for _, p := range players {
		_, _ = l.store.Hold(ctx, q.hold(p.ID), Hold{Player: p.ID, Ticket: t.ID})
	}
}

// open reports whether a noted ticket is open. One that is not does not come back either.
func (l *Lobby) open(ctx context.Context, q Queue, player string, held Held) (bool, time.Time, error) {
	for _, shard := range q.homes(held.Ticket) {
		s, err := l.store.Status(ctx, shard, held.Ticket)
		if errors.Is(err, ErrUnknown) {
			continue
		}
		if err != nil {
			return false, time.Time{}, err
		}
		// In this order: a ticket that is there was open from then on.
		ticket, until, err := l.store.Open(ctx, shard, player)
		switch {
		case err == nil && ticket == held.Ticket:
			return true, until, nil
		case err == nil && !s.State.Terminal(): // its seat has lapsed, and a supervisor would let it wait again
			_, err = l.store.Cancel(ctx, shard, held.Ticket)
		}
		return false, time.Time{}, err
	}
	left := holdGrace - held.Age
	return left > 0, time.Now().Add(left), nil
}
