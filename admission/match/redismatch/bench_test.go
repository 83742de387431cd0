package redismatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// arena is a queue one against one on the shared cluster, with its seats and its workers. A shard is in one slot, so
// all of it is on one Redis node; the pool of seats may be on another.
type arena struct {
	testing.TB
	store *redismatch.Store
	queue match.Queue
	lobby *match.Lobby
	alloc match.Allocator
	mu    sync.Mutex
	made  []match.FinishInfo
	done  chan struct{} // closed when goal matches are made
	goal  int
}

func newArena(b testing.TB, strategy match.Strategy, seats int) *arena {
	b.Helper()
	a := &arena{TB: b, store: newStore(b, newClient(b, stacktest.Redis(b)), nil), done: make(chan struct{}),
		queue: match.Queue{Name: stacktest.UniqueName(b), Max: 2, Strategy: strategy}}
	lobby, err := match.NewLobby(a.store, a.queue)
	require.NoError(b, err)
	a.lobby = lobby
	alloc, err := match.NewSeatAllocator(a.store, a.queue.Name, 10*time.Minute)
	require.NoError(b, err)
	a.alloc = alloc
	for tile := range 1 + seats/1000 {
		_, err := a.store.Offer(b.Context(), a.queue.Name, match.Offer{Tile: fence.TileID(tile + 1), Epoch: 1,
			Contact: "a:1", Seats: 1000}, time.Hour)
		require.NoError(b, err)
	}
	return a
}

// enqueue adds tickets with ratings around 1500, from many connections.
func (a *arena) enqueue(n int) []match.Ticket {
	a.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	tickets := make([]match.Ticket, n)
	for i := range tickets {
		id := fmt.Sprint("t", i)
		tickets[i] = match.Ticket{ID: id, Rating: int(1500 + 300*random.NormFloat64()),
			Players: []match.Player{{ID: "p" + id}}}
	}
	var g errgroup.Group
	g.SetLimit(64)
	for _, t := range tickets {
		g.Go(func() error {
			_, err := a.lobby.Enqueue(a.Context(), a.queue.Name, t)
			return err
		})
	}
	require.NoError(a, g.Wait())
	return tickets
}

func (a *arena) finished(i match.FinishInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.Err != nil {
		return
	}
	if a.made = append(a.made, i); len(a.made) == a.goal {
		close(a.done)
	}
}

// work runs workers and a supervisor until the returned function is called.
func (a *arena) work(n int, cfg match.WorkerConfig) (stop func()) {
	a.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	cfg.Hooks.Finished = a.finished
	for range n {
		w, err := match.NewWorker(a.store, a.alloc, []match.Queue{a.queue}, &cfg)
		require.NoError(a, err)
		g.Go(func() error { return w.Run(ctx) })
	}
	s, err := match.NewSupervisor(a.store, a.alloc, []match.Queue{a.queue}, nil)
	require.NoError(a, err)
	g.Go(func() error { return s.Run(ctx) })
	return func() {
		cancel()
		require.NoError(a, g.Wait())
	}
}

// quantiles reports some of a sorted sample as metrics.
func quantiles[N int | time.Duration](b *testing.B, sample []N, unit string, scale float64, of ...float64) {
	slices.Sort(sample)
	for _, q := range of {
		b.ReportMetric(float64(sample[min(int(q*float64(len(sample))), len(sample)-1)])/scale,
			fmt.Sprintf("%s-p%g", unit, 100*q))
	}
}

func mean(sample []int) (sum float64) {
	for _, n := range sample {
		sum += float64(n) / float64(len(sample))
	}
	return sum
}

// BenchmarkDrain matches, seats and publishes 10,000 tickets that wait, one against one, with 3 workers; waits count
// from the moment the workers start. "sort-and-pair" does nothing but sort the same tickets in memory and pair
// neighbours, which is the best spread there is if everybody must be matched.
func BenchmarkDrain(b *testing.B) {
	const n = 10_000
	for _, s := range []struct {
		name     string
		strategy match.Strategy
	}{{"Window", match.Window{}}, {"Batch", match.Batch{}}} {
		b.Run(s.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				a := newArena(b, s.strategy, n)
				a.enqueue(n)
				a.goal = n/2 - 10 // outliers wait for their window to grow, or for others
				began := time.Now()
				b.StartTimer()
				stop := a.work(3, match.WorkerConfig{})
				<-a.done
				b.StopTimer()
				took := time.Since(began)
				deadline := time.Now().Add(90 * time.Second)
				var d match.Depth
				for d.Seated < n-2 && time.Now().Before(deadline) {
					time.Sleep(100 * time.Millisecond)
					d, _ = a.lobby.Depth(b.Context(), a.queue.Name)
				}
				stop()
				d, err := a.lobby.Depth(b.Context(), a.queue.Name)
				require.NoError(b, err)
				require.Zero(b, d.Claimed+d.Matched+d.Pending, "processing depth after the drain")
				var spreads []int
				for _, i := range a.made {
					spreads = append(spreads, i.Match.Spread)
				}
				b.ReportMetric(took.Seconds(), "s/10k")
				b.ReportMetric(float64(n)/took.Seconds(), "tickets/s")
				b.ReportMetric(mean(spreads), "spread-mean")
				quantiles(b, spreads, "spread", 1, .5, .95, 1)
				b.ReportMetric(float64(d.Waiting), "left")
				a.waits(b, began)
				b.StartTimer()
			}
		})
	}
	b.Run("sort-and-pair", func(b *testing.B) {
		random := rand.New(rand.NewPCG(1, 2))
		ratings := make([]int, n)
		for i := range ratings {
			ratings[i] = int(1500 + 300*random.NormFloat64())
		}
		var spreads []int
		for b.Loop() {
			sorted := slices.Sorted(slices.Values(ratings))
			spreads = spreads[:0]
			for i := 0; i < n; i += 2 {
				spreads = append(spreads, sorted[i+1]-sorted[i])
			}
		}
		b.ReportMetric(mean(spreads), "spread-mean")
		quantiles(b, spreads, "spread", 1, .5, .95, 1)
	})
}

