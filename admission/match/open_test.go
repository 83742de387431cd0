package match_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
	"github.com/tilefence/tilefence/internal/seed"
)

func partyOf(id string, waited time.Duration, players ...string) match.Candidate {
	t := match.Ticket{ID: id, Rating: 1500}
	for _, p := range players {
		t.Players = append(t.Players, match.Player{ID: p})
	}
	return match.Candidate{Ticket: t, Waited: waited}
}

// TestNoLineupHasAPlayerTwice gives strategies tickets that share players, which a store does not.
func TestNoLineupHasAPlayerTwice(t *testing.T) {
	r := seed.Rand(t)
	for range 300 {
		q := match.Queue{Name: "q", Min: 2, Max: 4, Teams: 2 * r.IntN(2), Patience: time.Nanosecond}
		var tickets []match.Candidate
		for i := range 2 + r.IntN(12) {
			a, b := fmt.Sprint("p", r.IntN(6)), fmt.Sprint("q", r.IntN(6))
			if players := []string{a, b}; r.IntN(2) == 0 {
				tickets = append(tickets, partyOf(fmt.Sprint("t", i), rand.N(time.Minute), players...))
			} else {
				tickets = append(tickets, partyOf(fmt.Sprint("t", i), rand.N(time.Minute), a))
			}
		}
		for _, s := range []match.Strategy{match.Window{}, match.Batch{}} {
			q.Strategy = s
			seen := map[string]bool{}
			matches, unmatched, err := match.Form(q, tickets)
			require.NoError(t, err)
			n := len(unmatched)
			for _, m := range matches {
				n += len(m.Tickets)
				for _, ticket := range m.Tickets {
					for _, p := range ticket.Players {
						require.False(t, seen[p.ID], "%s is in two places of %v", p.ID, matches)
						seen[p.ID] = true
					}
				}
			}
			require.Len(t, tickets, n, "each ticket is matched or not")
			clear(seen)
			for _, group := range s.Form(q, tickets) { // and what it returns by itself
				for _, i := range group {
					for _, p := range tickets[i].Players {
						require.False(t, seen[p.ID], "%s twice", p.ID)
						seen[p.ID] = true
					}
				}
			}
		}
	}
	same := []match.Candidate{partyOf("a", 2, "ann"), partyOf("b", 1, "ann")}
	for _, s := range []match.Strategy{match.Window{}, match.Batch{}} {
		matches, unmatched, err := match.Form(match.Queue{Name: "duel", Max: 2, Strategy: s}, same)
		require.NoError(t, err)
		require.Empty(t, matches)
		require.Len(t, unmatched, 2)
	}
	backfill := partyOf("battle", time.Hour)
	backfill.Backfill = &match.Backfill{Tile: 1, Open: 4}
	matches, _, err := match.Form(match.Queue{Name: "q", Max: 8}, append(same, backfill))
	require.NoError(t, err)
	require.Len(t, matches[0].Tickets, 2, "one of hers, and the battle")
}

// foolish is a strategy that returns what it is told.
type foolish struct{ groups [][]int }

func (f foolish) Window(time.Duration) int { return 50 }

func (f foolish) Form(match.Queue, []match.Candidate) [][]int { return f.groups }

// TestAStrategyIsNotBelieved: groups that are no lineups are refused one by one, and each says why.
func TestAStrategyIsNotBelieved(t *testing.T) {
	tickets := []match.Candidate{partyOf("a", 4, "ann"), partyOf("b", 3, "bob"), partyOf("c", 2, "cid"),
		partyOf("d", 1, "dan")}
	f := foolish{groups: [][]int{{0, 9}, {0, 0}, {2}, {0, 1}, {1, 2}, {0, 1, 2}}}
	matches, unmatched, err := match.Form(match.Queue{Name: "q", Max: 2, Strategy: f}, tickets)
	require.ErrorIs(t, err, match.ErrLineup)
	require.Len(t, matches, 1)
	require.Len(t, unmatched, 2)
	all := err.(interface{ Unwrap() []error }).Unwrap()
	require.ErrorContains(t, all[len(all)-1], "queue q: the group [0 1 2] of tickets [a b c]")
	for _, why := range []string{"9 is none of the 4 tickets", "ticket a is in a match already", "too few players"} {
		require.ErrorContains(t, err, why)
	}

	synctest.Test(t, func(t *testing.T) { // a worker reports it, and goes on
		store := memmatch.New()
		q := match.Queue{Name: "q", Max: 2, Strategy: foolish{groups: [][]int{{0, 0}}}}
		for _, c := range tickets {
			_, err := store.Enqueue(t.Context(), "q/0", c.Ticket, match.Entry{})
			require.NoError(t, err)
		}
		var reports atomic.Int64
		hooks := match.Hooks{Failed: func(i match.FailInfo) {
			if i.Op == "form" && errors.Is(i.Err, match.ErrLineup) {
				reports.Add(1)
			}
		}}
		seats, err := match.NewSeatAllocator(store, "q", 0)
		require.NoError(t, err)
		w, err := match.NewWorker(store, seats, []match.Queue{q}, &match.WorkerConfig{Hooks: hooks})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(t, w.Run(ctx))
		require.NotZero(t, reports.Load())
		d, err := store.Depth(t.Context(), "q/0")
		require.NoError(t, err)
		require.EqualValues(t, 4, d.Waiting)
	})
}

