//go:build linux

package benchmark

import (
	"context"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
)

// blipTiles is how many tiles change hands; each is watched by one client.
const blipTiles = 50

// BenchmarkContestedBlip has a rival take tiles from an owner that serves them, at 2 Hz, while a client watches each
// through bridge, fan-out and relay. blip is the longest time between two frames of a tile from the question to the
// authority until two seconds later, usual the longest in the two seconds before; stale are frames of the old owner
// that came too late and were dropped on the way. A watcher that does not hold what the new owner committed within ten
// seconds is diverged.
func BenchmarkContestedBlip(b *testing.B) {
	p := newPair(b)
	w := newWatch(b, someTiles(blipTiles))
	require.NoError(b, p.hosts[0].Own(w.tiles...))
	require.NoError(b, p.hosts[0].Await(b.Context(), w.tiles...))
	require.NoError(b, p.hosts[1].Follow(w.tiles...))
	for _, id := range w.tiles {
		p.await(b, p.hosts[1], id, tile.Following)
	}
	taken := 0 // the tiles change hands in turns
	for b.Loop() {
		w.cut()
		time.Sleep(2 * time.Second)
		usual := w.cut()
		var takers sync.WaitGroup
		for _, id := range w.tiles {
			takers.Go(func() {
				time.Sleep(rand.N(500 * time.Millisecond)) // anywhere in a tick
				if err := p.hosts[1-taken].TakeOver(id); err != nil {
					b.Error(err)
				}
			})
		}
		takers.Wait()
		for _, id := range w.tiles {
			p.await(b, p.hosts[1-taken], id, tile.Serving)
		}
		time.Sleep(2 * time.Second)
		percentiles(b, "usual", usual)
		percentiles(b, "blip", w.cut())
		b.ReportMetric(float64(w.diverged(b)), "diverged")
		b.ReportMetric(float64(w.relay.Stats().StaleDrops)+float64(w.bridge.Stats().Dropped.Superseded), "stale")
		for _, id := range w.tiles {
			p.await(b, p.hosts[taken], id, tile.Following)
		}
		taken = 1 - taken
	}
	b.ReportMetric(0, "ns/op")
}

// watch is a bridge, a relay and a client that watches tiles, and notes the longest time between two frames of each.
type watch struct {
	tiles  []fence.TileID
	store  *redisfence.Store
	bridge *bridge.Bridge
	relay  *relay.Relay
	client *relayclient.Client

	mu      sync.Mutex
	last    map[fence.TileID]time.Time
	longest map[fence.TileID]time.Duration
}

func newWatch(b *testing.B, tiles []fence.TileID) *watch {
	w := &watch{tiles: tiles, last: map[fence.TileID]time.Time{}, longest: map[fence.TileID]time.Duration{}}
	client := redis.NewClusterClient(redisfence.Options(stacktest.Redis(b)...))
	b.Cleanup(func() { _ = client.Close() })
	var err error
	w.store, err = redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(b, err)
	log := redisstream.New(w.store, client)
	delivery := redis.NewClusterClient(redisfanout.Options(stacktest.Fanout(b)...))
	b.Cleanup(func() { _ = delivery.Close() })
	fan, err := redisfanout.New(delivery, nil)
	require.NoError(b, err)
	w.bridge, err = bridge.New(log, fan, nil, tiles, nil)
	require.NoError(b, err)
	w.relay, err = relay.New(fan, log, relay.Public, nil)
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.bridge.Run(ctx) })
	running.Go(func() { _ = w.relay.Run(ctx) })
	server := httptest.NewServer(w.relay.Handler())
	w.client, err = relayclient.Dial(b.Context(), "ws"+strings.TrimPrefix(server.URL, "http"),
		&relayclient.Config{Frame: w.frame})
	require.NoError(b, err)
	b.Cleanup(func() {
		_ = w.client.Close()
		stop()
		running.Wait()
		server.Close()
	})
	require.NoError(b, w.client.Subscribe(b.Context(), tiles...))
	return w
}

func (w *watch) frame(f fence.Entry) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.last[f.Tile]; !last.IsZero() {
		w.longest[f.Tile] = max(w.longest[f.Tile], now.Sub(last))
	}
	w.last[f.Tile] = now
}

// cut is the longest time between two frames of each tile since the last cut, one that still lasts included.
func (w *watch) cut() (longest []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.tiles {
		longest = append(longest, max(w.longest[id], time.Since(w.last[id])))
		w.longest[id] = 0
	}
	return longest
}

// diverged counts the tiles of which the client does not hold what the owner has committed.
func (w *watch) diverged(b *testing.B) (n int) {
	deadline := time.Now().Add(10 * time.Second)
	for _, id := range w.tiles {
		for {
			owner, err := w.store.Owner(b.Context(), id)
			require.NoError(b, err)
			if at, ok := w.client.Position(id); ok && at == owner.Position {
				break
			}
			if time.Now().After(deadline) {
				n++
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return n
}