// waits reports how long after the start of the workers the tickets were matched.
func (a *arena) waits(b *testing.B, began time.Time) {
	var waits []time.Duration
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(64)
	for _, i := range a.made {
		g.Go(func() error {
			st, err := a.lobby.Status(b.Context(), a.queue.Name, i.Match.Tickets[0].ID)
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, st.Enqueued.Add(st.Waited).Sub(began))
			return err
		})
	}
	require.NoError(b, g.Wait())
	quantiles(b, waits, "wait-ms", 1e6, .5, .95, .99)
}

// BenchmarkArrival lets so many players ask for a match about once a second each. "made" is the time from the moment in
// which Enqueue returned for the second player of a match, so that the match became possible, to the notice that it is
// published; "whole" counts from each player's own Enqueue, and so contains the wait for somebody else to come.
func BenchmarkArrival(b *testing.B) {
	for _, players := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(players, " players"), func(b *testing.B) {
			a := newArena(b, match.Window{Initial: match.MaxRating, Most: match.MaxRating}, 12*players)
			stop := a.work(3, match.WorkerConfig{})
			defer stop()
			r := &rounds{arena: a, b: b, enqueued: map[string]time.Time{}, seated: map[string]time.Time{}}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			ready := make(chan struct{})
			go func() {
				_ = a.store.Changes(ctx, a.queue.Name+"/0", func() { close(ready) }, r.notice)
			}()
			<-ready
			for b.Loop() {
				var g errgroup.Group
				for p := range players {
					g.Go(func() error { return r.player(ctx, p, 8*time.Second) })
				}
				require.NoError(b, g.Wait())
				r.report()
			}
		})
	}
}

type rounds struct {
	*arena
	b        *testing.B
	enqueued map[string]time.Time
	seated   map[string]time.Time
}

func (r *rounds) notice(tickets []string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range tickets {
		r.seated[t] = now // matched first, then seated: the later counts
	}
}

// player asks for a match, thinks, and asks again.
func (r *rounds) player(ctx context.Context, p int, long time.Duration) error {
	end := time.Now().Add(long)
	for i := 0; ; i++ {
		time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Second))))
		if time.Now().After(end) {
			return nil
		}
		id := fmt.Sprintf("t%d-%d", p, i)
		ticket := match.Ticket{ID: id, Rating: p, Players: []match.Player{{ID: id}}}
		if _, err := r.lobby.Enqueue(ctx, r.queue.Name, ticket); err != nil {
			return err
		}
		now := time.Now()
		r.mu.Lock()
		r.enqueued[id] = now
		r.mu.Unlock()
	}
}

func (r *rounds) report() {
	time.Sleep(200 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	var made, whole []time.Duration
	for _, m := range r.made {
		x, y := m.Match.Tickets[0].ID, m.Match.Tickets[1].ID
		first, last := r.enqueued[x], r.enqueued[y]
		if first.After(last) {
			first, last = last, first
		}
		published := r.seated[x]
		if other := r.seated[y]; other.After(published) {
			published = other
		}
		made = append(made, max(0, published.Sub(last)))
		whole = append(whole, published.Sub(first), max(0, published.Sub(last)))
	}
	r.b.ReportMetric(float64(len(made)), "matches")
	quantiles(r.b, made, "made-ms", 1e6, .5, .95, .99)
	quantiles(r.b, whole, "whole-ms", 1e6, .5, .95, .99)
}

// BenchmarkAllocate gives matches of two their seats: from 16 callers, one match or 32 in a call.
func BenchmarkAllocate(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprint(batch, " a call"), func(b *testing.B) {
			a := newArena(b, nil, 600_000)
			var n int
			var mu sync.Mutex
			next := func() (orders []match.Order) {
				mu.Lock()
				defer mu.Unlock()
				for range batch {
					n++
					orders = append(orders, match.Order{Match: fmt.Sprint("m", n), Shard: "s",
						Tickets: []match.Party{{Ticket: "x", Seats: 1}, {Ticket: "y", Seats: 1}}})
				}
				return orders
			}
			b.ResetTimer()
			began := time.Now()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					answers, err := a.store.Allocate(context.Background(), a.queue.Name, next(), time.Minute)
					if err == nil {
						err = answers[0].Err
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(n)/time.Since(began).Seconds(), "allocations/s")
		})
	}
}

// BenchmarkKill kills a worker that has a batch of 500 claimed, with the lease of 5 s and a supervisor every 5 s, and
// measures until others have matched its tickets.
func BenchmarkKill(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		a := newArena(b, match.Batch{}, 500)
		a.enqueue(500)
		a.goal = 245
		_, err := a.store.Claim(b.Context(), a.queue.Name+"/0", match.Claim{Worker: "victim", Lease: 5 * time.Second,
			Limit: 500})
		require.NoError(b, err) // and never another call: it is dead
		killed := time.Now()
		b.StartTimer()
		stop := a.work(2, match.WorkerConfig{Lease: 5 * time.Second})
		<-a.done
		b.ReportMetric(time.Since(killed).Seconds(), "s/recovery")
		stop()
		d, err := a.lobby.Depth(b.Context(), a.queue.Name)
		require.NoError(b, err)
		require.Zero(b, d.Claimed+d.Matched+d.Pending)
	}
}