// TestFollowersAreBounded: a ticket has a few followers; a newer one takes the place of the oldest.
func TestFollowersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memmatch.New()
		l, err := match.NewLobby(store, match.Queue{Name: "q", Max: 2})
		require.NoError(t, err)
		for _, id := range []string{"a", "b"} {
			_, err := l.Enqueue(t.Context(), "q", partyOf(id, 0, id).Ticket)
			require.NoError(t, err)
		}
		var following atomic.Int64
		var last atomic.Pointer[error]
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 3000 {
			following.Add(1)
			all.Go(func() {
				defer following.Add(-1)
				err := l.Watch(ctx, "q", "a", func(match.Status) bool { return true })
				last.Store(&err)
			})
			synctest.Wait()
		}
		require.EqualValues(t, 4, following.Load())
		require.ErrorIs(t, *last.Load(), match.ErrCrowded)
		require.ErrorContains(t, *last.Load(), "followers of ticket a: the limit is 4")
		seen := make(chan match.State, 8)
		all.Go(func() {
			_ = l.Watch(ctx, "q", "b", func(s match.Status) bool { seen <- s.State; return true })
		})
		require.Equal(t, match.Waiting, <-seen)
		_, err = l.Cancel(t.Context(), "q", "b")
		require.NoError(t, err)
		require.Equal(t, match.Cancelled, <-seen)
		cancel()
		all.Wait()
		l2, err := match.NewLobby(store, match.Queue{Name: "q", Max: 2})
		require.NoError(t, err)
		require.NoError(t, l2.Watch(t.Context(), "q", "a", func(match.Status) bool { return false }))
	})
}

// stubborn is a store of which some shards hang.
type stubborn struct {
	match.Backend
	hangs func(shard string) bool
}

var errHangs = errors.New("the node hangs")

func (s *stubborn) Reclaim(ctx context.Context, shard string, limit int) (match.Reclaim, error) {
	if s.hangs(shard) {
		time.Sleep(3 * time.Second)
		return match.Reclaim{}, errHangs
	}
	return s.Backend.Reclaim(ctx, shard, limit)
}

func (s *stubborn) Requeue(ctx context.Context, shard, id, ticket string) (bool, error) {
	if s.hangs(shard) {
		time.Sleep(3 * time.Second)
		return false, errHangs
	}
	return s.Backend.Requeue(ctx, shard, id, ticket)
}

// choosy is an allocator that never places some matches.
type choosy struct {
	match.Allocator
	refuse func(match.Match) bool
}

func (c *choosy) Allocate(ctx context.Context, matches []match.Match) []match.Allocation {
	var ask []match.Match
	for _, m := range matches {
		if !c.refuse(m) {
			ask = append(ask, m)
		}
	}
	answers, all := c.Allocator.Allocate(ctx, ask), make([]match.Allocation, 0, len(matches))
	for _, m := range matches {
		if c.refuse(m) {
			all = append(all, match.Allocation{Err: errHangs})
			continue
		}
		all, answers = append(all, answers[0]), answers[1:]
	}
	return all
}

