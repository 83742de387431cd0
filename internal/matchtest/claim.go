package matchtest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

func givenAgain(s scene) {
	s.enqueue(5)
	h := s.claim(0, long, 3)
	require.Len(s, h.Tickets, 3)
	require.NotZero(s, h.Epoch)
	// The answer was lost: the same claim has the same tickets, and others if there is room.
	require.ElementsMatch(s, ids(h), ids(s.claim(h.Epoch, long, 3)))
	more := s.claim(h.Epoch, long, 4)
	require.Len(s, more.Tickets, 4)
	require.Subset(s, ids(more), ids(h))
	for _, t := range more.Tickets {
		require.Equal(s, match.Claimed, s.state(t.ID))
		require.GreaterOrEqual(s, t.Waited, time.Duration(0))
		require.Equal(s, solo(t.ID, t.Rating), t.Ticket)
	}
	require.Equal(s, match.Depth{Created: 5, Waiting: 1, Claimed: 4, Workers: 1}, s.depth())
	other := s.claim(0, long, 1)
	require.Greater(s, other.Epoch, h.Epoch)
}

func claimBounds(s scene) {
	for _, c := range []match.Claim{{Worker: "", Lease: long, Limit: 1}, {Worker: "a b", Lease: long, Limit: 1},
		{Worker: "w", Lease: 0, Limit: 1}, {Worker: "w", Lease: long},
		{Worker: "w", Lease: long, Limit: match.MaxClaim + 1}} {
		_, err := s.Claim(s.Context(), s.shard, c)
		var bad *fence.ArgumentError
		require.ErrorAs(s, err, &bad, "%+v", c)
	}
	_, err := s.Claim(s.Context(), s.shard, match.Claim{Worker: "w", Epoch: 12345, Lease: long, Limit: 1})
	require.ErrorIs(s, err, match.ErrStale, "an epoch that was never given")
	s.enqueue(2)
	h := s.claim(0, long, 10)
	for _, bad := range [][]match.Match{{{ID: "", Tickets: []match.Ticket{solo("t0", 1)}}}, {{ID: "m"}},
		{s.pair("m", "t0", "t0")}, {s.pair("m", "t0", "t1"), s.pair("n", "t1", "t2")}} {
		_, err := s.Record(s.Context(), s.shard, h.Epoch, bad)
		require.ErrorIs(s, err, fence.ErrInvalidArgument)
	}
	require.EqualValues(s, 2, s.depth().Claimed)
}

// nobodyStarves: 300 tickets are never matched and always given back; new ones come all the time. Each is looked at
// within few claims, whatever its rating.
func nobodyStarves(s scene) {
	s.enqueue(300)
	seen, e := make(map[string]int), match.Epoch(0)
	for round := range 24 {
		for i := range 5 {
			_, err := s.Enqueue(s.Context(), s.shard, solo(fmt.Sprintf("new%d-%d", round, i), 1100+i), waits(long))
			require.NoError(s, err)
		}
		h := s.claim(e, long, 100)
		e = h.Epoch
		require.Len(s, h.Tickets, 100)
		var back []match.Unmatched
		for _, id := range ids(h) {
			seen[id]++
			back = append(back, match.Unmatched{Ticket: id})
		}
		_, err := s.Release(s.Context(), s.shard, e, back)
		require.NoError(s, err)
		time.Sleep(2 * time.Millisecond)
	}
	for i := range 300 {
		require.NotZero(s, seen[fmt.Sprint("t", i)], "t%d was never looked at", i)
	}
}

// busy: a second worker is not given the few that are left while the first compares the others, and is soon after.
func busy(s scene) {
	s.enqueue(3)
	first := s.claim(0, long, 2)
	require.False(s, first.Busy)
	second := s.claim(0, long, 50)
	if second.Busy {
		require.Empty(s, second.Tickets)
	}
	waittest.Until(s, func() bool {
		second = s.claim(second.Epoch, long, 50)
		return len(second.Tickets) == 1
	}, 10*time.Second, 5*time.Millisecond)
}

