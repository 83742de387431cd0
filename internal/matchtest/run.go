// Package matchtest is the contract of match.Store and match.Seats as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) { matchtest.Run(t, newBackend) }
//
// Tests use shards and pools of random names, so that back ends may share servers with other tests. Random tests print
// their seed.
package matchtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

const (
	long  = 20 * time.Minute      // no test sits it out, however busy the machine is
	short = 60 * time.Millisecond // a lease, a hold or a wait that a test sits out
)

// scene is one test's back end, and a shard and a pool of its own.
type scene struct {
	*testing.T
	match.Backend
	shard, pool string
}

// Run tests the back end that open opens, once a test.
func Run(t *testing.T, open func(t *testing.T) match.Backend) {
	for _, test := range []struct {
		name string
		run  func(scene)
	}{
		{"Ticket/readable-at-once", readable},
		{"Ticket/unknown", unknown},
		{"Ticket/cancelled-in-any-state", cancelled},
		{"Ticket/times-out", timesOut},
		{"Ticket/listed", listed},
		{"Open/one-of-a-player", oneOpen},
		{"Open/while-seats-are-held", openWhileHeld},
		{"Open/comes-back-bounded", lapsedThrice},
		{"Open/race", raceForOne},
		{"Open/notes", notes},
		{"Open/race-over-shards", raceOverShards},
		{"Open/parties-over-shards", partiesOverShards},
		{"Open/room-and-sources", room},
		{"Claim/given-again", givenAgain},
		{"Claim/bounds", claimBounds},
		{"Claim/nobody-starves", nobodyStarves},
		{"Claim/busy", busy},
		{"Claim/no-double-booking", noDoubleBooking},
		{"Lease/ended", leaseEnded},
		{"Lease/kept-by-heartbeat", leaseKept},
		{"Lease/no-record-of-the-worker", orphaned},
		{"Match/recorded-in-one-step", recorded},
		{"Match/pending-is-found", pendingFound},
		{"Match/published-once", published},
		{"Match/dissolved", dissolved},
		{"Match/seat-not-taken", requeued},
		{"Notices", notices},
		{"Census", censuses},
		{"Seats/limit", seatLimit},
		{"Seats/same-answer", sameAnswer},
		{"Seats/only-tiles-that-serve", onlyServing},
		{"Seats/stale-offer", staleOffer},
		{"Seats/fullest-first", fullestFirst},
		{"Seats/lapse", seatLapse},
		{"Seats/withdrawn", withdrawn},
		{"Seats/bounds", seatBounds},
		{"Seats/census", seatCensuses},
		{"Context/ended", endedContext},
		{"Workers/one-dies-each-way", workersDie},
		{"Workers/a-hundred-die", hundredDie},
		{"Workers/drain", workersDrain},
		{"Workers/no-seat", workersNoSeat},
		{"Workers/players-do-not-come", workersLapse},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			name := rand.Text()[:12]
			test.run(scene{t, open(t), name + "/0", name})
		})
	}
}

func solo(id string, rating int) match.Ticket {
	return match.Ticket{ID: id, Rating: rating, Players: []match.Player{{ID: "p-" + id}}}
}

func waits(d time.Duration) match.Entry { return match.Entry{MaxWait: d} }

// enqueue adds n tickets t0, t1, … of rising rating, each after the other.
func (s scene) enqueue(n int) {
	s.Helper()
	for i := range n {
		_, err := s.Enqueue(s.Context(), s.shard, solo(fmt.Sprint("t", i), 1000+i), waits(long))
		require.NoError(s, err)
	}
}

func (s scene) claim(e match.Epoch, lease time.Duration, limit int) match.Holding {
	s.Helper()
	h, err := s.Claim(s.Context(), s.shard, match.Claim{Worker: "w", Epoch: e, Lease: lease, Limit: limit})
	require.NoError(s, err)
	return h
}

func (s scene) reclaim() match.Reclaim {
	s.Helper()
	r, err := s.Reclaim(s.Context(), s.shard, 100)
	require.NoError(s, err)
	return r
}

func (s scene) state(ticket string) match.State { return s.status(ticket).State }

func (s scene) status(ticket string) match.Status {
	s.Helper()
	st, err := s.Status(s.Context(), s.shard, ticket)
	require.NoError(s, err)
	return st
}

func (s scene) depth() match.Depth {
	s.Helper()
	d, err := s.Depth(s.Context(), s.shard)
	require.NoError(s, err)
	require.Equal(s, d.Created, d.Waiting+d.Claimed+d.Matched+d.Seated+d.Cancelled+d.TimedOut, "%+v", d)
	return d
}

// pair is a match of two tickets of the scene.
func (s scene) pair(id, a, b string) match.Match {
	return match.Match{ID: id, Shard: s.shard, Tickets: []match.Ticket{solo(a, 1000), solo(b, 1001)}}
}