// TestASlowShardHoldsUpNoOther: most shards of a queue hang. A supervisor looks at the others within its period, and
// returns their lapsed tickets.
func TestASlowShardHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := memmatch.New(), match.Queue{Name: "q", Max: 1, Shards: 64}
		seats, err := match.NewSeatAllocator(store, "q", time.Second)
		require.NoError(t, err)
		s := &stubborn{store, func(shard string) bool { return shard != "q/9" && shard != "q/63" }}
		_, err = store.Offer(t.Context(), "q", match.Offer{Tile: 1, Epoch: 1, Contact: "a", Seats: 1000}, time.Hour)
		require.NoError(t, err)
		for i := range 64 { // a ticket in each shard has a seat, and does not take it
			shard, id := fmt.Sprint("q/", i), fmt.Sprint("t", i)
			_, err := store.Enqueue(t.Context(), shard, partyOf(id, 0, id).Ticket, match.Entry{})
			require.NoError(t, err)
			h, err := store.Claim(t.Context(), shard, match.Claim{Worker: "w", Lease: time.Hour, Limit: 1})
			require.NoError(t, err)
			m := match.Match{ID: "m" + id, Shard: shard, Tickets: []match.Ticket{h.Tickets[0].Ticket}}
			_, err = store.Record(t.Context(), shard, h.Epoch, []match.Match{m})
			require.NoError(t, err)
			a := seats.Allocate(t.Context(), []match.Match{m})[0]
			_, err = store.Publish(t.Context(), shard, []match.Assignment{a.Assignment})
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Second)
		looked := map[string]time.Duration{}
		began := time.Now()
		var mu sync.Mutex
		sup, err := match.NewSupervisor(s, seats, []match.Queue{q}, &match.SupervisorConfig{
			Hooks: match.Hooks{Reclaimed: func(i match.ReclaimInfo) {
				mu.Lock()
				defer mu.Unlock()
				looked[i.Shard] = time.Since(began)
			}}})
		require.NoError(t, err)
		sup.Once(t.Context())
		for _, shard := range []string{"q/9", "q/63"} {
			require.Less(t, looked[shard], 12*time.Second, "3 s of the lapses, and what the slow ones may take")
		}
		for i, want := range map[int]match.State{9: match.Waiting, 63: match.Waiting, 5: match.Seated} {
			st, err := store.Status(t.Context(), fmt.Sprint("q/", i), fmt.Sprint("t", i))
			require.NoError(t, err)
			require.Equal(t, want, st.State)
		}
	})
}

// TestAMatchThatCannotBeAllocated holds up neither its worker nor the supervisor, and is dissolved in the end.
func TestAMatchThatCannotBeAllocated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := memmatch.New(), match.Queue{Name: "q", Max: 1, MaxWait: 5 * time.Minute}
		seats, err := match.NewSeatAllocator(store, "q", time.Minute)
		require.NoError(t, err)
		c := &choosy{seats, func(m match.Match) bool { return m.Tickets[0].ID[0] == 'x' }}
		_, err = store.Offer(t.Context(), "q", match.Offer{Tile: 1, Epoch: 1, Contact: "a", Seats: 1000}, time.Hour)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		sup, err := match.NewSupervisor(store, c, []match.Queue{q}, nil)
		require.NoError(t, err)
		w, err := match.NewWorker(store, c, []match.Queue{q}, nil)
		require.NoError(t, err)
		running.Go(func() { _ = sup.Run(ctx) })
		running.Go(func() { _ = w.Run(ctx) })
		for i := range 8 { // more than the worker has places
			id := fmt.Sprint("x", i)
			_, err := store.Enqueue(t.Context(), "q/0", partyOf(id, 0, id).Ticket, match.Entry{MaxWait: q.MaxWait})
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
		}
		_, err = store.Enqueue(t.Context(), "q/0", partyOf("good", 0, "good").Ticket, match.Entry{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		st, err := store.Status(t.Context(), "q/0", "good")
		require.NoError(t, err)
		require.Equal(t, match.Seated, st.State)
		time.Sleep(10 * time.Minute)
		for i := range 8 {
			st, err := store.Status(t.Context(), "q/0", fmt.Sprint("x", i))
			require.NoError(t, err)
			require.Equal(t, match.TimedOut, st.State, st.Ticket.ID)
		}
		cancel()
		running.Wait()
	})
}

// TestABattleThatIsGoneStopsNothing: the request of a battle without seats does not make the worker pause, and ends.
func TestABattleThatIsGoneStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := memmatch.New(), match.Queue{Name: "q", Max: 2}
		seats, err := match.NewSeatAllocator(store, "q", time.Minute)
		require.NoError(t, err)
		_, err = store.Offer(t.Context(), "q", match.Offer{Tile: 1, Epoch: 1, Contact: "a", Seats: 1000}, time.Hour)
		require.NoError(t, err)
		w, err := match.NewWorker(store, seats, []match.Queue{q}, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = w.Run(ctx) })
		gone := match.Ticket{ID: "gone", Rating: 1500, Backfill: &match.Backfill{Tile: 99, Open: 1}}
		_, err = store.Enqueue(t.Context(), "q/0", gone, match.Entry{MaxWait: 20 * time.Second})
		require.NoError(t, err)
		for i := range 3 { // one of them is the battle's again and again
			id := fmt.Sprint("t", i)
			_, err := store.Enqueue(t.Context(), "q/0", partyOf(id, 0, id).Ticket, match.Entry{})
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		st, err := store.Status(t.Context(), "q/0", "gone")
		require.NoError(t, err)
		require.Equal(t, match.TimedOut, st.State)
		d, err := store.Depth(t.Context(), "q/0")
		require.NoError(t, err)
		require.EqualValues(t, 2, d.Seated)
		cancel()
		running.Wait()
	})
}
