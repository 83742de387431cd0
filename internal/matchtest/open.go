package matchtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/admission/match"
)

// party is a ticket of some players.
func party(id string, players ...string) match.Ticket {
	t := match.Ticket{ID: id, Rating: 1000}
	for _, p := range players {
		t.Players = append(t.Players, match.Player{ID: p})
	}
	return t
}

// refusedBy fails unless a player's open ticket refuses another one of him, and returns until when it will.
func (s scene) refusedBy(open, player string, t match.Ticket) time.Time {
	s.Helper()
	_, err := s.Enqueue(s.Context(), s.shard, t, waits(long))
	var e *match.OpenError
	require.ErrorAs(s, err, &e)
	require.Equal(s, match.OpenError{Player: player, Ticket: open, Until: e.Until}, *e)
	return e.Until
}

// let fails unless a ticket is taken.
func (s scene) let(t match.Ticket) {
	s.Helper()
	_, err := s.Enqueue(s.Context(), s.shard, t, waits(long))
	require.NoError(s, err)
}

func (s scene) cancelTicket(id string) {
	s.Helper()
	_, err := s.Cancel(s.Context(), s.shard, id)
	require.NoError(s, err)
}

// publishUntil publishes a match whose seats are held for a while.
func (s scene) publishUntil(id string, hold time.Duration) {
	s.Helper()
	results, err := s.Publish(s.Context(), s.shard,
		[]match.Assignment{{Match: id, Tile: 1, Contact: "a:1", TakeBy: time.Now().Add(hold)}})
	require.NoError(s, err)
	require.NoError(s, results[0])
}

// oneOpen: a player has one open ticket, alone or in a party, whatever becomes of it, until it ends.
func oneOpen(s scene) {
	s.let(party("a", "ann", "bob"))
	s.let(party("a", "ann", "bob")) // the answer was lost
	require.Zero(s, s.refusedBy("a", "ann", party("b", "ann")))
	s.refusedBy("a", "bob", party("b", "cid", "bob"))
	s.let(party("c", "cid")) // of a party that was refused nothing stays
	require.EqualValues(s, 2, s.depth().Created)

	h := s.claim(0, long, 10)
	s.refusedBy("a", "ann", party("b", "ann"))
	_, err := s.Release(s.Context(), s.shard, h.Epoch, []match.Unmatched{{Ticket: "a"}})
	require.NoError(s, err)
	s.refusedBy("a", "ann", party("b", "ann"))
	require.NoError(s, s.Leave(s.Context(), s.shard, s.claim(h.Epoch, long, 10).Epoch)) // its worker crashes
	require.Len(s, s.reclaim().Returned, 2)
	s.refusedBy("a", "ann", party("b", "ann"))
	h = s.claim(0, long, 10)
	require.NoError(s, s.record(h.Epoch, match.Match{ID: "m", Tickets: []match.Ticket{
		party("a", "ann", "bob"), party("c", "cid")}})[0])
	s.refusedBy("a", "ann", party("b", "ann"))
	require.NoError(s, s.Dissolve(s.Context(), s.shard, "m", match.Why{Reason: match.NoSeat}))
	s.refusedBy("a", "ann", party("b", "ann"))

	s.cancelTicket("a") // waiting
	s.let(party("b", "ann"))
	s.let(party("d", "bob"))
	s.let(party("a", "ann", "bob")) // it is known still
	require.Equal(s, match.Cancelled, s.state("a"))
	_, err = s.Enqueue(s.Context(), s.shard, party("e", "eve"), waits(short))
	require.NoError(s, err)
	time.Sleep(2 * short)
	require.Equal(s, []string{"e"}, s.reclaim().TimedOut)
	s.let(party("f", "eve"))
}

// openWhileHeld: a ticket that has a match counts while its seats may be held, also when it is cancelled.
func openWhileHeld(s scene) {
	s.enqueue(6)
	p := func(n int) string { return fmt.Sprint("p-t", n) }
	h := s.claim(0, long, 10)
	s.record(h.Epoch, s.pair("m0", "t0", "t1"), s.pair("m1", "t2", "t3"), s.pair("m2", "t4", "t5"))
	s.cancelTicket("t1") // matched: its worker may be getting seats for it
	require.NotZero(s, s.refusedBy("t1", p(1), party("x", p(1))))
	s.publishUntil("m0", 4*short)
	s.refusedBy("t0", p(0), party("x", p(0)))
	require.WithinDuration(s, time.Now().Add(4*short), s.refusedBy("t1", p(1), party("x", p(1))), 2*time.Second)
	s.cancelTicket("t0") // seated
	s.refusedBy("t0", p(0), party("x", p(0)))
	s.cancelTicket("t2")
	require.NoError(s, s.Dissolve(s.Context(), s.shard, "m1", match.Why{}))
	s.let(party("x2", p(2))) // nothing is held for it
	s.publishUntil("m2", 24*time.Hour)
	require.WithinDuration(s, time.Now().Add(match.MaxHold), s.refusedBy("t4", p(4), party("x", p(4))), time.Minute)
	time.Sleep(5 * short)
	s.let(party("x0", p(0)))
	s.let(party("x1", p(1)))
}