func noDoubleBooking(s scene) {
	s.enqueue(20)
	var mu sync.Mutex
	claims := make(map[string]int)
	var g errgroup.Group
	for w := range 4 {
		g.Go(func() error {
			var e match.Epoch
			for range 20 {
				h, err := s.Claim(s.Context(), s.shard, match.Claim{Worker: fmt.Sprint("w", w), Epoch: e, Lease: long,
					Limit: 6})
				if err != nil {
					return err
				}
				e = h.Epoch
				if len(h.Tickets) < 2 {
					continue
				}
				var m []match.Match
				for i := 0; i+1 < len(h.Tickets); i += 2 {
					m = append(m, match.Match{ID: fmt.Sprintf("m-%d-%s", w, h.Tickets[i].ID),
						Tickets: []match.Ticket{h.Tickets[i].Ticket, h.Tickets[i+1].Ticket}})
				}
				results, err := s.Record(s.Context(), s.shard, e, m)
				if err != nil {
					return err
				}
				mu.Lock()
				for i := range m {
					if results[i] == nil {
						claims[m[i].Tickets[0].ID]++
						claims[m[i].Tickets[1].ID]++
					}
				}
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(s, g.Wait())
	for id, n := range claims {
		require.Equal(s, 1, n, id)
	}
	require.NotEmpty(s, claims)
	require.EqualValues(s, len(claims), s.depth().Matched)
}

func leaseEnded(s scene) {
	s.enqueue(4)
	h := s.claim(0, long, 10)
	require.Empty(s, s.reclaim().Returned)
	require.Equal(s, h.Epoch, s.claim(h.Epoch, short, 10).Epoch)
	time.Sleep(2 * short)
	r := s.reclaim()
	require.ElementsMatch(s, ids(h), r.Returned)
	require.Zero(s, s.reclaim(), "it returns nothing twice")
	require.Equal(s, match.Reclaimed, s.status("t0").Why.Reason)
	other := s.claim(0, long, 10)
	require.Greater(s, other.Epoch, h.Epoch)
	require.Len(s, other.Tickets, 4)

	// The paused worker goes on.
	_, err := s.Record(s.Context(), s.shard, h.Epoch, []match.Match{s.pair("m", "t0", "t1")})
	denied(s, err, match.ErrStale, fmt.Sprintf("shard %s: epoch %d", s.shard, h.Epoch))
	_, err = s.Release(s.Context(), s.shard, h.Epoch, []match.Unmatched{{Ticket: "t0"}})
	require.ErrorIs(s, err, match.ErrStale)
	require.ErrorIs(s, s.Heartbeat(s.Context(), s.shard, h.Epoch, long), match.ErrStale)
	_, err = s.Claim(s.Context(), s.shard, match.Claim{Worker: "w", Epoch: h.Epoch, Lease: long, Limit: 1})
	require.ErrorIs(s, err, match.ErrStale)
	require.NoError(s, s.record(other.Epoch, s.pair("m", "t0", "t1"))[0])
	// Another worker's live epoch does not complete a claim either.
	third := s.claim(0, long, 1)
	require.ErrorIs(s, s.record(third.Epoch, s.pair("n", "t2", "t3"))[0], match.ErrGone)
}

func leaseKept(s scene) {
	s.enqueue(2)
	const lease = 4 * short
	renewed := time.Now() // or later: the lease lasts until this time and its length at least
	h := s.claim(0, lease, 10)
	for kept := 0; kept < 24; {
		time.Sleep(lease / 8)
		sent := time.Now()
		err := s.Heartbeat(s.Context(), s.shard, h.Epoch, lease)
		r := s.reclaim()
		if time.Since(renewed) >= lease { // the worker was too slow to keep it: it begins anew
			require.NoError(s, s.Leave(s.Context(), s.shard, h.Epoch))
			s.reclaim()
			renewed, kept = time.Now(), 0
			h = s.claim(0, lease, 10)
			continue
		}
		require.NoError(s, err)
		require.Empty(s, r.Returned, "a live worker's claim was taken")
		renewed = sent
		kept++
	}
	require.NoError(s, s.record(h.Epoch, s.pair("m", "t0", "t1"))[0])
}

// orphaned: the worker's record is gone, its claim is not.
func orphaned(s scene) {
	s.enqueue(3)
	h := s.claim(0, long, 2)
	alive := s.claim(0, long, 10)
	require.NoError(s, s.Leave(s.Context(), s.shard, h.Epoch))
	require.ElementsMatch(s, ids(h), s.reclaim().Returned)
	for _, id := range ids(alive) {
		require.Equal(s, match.Claimed, s.state(id))
	}
}

func recorded(s scene) {
	s.enqueue(6)
	h := s.claim(0, long, 10)
	results := s.record(h.Epoch, s.pair("m0", "t0", "t1"), s.pair("m1", "t2", "nobody"), s.pair("m2", "t4", "t5"))
	require.NoError(s, results[0])
	require.NoError(s, results[2])
	denied(s, results[1], match.ErrGone, "match m1: ticket nobody")
	require.Equal(s, match.Claimed, s.state("t2"), "what could not be recorded stays in the claim")
	st := s.status("t0")
	require.Equal(s, match.Matched, st.State)
	require.Equal(s, "m0", st.Match)
	require.NoError(s, s.record(h.Epoch, s.pair("m0", "t0", "t1"))[0], "the answer was lost")
	require.ErrorIs(s, s.record(h.Epoch, s.pair("m9", "t1", "t2"))[0], match.ErrGone)
	require.Equal(s, match.Depth{Created: 6, Claimed: 2, Matched: 4, Matches: 2, Pending: 2, Workers: 1}, s.depth())
}

func pendingFound(s scene) {
	s.enqueue(4)
	alive := s.claim(0, long, 2)
	require.NoError(s, s.record(alive.Epoch, s.pair("alive", ids(alive)[0], ids(alive)[1]))[0])
	require.Empty(s, s.reclaim().Pending)
	dead := s.claim(alive.Epoch, short, 2)
	m := s.pair("m0", ids(dead)[0], ids(dead)[1])
	require.NoError(s, s.record(dead.Epoch, m)[0])
	time.Sleep(2 * short)
	require.Equal(s, []match.Match{m}, s.reclaim().Pending)
	require.Empty(s, s.reclaim().Pending, "a supervisor has it")
	time.Sleep(match.PendingAgain + short)
	require.Equal(s, []match.Match{m}, s.reclaim().Pending, "until it is finished")
	require.NoError(s, s.publish("m0"))
	require.Empty(s, s.reclaim().Pending)
	require.Equal(s, match.Seated, s.state(ids(dead)[0]))
}

func published(s scene) {
	s.enqueue(2)
	h := s.claim(0, long, 10)
	s.record(h.Epoch, s.pair("m", "t0", "t1"))
	require.Nil(s, s.status("t0").Assignment)
	a := match.Assignment{Match: "m", Tile: 0x85283473fffffff, Epoch: 3, Contact: "a:1",
		Info: map[string]string{"relay": "wss://r"}, Seats: map[string][]int{"t0": {0}, "t1": {1}},
		TakeBy: time.UnixMilli(1e12).UTC()}
	for range 2 {
		results, err := s.Publish(s.Context(), s.shard, []match.Assignment{a, {Match: "other"}})
		require.NoError(s, err)
		require.NoError(s, results[0])
		require.ErrorIs(s, results[1], match.ErrGone)
		require.Equal(s, a, *s.status("t1").Assignment)
		a2 := a
		a2.Contact = "another" // the first counts
		_, err = s.Publish(s.Context(), s.shard, []match.Assignment{a2})
		require.NoError(s, err)
	}
	require.NoError(s, s.Dissolve(s.Context(), s.shard, "m", match.Why{}))
	require.Equal(s, match.Seated, s.state("t0"), "what was published is not dissolved")
	require.EqualValues(s, 2, s.depth().Seated)
}

func dissolved(s scene) {
	s.enqueue(2)
	h := s.claim(0, long, 10)
	s.enqueue(4) // t2 and t3 come later
	s.record(h.Epoch, s.pair("m", "t0", "t1"))
	for range 2 {
		require.NoError(s, s.Dissolve(s.Context(), s.shard, "m", match.Why{Reason: match.NoSeat}))
	}
	st := s.status("t0")
	require.Equal(s, match.Waiting, st.State)
	require.Equal(s, match.NoSeat, st.Why.Reason)
	require.Empty(s, st.Match)
	require.ErrorIs(s, s.publish("m"), match.ErrGone)
	require.Equal(s, match.Depth{Created: 4, Waiting: 4, Matches: 1, Workers: 1}, s.depth())
	first := ids(s.claim(h.Epoch, long, 1))
	require.True(s, slices.Contains([]string{"t0", "t1"}, first[0]), "%v is not first in the queue", first)
}

func requeued(s scene) {
	s.enqueue(2)
	h := s.claim(0, long, 10)
	deadline := s.status("t0").Deadline
	s.enqueue(4)
	s.record(h.Epoch, s.pair("m", "t0", "t1"))
	requeue := func(id, ticket string) bool {
		s.Helper()
		done, err := s.Requeue(s.Context(), s.shard, id, ticket)
		require.NoError(s, err)
		return done
	}
	require.False(s, requeue("m", "t0"), "not yet published")
	require.NoError(s, s.publish("m"))
	time.Sleep(short)
	for range 2 {
		require.True(s, requeue("m", "t0"))
		require.True(s, requeue("other", "t1"))
	}
	st := s.status("t0")
	require.Equal(s, match.Waiting, st.State)
	require.Equal(s, match.SeatLapsed, st.Why.Reason)
	require.Greater(s, st.Deadline.Sub(deadline), short/2, "the time it had a seat is not waiting")
	require.Equal(s, match.Seated, s.state("t1"))
	require.Equal(s, []string{"t0"}, ids(s.claim(h.Epoch, long, 1)))
	require.Equal(s, match.Depth{Created: 4, Waiting: 2, Claimed: 1, Seated: 1, Matches: 1, Workers: 1}, s.depth())
	s.record(h.Epoch, match.Match{ID: "m2", Tickets: []match.Ticket{solo("t0", 1000)}})
	require.NoError(s, s.publish("m2"))
	require.True(s, requeue("m", "t0"), "late, and of the match before")
	require.Equal(s, match.Seated, s.state("t0"))
}