func (s scene) record(e match.Epoch, matches ...match.Match) []error {
	s.Helper()
	results, err := s.Record(s.Context(), s.shard, e, matches)
	require.NoError(s, err)
	return results
}

func (s scene) publish(id string) error {
	s.Helper()
	results, err := s.Publish(s.Context(), s.shard, []match.Assignment{{Match: id, Tile: 1, Contact: "a:" + id}})
	require.NoError(s, err)
	return results[0]
}

func ids(h match.Holding) []string {
	list := []string{}
	for _, t := range h.Tickets {
		list = append(list, t.ID)
	}
	return list
}

func readable(s scene) {
	ticket := match.Ticket{ID: "a", Rating: -7, Players: []match.Player{{ID: "x", Role: "tank"}, {ID: "y"}},
		Attributes: map[string]string{"map": `"ice" ☃`}}
	st, err := s.Enqueue(s.Context(), s.shard, ticket, waits(long))
	require.NoError(s, err)
	require.Equal(s, match.Waiting, st.State)
	require.Equal(s, ticket, st.Ticket)
	require.Equal(s, long, st.Deadline.Sub(st.Enqueued))
	require.WithinDuration(s, time.Now(), st.Enqueued, time.Minute)
	require.Equal(s, match.NotSeen, st.Why.Reason)

	time.Sleep(20 * time.Millisecond)
	again, err := s.Enqueue(s.Context(), s.shard, ticket, waits(2*long))
	require.NoError(s, err, "the same ticket is the same ticket")
	require.Equal(s, st.Enqueued, again.Enqueued)
	require.Equal(s, st.Deadline, again.Deadline)
	require.Greater(s, again.Waited, 10*time.Millisecond)
	require.EqualValues(s, 1, s.depth().Created)
	require.Equal(s, ticket, s.status("a").Ticket)
	require.Equal(s, s.shard, s.status("a").Shard)

	ticket.Rating++
	_, err = s.Enqueue(s.Context(), s.shard, ticket, waits(long))
	denied(s, err, match.ErrReused, "ticket a")
}

// denied is an error for this reason, and with these values.
func denied(s scene, err, reason error, what string) {
	s.Helper()
	var e *match.DeniedError
	require.ErrorAs(s, err, &e)
	require.Equal(s, match.DeniedError{Err: reason, What: what}, *e)
}

func unknown(s scene) {
	_, err := s.Status(s.Context(), s.shard, "nothing")
	denied(s, err, match.ErrUnknown, "ticket nothing")
	_, err = s.Cancel(s.Context(), s.shard, "nothing")
	denied(s, err, match.ErrUnknown, "ticket nothing")
	require.Zero(s, s.depth())
	require.Zero(s, s.reclaim())
	require.ErrorIs(s, s.publish("nothing"), match.ErrGone)
	require.NoError(s, s.Dissolve(s.Context(), s.shard, "nothing", match.Why{}))
	done, err := s.Requeue(s.Context(), s.shard, "nothing", "nothing")
	require.NoError(s, err)
	require.True(s, done)
	require.Empty(s, s.claim(0, long, 10).Tickets)
}

func cancelled(s scene) {
	s.enqueue(8)
	cancel := func(id string) {
		s.Helper()
		for range 2 {
			st, err := s.Cancel(s.Context(), s.shard, id)
			require.NoError(s, err)
			require.Equal(s, match.Cancelled, st.State)
			require.Empty(s, st.Match)
		}
	}
	cancel("t0") // waiting
	h := s.claim(0, long, 10)
	require.Len(s, h.Tickets, 7)
	cancel("t1") // claimed
	require.ErrorIs(s, s.record(h.Epoch, s.pair("m0", "t1", "t2"))[0], match.ErrGone)
	require.NoError(s, s.record(h.Epoch, s.pair("m1", "t2", "t3"), s.pair("m2", "t4", "t5"))[0])
	cancel("t2") // matched
	require.NoError(s, s.publish("m1"))
	require.NoError(s, s.publish("m2"))
	require.Equal(s, match.Seated, s.state("t3"))
	cancel("t4") // seated
	done, err := s.Requeue(s.Context(), s.shard, "m2", "t4")
	require.NoError(s, err)
	require.True(s, done)
	require.Equal(s, match.Cancelled, s.state("t4"), "a cancelled ticket does not come back with its seat")
	_, err = s.Release(s.Context(), s.shard, h.Epoch, []match.Unmatched{{Ticket: "t1"}, {Ticket: "t6"}, {Ticket: "t7"}})
	require.NoError(s, err)
	require.Equal(s, match.Cancelled, s.state("t1"), "nor with its claim")
	d := s.depth()
	require.Equal(s, match.Depth{Created: 8, Waiting: 2, Seated: 2, Cancelled: 4, Matches: 2, Workers: 1}, d)
}