// lapsedThrice: a ticket comes back with the place that it had, a few times; not if a player has another one by now.
func lapsedThrice(s scene) {
	s.enqueue(2)
	h := s.claim(0, long, 10)
	s.let(solo("t9", 1000)) // it came later, or in the same millisecond, in which the order is that of IDs
	lapse := func(id string, tickets ...match.Ticket) {
		s.Helper()
		require.NoError(s, s.record(h.Epoch, match.Match{ID: id, Tickets: tickets})[0])
		s.publishUntil(id, 0)
	}
	back := func(id, ticket string) match.Status {
		s.Helper()
		done, err := s.Requeue(s.Context(), s.shard, id, ticket)
		require.NoError(s, err)
		require.True(s, done)
		return s.status(ticket)
	}
	for i := range match.MaxLapses {
		id := fmt.Sprint("m", i)
		lapse(id, solo("t0", 1000))
		if i == match.MaxLapses-1 {
			break
		}
		require.Equal(s, match.Waiting, back(id, "t0").State)
		require.Equal(s, []string{"t0", "t1"}, slices.Sorted(slices.Values(ids(s.claim(h.Epoch, long, 2)))))
	}
	st := back(fmt.Sprint("m", match.MaxLapses-1), "t0")
	require.Equal(s, match.TimedOut, st.State)
	require.Equal(s, match.SeatLapsed, st.Why.Reason)
	s.let(party("again", "p-t0"))

	lapse("n", solo("t1", 1001))
	time.Sleep(5 * time.Millisecond)
	s.let(party("other", "p-t1"))
	st = back("n", "t1")
	require.Equal(s, match.Cancelled, st.State)
	require.Equal(s, match.Superseded, st.Why.Reason)
	s.refusedBy("other", "p-t1", party("x", "p-t1"))
	s.depth()
}

// raceForOne: of many tickets of a player that come at once, through any process, one is taken.
func raceForOne(s scene) {
	for round := range 10 {
		var taken atomic.Int64
		var g errgroup.Group
		for i := range 16 {
			g.Go(func() error {
				t := party(fmt.Sprintf("r%d-%d", round, i), fmt.Sprint("ann", round), fmt.Sprintf("own%d-%d", round, i))
				_, err := s.Enqueue(s.Context(), s.shard, t, waits(long))
				if err == nil {
					taken.Add(1)
				} else if errors.Is(err, match.ErrOpen) {
					err = nil
				}
				return err
			})
		}
		require.NoError(s, g.Wait())
		require.EqualValues(s, 1, taken.Load())
	}
	require.EqualValues(s, 10, s.depth().Waiting)
}

// notes: the first ticket that is noted stays, for its time, unless the one that comes names it; its age counts from
// when it was noted first.
func notes(s scene) {
	hold := func(ticket, instead string, lasts time.Duration) match.Held {
		s.Helper()
		h, err := s.Backend.Hold(s.Context(), s.pool+"/players-0",
			match.Hold{Player: "ann", Ticket: ticket, Instead: instead, For: lasts})
		require.NoError(s, err)
		return h
	}
	began := time.Now()
	require.Equal(s, "a", hold("a", "", time.Minute).Ticket)
	time.Sleep(60 * time.Millisecond)
	require.Equal(s, "a", hold("a", "", time.Minute).Ticket)
	h := hold("b", "c", time.Minute)
	require.Equal(s, "a", h.Ticket)
	require.GreaterOrEqual(s, h.Age, 50*time.Millisecond)
	require.LessOrEqual(s, h.Age, time.Since(began)+5*time.Millisecond)
	began = time.Now()
	h = hold("b", "a", time.Minute)
	require.Equal(s, "b", h.Ticket)
	require.LessOrEqual(s, h.Age, time.Since(began)+5*time.Millisecond)
	require.Equal(s, "b", hold("a", "", 0).Ticket, "not its own")
	hold("b", "", 0)
	require.Equal(s, "c", hold("c", "", 50*time.Millisecond).Ticket)
	time.Sleep(100 * time.Millisecond)
	require.Equal(s, "d", hold("d", "", time.Minute).Ticket)
}

// split is a lobby of the scene's queue in eight shards.
func (s scene) split() (*match.Lobby, string) {
	s.Helper()
	l, err := match.NewLobby(s.Backend, match.Queue{Name: s.pool, Max: 4, Shards: 8})
	require.NoError(s, err)
	return l, s.pool
}

