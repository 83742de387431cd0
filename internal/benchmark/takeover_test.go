//go:build linux

package benchmark

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// rounds is how often a failure is made in one operation of a benchmark: the metrics are over them.
const rounds = 5

// BenchmarkOwnerKilled kills a tile server with SIGKILL, and measures until its warm follower, a process of
// its own, serves: the first tile, and all of them. detect is until gossip with its fast settings suspects it;
// takeover is from the question to the authority to serving, per tile.
func BenchmarkOwnerKilled(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("tiles=%d", n), func(b *testing.B) {
			cfg := nodeConfig{Postgres: stacktest.PostgresDB(b), Tiles: someTiles(n)}
			owner := startNode(b, cfg)
			cfg.Follow = true
			var detect, first, all, takeover []time.Duration
			for b.Loop() {
				for range rounds {
					cfg.Seed = owner.gossip
					follower := startNode(b, cfg)
					// anywhere in gossip's and the ticks' intervals
					time.Sleep(time.Duration(1000+rand.IntN(500)) * time.Millisecond)
					killed := time.Now()
					owner.kill()
					detect = append(detect, follower.await(b, "died").At.Sub(killed))
					for serving, told := 0, 0; serving < n || told < n; {
						switch e := follower.next(b); e.What {
						case "serving":
							if serving++; serving == 1 {
								first = append(first, e.At.Sub(killed))
							}
							if serving == n {
								all = append(all, e.At.Sub(killed))
							}
						case "tookover":
							told++
							takeover = append(takeover, e.Took.Minted+e.Took.Replayed+e.Took.Installed)
						}
					}
					owner = follower
				}
			}
			report(b, "detect", detect)
			report(b, "first-commit", first)
			report(b, "all-serve", all)
			report(b, "takeover", takeover)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// next returns the next event.
func (p *process) next(b *testing.B) nodeEvent {
	b.Helper()
	select {
	case e := <-p.events:
		return e
	case <-time.After(time.Minute):
		b.Fatal("the follower did not take all tiles over within 30 s")
	}
	return nodeEvent{}
}

// report gives the middle and the highest of some durations, in milliseconds.
func report(b *testing.B, name string, d []time.Duration) {
	b.Helper()
	require.NotEmpty(b, d, name)
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2])/1e6, name+"-p50-ms")
	b.ReportMetric(float64(d[len(d)-1])/1e6, name+"-max-ms")
}

func someTiles(n int) []fence.TileID {
	base := fence.TileID(rand.Uint64()>>9 | 1)
	tiles := make([]fence.TileID, n)
	for i := range tiles {
		tiles[i] = base + fence.TileID(i)<<8
	}
	return tiles
}

// pair is two hosts on real servers that follow each other's tiles, with their intent ports.
type pair struct {
	hosts   [2]*tilehost.Host
	servers [2]*httptest.Server
	client  *tilehttp.Client

	mu      sync.Mutex
	refused map[fence.TileID]time.Time // first refusal as stale
}

func newPair(b *testing.B) *pair {
	seams, done, err := openSeams(b.Context(), stacktest.Redis(b), stacktest.PostgresDB(b))
	require.NoError(b, err)
	b.Cleanup(done)
	p := &pair{refused: map[fence.TileID]time.Time{}}
	p.client, err = tilehttp.NewClient(nil)
	require.NoError(b, err)
	b.Cleanup(p.client.Close)
	seams.Handover = p.client.Handover
	for i := range p.hosts {
		p.servers[i] = httptest.NewUnstartedServer(nil)
		p.hosts[i], err = tilehost.New(contactOf(p.servers[i]), seams,
			func(fence.TileID) (
				tile.Rules, error,
			) {
				return &busy{}, nil
			}, &tilehost.Config{Refollow: true,
				Tile: tile.Config{SuspectAfter: tile.NeverSuspect,
					Hooks: tile.Hooks{Refused: p.stale}}})
		require.NoError(b, err)
		p.servers[i].Config.Handler = muxOf(p.hosts[i])
		p.servers[i].Start()
		b.Cleanup(p.servers[i].Close)
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.hosts[i].Run(ctx) }()
		b.Cleanup(func() {
			stop()
			require.NoError(b, <-ended)
		})
	}
	return p
}

func contactOf(s *httptest.Server) string { return s.Listener.Addr().String() }

// stale notes when an owner met the first refusal.
func (p *pair) stale(i tile.RefusalInfo) {
	if errors.Is(i.Err, fence.ErrStale) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.refused[i.Tile].IsZero() {
			p.refused[i.Tile] = time.Now()
		}
	}
}

// await waits until a tile is in a state on a host, and its owner known if it follows.
func (p *pair) await(b *testing.B, h *tilehost.Host, id fence.TileID, want tile.State) {
	b.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if s, ok := h.TileStatus(id); ok && s.State == want && (want != tile.Following || s.Owner.Present()) {
			return
		}
		require.True(b, time.Now().Before(deadline), "tile %s is not %s within 30 s", id, want)
	}
}

// BenchmarkHandover hands a tile at 2 Hz to a named successor that follows it: handover is the whole of
// Drain, gap is how long no owner was serving.
func BenchmarkHandover(b *testing.B) {
	p := newPair(b)
	var whole []time.Duration
	for b.Loop() {
		for _, id := range someTiles(rounds) {
			require.NoError(b, p.hosts[0].Own(id))
			p.await(b, p.hosts[0], id, tile.Serving)
			require.NoError(b, p.hosts[1].Follow(id))
			p.await(b, p.hosts[1], id, tile.Following)
			began := time.Now()
			require.NoError(b, p.hosts[0].Drain(b.Context(), id, contactOf(p.servers[1])))
			whole = append(whole, time.Since(began))
			p.await(b, p.hosts[1], id, tile.Serving)
		}
	}
	report(b, "handover", whole)
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRedirect has a rival take a tile while clients wait for the outcome of an intent over HTTP, and
// measures from the store's refusal, at the old owner, to the redirect in the last client's hands.
func BenchmarkRedirect(b *testing.B) {
	const clients = 20
	p := newPair(b)
	var redirected []time.Duration
	for b.Loop() {
		for _, id := range someTiles(rounds) {
			require.NoError(b, p.hosts[0].Own(id))
			p.await(b, p.hosts[0], id, tile.Serving)
			require.NoError(b, p.hosts[1].TakeOver(id))
			p.await(b, p.hosts[1], id, tile.Serving)
			var waiting sync.WaitGroup
			var last time.Time
			var mu sync.Mutex
			for range clients {
				waiting.Go(func() {
					_, err := p.client.Forward(b.Context(), contactOf(p.servers[0]),
						tile.Intent{Tile: id, Actor: "ann", Body: []byte("go")})
					at := time.Now()
					mu.Lock()
					defer mu.Unlock()
					// Intents of the refused batch are answered as unresolved, the others with a redirect.
					if !errors.Is(err, tile.ErrRedirect) && !errors.Is(err, tile.ErrUnresolved) ||
						!strings.Contains(err.Error(), contactOf(p.servers[1])) {
						b.Errorf("answered %v", err)
					}
					if at.After(last) {
						last = at
					}
				})
			}
			waiting.Wait()
			p.mu.Lock()
			redirected = append(redirected, last.Sub(p.refused[id]))
			p.mu.Unlock()
		}
	}
	report(b, "redirect", redirected)
	b.ReportMetric(0, "ns/op")
}