func timesOut(s scene) {
	_, err := s.Enqueue(s.Context(), s.shard, solo("b", 2), waits(long))
	require.NoError(s, err)
	require.Empty(s, s.reclaim().TimedOut)
	_, err = s.Enqueue(s.Context(), s.shard, solo("a", 1), waits(short))
	require.NoError(s, err)
	_, err = s.Enqueue(s.Context(), s.shard, solo("c", 3), waits(4*short))
	require.NoError(s, err)
	h := s.claim(0, long, 10) // the claim may last longer than the wait
	require.Len(s, h.Tickets, 3)
	time.Sleep(2 * short)
	require.Empty(s, s.reclaim().TimedOut)
	_, err = s.Release(s.Context(), s.shard, h.Epoch,
		[]match.Unmatched{{Ticket: "a", Why: match.Why{Reason: match.OutOfWindow, Window: 50, Nearest: 70}},
			{Ticket: "b"}, {Ticket: "c"}})
	require.NoError(s, err)
	require.Equal(s, []string{"a"}, s.reclaim().TimedOut)
	require.Empty(s, s.reclaim().TimedOut)
	st := s.status("a")
	require.Equal(s, match.TimedOut, st.State)
	require.Equal(s, match.Why{Reason: match.OutOfWindow, Window: 50, Nearest: 70}, st.Why)
	st, err = s.Cancel(s.Context(), s.shard, "a")
	require.NoError(s, err)
	require.Equal(s, match.TimedOut, st.State)
	time.Sleep(3 * short)
	require.Equal(s, []string{"b"}, ids(s.claim(h.Epoch, long, 10)), "what is late is not matched any more")
	require.Equal(s, match.TimedOut, s.state("c"))
	require.EqualValues(s, 2, s.depth().TimedOut)
}

func listed(s scene) {
	s.enqueue(4)
	h := s.claim(0, long, 1)
	list, err := s.List(s.Context(), s.shard, 10)
	require.NoError(s, err)
	require.Len(s, list, 4)
	claimed := 0
	for i, st := range list {
		require.True(s, i == 0 || !st.Enqueued.Before(list[i-1].Enqueued))
		if st.State == match.Claimed {
			claimed++
			require.Equal(s, ids(h)[0], st.Ticket.ID)
		}
	}
	require.Equal(s, 1, claimed)
	list, err = s.List(s.Context(), s.shard, 2)
	require.NoError(s, err)
	require.Len(s, list, 2)
}

func notices(s scene) {
	ctx, cancel := context.WithCancel(s.Context())
	arrivals, ready, changes := make(chan struct{}, 100), make(chan struct{}, 1), make(chan string, 100)
	ended := make(chan error, 2)
	go func() { ended <- s.Arrivals(ctx, s.shard, func() { arrivals <- struct{}{} }) }()
	go func() {
		ended <- s.Changes(ctx, s.shard, func() { ready <- struct{}{} }, func(list []string) {
			for _, id := range list {
				changes <- id
			}
		})
	}()
	<-ready
	waittest.Until(s, func() bool { // the first may come before the subscription
		_, err := s.Enqueue(ctx, s.shard, solo(rand.Text(), 5000), waits(long))
		require.NoError(s, err)
		select {
		case <-arrivals:
			return true
		case <-time.After(20 * time.Millisecond):
			return false
		}
	}, 10*time.Second, time.Millisecond)
	s.enqueue(2)
	h := s.claim(0, long, 100)
	s.record(h.Epoch, s.pair("m", "t0", "t1"))
	require.NoError(s, s.publish("m"))
	_, err := s.Cancel(ctx, s.shard, "t1")
	require.NoError(s, err)
	for _, want := range []string{"t0", "t1", "t0", "t1", "t1"} {
		select {
		case got := <-changes:
			require.Equal(s, want, got)
		case <-time.After(10 * time.Second):
			s.Fatal("no notice of a change")
		}
	}
	cancel()
	require.NoError(s, <-ended)
	require.NoError(s, <-ended)
}

func endedContext(s scene) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	var store *fence.StoreError
	_, err := s.Enqueue(ctx, s.shard, solo("a", 1), waits(long))
	require.ErrorAs(s, err, &store)
	require.ErrorIs(s, err, context.Canceled)
	_, err = s.Claim(ctx, s.shard, match.Claim{Worker: "w", Lease: long, Limit: 1})
	require.ErrorAs(s, err, &store)
	_, err = s.Allocate(ctx, s.pool, nil, long/2)
	require.ErrorAs(s, err, &store)
	require.True(s, errors.Is(err, fence.ErrNotApplied) || errors.Is(err, fence.ErrUnknownOutcome))
}