// raceOverShards: of many tickets of a player that come at once, through any process, one is taken, whatever their
// shards are; and the next one when that has ended.
func raceOverShards(s scene) {
	for round := range 3 {
		var taken atomic.Int64
		var g errgroup.Group
		for range 16 {
			l, queue := s.split()
			id := rand.Text()
			g.Go(func() error {
				_, err := l.Enqueue(s.Context(), queue, party(id, fmt.Sprint("ann", round)))
				if err == nil {
					taken.Add(1)
					_, err = l.Enqueue(s.Context(), queue, party(id, fmt.Sprint("ann", round))) // the answer was lost
				} else if errors.Is(err, match.ErrOpen) {
					err = nil
				}
				return err
			})
		}
		require.NoError(s, g.Wait())
		require.EqualValues(s, 1, taken.Load())
	}
	l, queue := s.split()
	d, err := l.Depth(s.Context(), queue)
	require.NoError(s, err)
	require.EqualValues(s, 3, d.Created)
	for range 8 {
		_, err = l.Enqueue(s.Context(), queue, party(rand.Text(), "ann0"))
		var open *match.OpenError
		require.ErrorAs(s, err, &open)
		_, err = l.Cancel(s.Context(), queue, open.Ticket)
		require.NoError(s, err)
		_, err = l.Enqueue(s.Context(), queue, party(rand.Text(), "ann0"))
		require.NoError(s, err)
	}
}

// partiesOverShards: what is refused for one of a party leaves nothing to the others, and a ticket that has left its
// seat does not come back when its player has another one.
func partiesOverShards(s scene) {
	l, queue := s.split()
	let := func(players ...string) match.Status {
		s.Helper()
		st, err := l.Enqueue(s.Context(), queue, party(rand.Text(), players...))
		require.NoError(s, err)
		return st
	}
	couple := let("ann", "bob")
	for range 8 {
		for _, players := range [][]string{{"bob"}, {"cid", "bob"}, {"ann", "dan"}} {
			_, err := l.Enqueue(s.Context(), queue, party(rand.Text(), players...))
			var open *match.OpenError
			require.ErrorAs(s, err, &open)
			require.Equal(s, couple.Ticket.ID, open.Ticket)
		}
	}
	let("cid", "dan")

	h, err := s.Claim(s.Context(), couple.Shard, match.Claim{Worker: "w", Lease: long, Limit: 10})
	require.NoError(s, err)
	m := match.Match{ID: "m", Tickets: []match.Ticket{couple.Ticket}}
	_, err = s.Record(s.Context(), couple.Shard, h.Epoch, []match.Match{m})
	require.NoError(s, err)
	_, err = s.Publish(s.Context(), couple.Shard, []match.Assignment{{Match: "m", Tile: 1, TakeBy: time.Now()}})
	require.NoError(s, err)
	time.Sleep(5 * time.Millisecond)
	other := let("bob")
	_, err = s.Requeue(s.Context(), couple.Shard, "m", couple.Ticket.ID)
	require.NoError(s, err)
	st, err := l.Status(s.Context(), queue, couple.Ticket.ID)
	require.NoError(s, err)
	require.Equal(s, match.Cancelled, st.State)
	_, err = l.Enqueue(s.Context(), queue, party(rand.Text(), "bob"))
	var open *match.OpenError
	require.ErrorAs(s, err, &open)
	require.Equal(s, other.Ticket.ID, open.Ticket)
}

// room: a queue has a bound, and each source a share of it, which shrinks as the queue fills.
func room(s scene) {
	e := match.Entry{MaxWait: long, Room: 40, PerSource: 4}
	n := 0
	come := func(source string) error {
		n++
		t := solo(fmt.Sprint("t", n), 1000)
		t.Source = source
		_, err := s.Enqueue(s.Context(), s.shard, t, e)
		return err
	}
	crowd := func(source string) (let int) {
		for come(source) == nil {
			let++
		}
		return let
	}
	require.Equal(s, 4, crowd("heavy"))
	denied(s, come("heavy"), match.ErrCrowded, "tickets of source heavy: 4, the limit is 4 now")
	require.Equal(s, 4, crowd("another"))
	for range 20 {
		require.NoError(s, come(""))
	}
	require.Equal(s, 2, crowd("third"), "12 are left, so that it may have 2, then 1 more of 10")
	require.NoError(s, come("light"), "one that has none is refused last")
	for crowd(fmt.Sprint("many", n)) > 0 {
		continue
	}
	denied(s, come(""), match.ErrCrowded, "tickets of shard "+s.shard+": 40, the limit is 40")

	// What is matched, and comes back, counts all the time: nothing new takes its place meanwhile.
	h := s.claim(0, long, 40)
	require.Len(s, h.Tickets, 40)
	require.ErrorIs(s, come(""), match.ErrCrowded)
	s.record(h.Epoch, match.Match{ID: "m", Tickets: []match.Ticket{h.Tickets[0].Ticket, h.Tickets[1].Ticket}})
	require.ErrorIs(s, come(""), match.ErrCrowded)
	s.cancelTicket("t1")
	require.NoError(s, come(""))
}
