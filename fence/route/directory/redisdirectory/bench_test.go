package redisdirectory_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/fence/route/directory/redisdirectory"
	"github.com/tilefence/tilefence/internal/cputime"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/redislib"
)

// BenchmarkLook offers one node 20,000 look-ups a second of one player each, among 10,000, as gateways do: each when it
// is due, whether those before are answered or not. In turns with it, the node is offered as many bare HGETALLs of the
// same records, each a call of its own. Latency counts from when a look-up was due, so one that waits for another
// counts in full. Those of the first half second of a turn are not measured. lookups/s is how many were answered,
// us/each the processor time of this process and the node.
func BenchmarkLook(b *testing.B) {
	cluster := newClient(b, stacktest.Fanout(b))
	node, err := cluster.MasterForKey(b.Context(), redisdirectory.Key("bench-0"))
	require.NoError(b, err)
	all := redisdirectory.New(cluster, fence.World{})
	var actors []string // those of this node
	for _, actor := range players(b, all, 10_000) {
		m, err := cluster.MasterForKey(b.Context(), redisdirectory.Key(actor))
		require.NoError(b, err)
		if m == node {
			actors = append(actors, actor)
		}
	}
	s := redisdirectory.New(node, fence.World{})
	shared, bare := offered{node: node}, offered{node: node}
	for b.Loop() {
		for range 4 {
			shared.offer(b, func(n int) error {
				_, err := s.Look(b.Context(), actors[n*7919%len(actors)])
				return err
			})
			bare.offer(b, func(n int) error {
				return node.HGetAll(b.Context(), redisdirectory.Key(actors[n*7919%len(actors)])).Err()
			})
		}
	}
	shared.report(b, "")
	bare.report(b, "bare-")
	b.ReportMetric(float64(shared.cost())/float64(bare.cost()), "x-us")
	b.ReportMetric(0, "ns/op")
}

// offered is what became of the calls that a node was offered.
type offered struct {
	node *redis.Client
	took []time.Duration
	over time.Duration // from the first to the last
	used time.Duration // processor time
	all  int           // calls, those of the first half second too
}

// offer makes 20,000 calls a second for two and a half seconds.
func (o *offered) offer(b *testing.B, call func(n int) error) {
	const (
		askers = 256 // at once: more than may be under way
		gap    = time.Second / 20_000
		warmUp = time.Second / 2
		window = 2 * time.Second
	)
	var next atomic.Int64
	var mu sync.Mutex
	var work sync.WaitGroup
	began, used := time.Now(), o.processors(b)
	for range askers {
		work.Go(func() {
			var own []time.Duration
			for {
				n := next.Add(1)
				due := began.Add(time.Duration(n) * gap)
				if due.Sub(began) > warmUp+window {
					break
				}
				time.Sleep(time.Until(due))
				if err := call(int(n)); err != nil {
					b.Error(err)
					return
				}
				if due.Sub(began) > warmUp {
					own = append(own, time.Since(due))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			o.took = append(o.took, own...)
		})
	}
	work.Wait()
	o.over += time.Since(began) - warmUp
	o.used += o.processors(b) - used
	o.all += int(next.Load())
}

// processors is the processor time that this process and the node have used.
func (o *offered) processors(b *testing.B) time.Duration {
	used := cputime.Used()
	info, err := o.node.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(redislib.InfoField(info, name), 64)
		require.NoError(b, err)
		used += time.Duration(seconds * float64(time.Second))
	}
	return used
}

// cost is the processor time of one call.
func (o *offered) cost() time.Duration { return o.used / time.Duration(o.all) }

func (o *offered) report(b *testing.B, name string) {
	slices.Sort(o.took)
	b.ReportMetric(float64(len(o.took))/o.over.Seconds(), name+"lookups/s")
	b.ReportMetric(float64(o.took[len(o.took)/2])/1e6, name+"p50-ms")
	b.ReportMetric(float64(o.took[len(o.took)*99/100])/1e6, name+"p99-ms")
	b.ReportMetric(float64(o.cost())/1e3, name+"us/each")
}

// BenchmarkRenew renews the leases of 10,000 players, which a gateway does every 10 s.
func BenchmarkRenew(b *testing.B) {
	s := redisdirectory.New(newClient(b, stacktest.Fanout(b)), fence.World{})
	actors := players(b, s, 10_000)
	for b.Loop() {
		for batch := range slices.Chunk(actors, 1000) {
			_, err := s.Renew(b.Context(), "holder", batch...)
			require.NoError(b, err)
		}
	}
}

// players are so many with a lease and a place.
func players(b *testing.B, s directory.Store, n int) []string {
	actors, moves := make([]string, n), make([]directory.Move, n)
	for i := range actors {
		actors[i] = fmt.Sprint("bench-", i)
		moves[i] = directory.Move{Actor: actors[i], To: fence.TileID(i + 1), At: time.Now()}
	}
	require.NoError(b, s.Place(b.Context(), moves...))
	_, err := s.Renew(b.Context(), "holder", actors...)
	require.NoError(b, err)
	return actors
}
