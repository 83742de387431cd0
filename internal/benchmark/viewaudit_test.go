//go:build linux

package benchmark

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
	"github.com/tilefence/tilefence/stream/memstream"
)

// auditReads is how many views BenchmarkViewAudit reads at most: TILEFENCE_BENCH_VIEW_READS, or 10 million.
func auditReads(tb testing.TB) int64 {
	text := os.Getenv("TILEFENCE_BENCH_VIEW_READS")
	if text == "" {
		return 10_000_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(tb, err, "TILEFENCE_BENCH_VIEW_READS")
	return n
}

// auditLength is for how long it reads at most: TILEFENCE_BENCH_VIEW_LENGTH, or a minute.
func auditLength(tb testing.TB) time.Duration {
	text := os.Getenv("TILEFENCE_BENCH_VIEW_LENGTH")
	if text == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(text)
	require.NoError(tb, err, "TILEFENCE_BENCH_VIEW_LENGTH")
	return d
}

// BenchmarkViewAudit reads views through four caches on one store while owners commit, take over, save snapshots and
// trim, and compares each with what the owners committed: 10 million views, or as many as a minute allows. Every two
// seconds the store of views is emptied. wrong are views that are not the history, that are empty, that lack what was
// committed 1.5 s before (6.5 s if the view says that it is stale), or that regress, but for what was emptied. What the
// log has is compared with what was committed too, before it is trimmed.
func BenchmarkViewAudit(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		store := viewstore.New()
		audit(b, func() viewstore.Store { return store }, store.Flush)
	})
	b.Run("redis", func(b *testing.B) {
		stack := stacktest.Start(b, devstack.Config{Parts: []devstack.Part{devstack.Views}})
		client := redis.NewClient(redisviewcache.Options(stack.ViewsAddr))
		b.Cleanup(func() { _ = client.Close() })
		audit(b, func() viewstore.Store {
			store, err := redisviewcache.New(client, fence.World{}, 0)
			require.NoError(b, err)
			b.Cleanup(store.Close)
			return store
		}, func() { client.FlushAll(b.Context()) })
	})
}

func audit(b *testing.B, open func() viewstore.Store, flush func()) {
	const relays, tiles, readers = 4, 20, 4
	mem := memfence.New()
	world, log := &viewcachetest.World{Store: mem, Bytes: 20, State: 4 << 10}, memstream.New(mem)
	all := someTiles(tiles)
	for _, tile := range all {
		_, err := world.Commit(b.Context(), tile)
		require.NoError(b, err)
	}
	var reads, wrong, notShared atomic.Int64
	for b.Loop() {
		stop := make(chan struct{})
		var owners, group sync.WaitGroup
		for _, tile := range all {
			owners.Go(func() { ownForAudit(b, stop, world, mem, tile) })
		}
		owners.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Second):
					world.Empty(flush)
				}
			}
		})
		most, until, began := auditReads(b), time.Now().Add(auditLength(b)), time.Now()
		var caches []*viewcache.Cache
		for range relays {
			c, err := viewcache.New(open(), log, viewcachetest.Keys, &viewcache.Config{Fresh: 50 * time.Millisecond})
			require.NoError(b, err)
			caches = append(caches, c)
			for range readers {
				group.Go(func() {
					for time.Now().Before(until) && reads.Add(1) <= most {
						tile := all[rand.IntN(tiles)]
						r := world.Begin(tile, outdatedAfter)
						v, err := c.View(b.Context(), tile, fence.Position{})
						if err == nil {
							err = r.Audit(&v)
						}
						switch {
						case errors.Is(err, viewcache.ErrNotShared):
							notShared.Add(1)
						case err != nil:
							wrong.Add(1)
							b.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		took := time.Since(began)
		close(stop)
		owners.Wait()
		var hits, rebuilds uint64
		for _, c := range caches {
			hits, rebuilds = hits+c.Stats().Hits, rebuilds+c.Stats().Rebuilds
		}
		n := min(reads.Load(), most) - notShared.Load()
		b.ReportMetric(float64(n), "views")
		b.ReportMetric(float64(wrong.Load()), "wrong")
		b.ReportMetric(float64(n)/took.Seconds(), "views/s")
		b.ReportMetric(float64(rebuilds), "rebuilds")
		b.ReportMetric(100*float64(hits)/float64(n), "hit-%")
		b.ReportMetric(float64(notShared.Load()), "not-shared")
		b.ReportMetric(0, "ns/op")
	}
}

// ownForAudit plays a tile.
func ownForAudit(b *testing.B, stop chan struct{}, w *viewcachetest.World, mem *memfence.Store, tile fence.TileID) {
	for i := 1; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(50 * time.Millisecond):
		}
		var err error
		switch {
		case i%100 == 0:
			_, err = w.TakeOver(b.Context(), tile)
		case i%10 == 0:
			err = errors.Join(w.Compare(b.Context(), memstream.New(mem), tile), w.Snapshot(b.Context(), tile))
			mem.Update(tile, func(s *memfence.State) { s.TrimBelow(s.Snapshot.Seq) })
		default:
			_, err = w.Commit(b.Context(), tile)
		}
		if err != nil {
			b.Error(err)
		}
	}
}
