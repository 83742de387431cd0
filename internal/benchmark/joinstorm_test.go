//go:build linux

package benchmark

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
)

const (
	stormClients = 10_000
	stormRounds  = 9
	stormTiles   = 200 // of one coordination node, at 2 Hz: so many that a second has a p99 of commits
	stormPayload = 64  // bytes that a tick commits: a Sync has a tail of up to 30 ticks, for each client
)

// BenchmarkJoinStorm has clients connect to a relay within a second and subscribe, and measures the commits of the
// tiles meanwhile, over those of the moment before (x-p99): all of them to one tile of 200 on one coordination node,
// and spread over the 200, each of which is then read from the node. Before each storm is one of as many clients at a
// bare server, which only lets them in and sends what lies ready: x-over-bare is the p99 of commits in the storm over
// that in the bare one. Figures are medians of the rounds', so that a moment in which the machine stalls does not
// decide. The commit path has one half of the processors; relay, bridge and clients share the other, and joining takes
// them the longer. In the row shared-cores all share all, and
// join one tile.
func BenchmarkJoinStorm(b *testing.B) {
	for _, watched := range []int{1, stormTiles} {
		b.Run(fmt.Sprintf("tiles=%d", watched), func(b *testing.B) { joinTiles(b, watched) })
	}
	b.Run("shared-cores", func(b *testing.B) {
		b.Setenv("TILEFENCE_BENCH_PIN", "off")
		joinTiles(b, 1)
	})
}

func joinTiles(b *testing.B, watched int) {
	s := newJoinStorm(b, stormTiles, 500*time.Millisecond, stormClients)
	for b.Loop() {
		var storm joinRounds
		s.run(b, &storm, watched, stormRounds)
		storm.report(b)
	}
}

// TestAJoinStormIsMeasured plays BenchmarkJoinStorm in small.
func TestAJoinStormIsMeasured(t *testing.T) {
	const tiles, clients = 10, 200
	s := newJoinStorm(t, tiles, 50*time.Millisecond, clients)
	var storm joinRounds
	s.run(t, &storm, tiles, 2)
	for i, joined := range storm.relay.joins {
		require.Positive(t, joined["p50-us"])
		require.Positive(t, storm.bare.joins[i]["p50-us"])
		require.NotZero(t, storm.relay.during[i].N, "commits go on")
		require.GreaterOrEqual(t, storm.reads[i], int64(tiles))
		// One more if the fan-out was faster than a read.
		require.Less(t, storm.reads[i], int64(2*tiles), "each tile is read once, however many clients come")
	}
}

// joinStorm is a deployment that meets storms of clients at one relay.
type joinStorm struct {
	*planes
	owner   *process
	tiles   []fence.TileID
	clients int
}

// joinRounds is what was measured.
type joinRounds struct {
	bare, relay stormFigures
	reads       []int64 // by the relay from the store
}

func newJoinStorm(tb testing.TB, tiles int, tick time.Duration, clients int) *joinStorm {
	tb.Helper()
	s := &joinStorm{planes: newPlanes(tb, devstack.Coordination, devstack.Fanout), clients: clients}
	s.tiles, _ = s.tilesOn(tb, tiles)
	s.owner = s.start(tb, partConfig{Role: "owner", Tiles: s.tiles, Tick: tick, SnapshotEvery: 30,
		Payload: stormPayload, State: isolationState, Hints: true})
	s.start(tb, partConfig{Role: "bridge", Tiles: s.tiles, Hints: true})
	return s
}

// run has clients join the first of the tiles, at a bare server and at a relay by turns.
func (s *joinStorm) run(tb testing.TB, measured *joinRounds, watched, rounds int) {
	tb.Helper()
	viewers := s.start(tb, partConfig{Role: "viewers", Tiles: s.tiles[:watched], AtOnce: s.clients})
	defer viewers.kill()
	relay, addr := s.startRelay(tb)
	ready := syncFrames(tb, addr, s.tiles[:watched])
	relay.kill()
	for range rounds {
		s.round(tb, measured, viewers, ready)
	}
}

// round starts a relay, so that each is as cold as the others.
func (s *joinStorm) round(tb testing.TB, measured *joinRounds, viewers *process, ready map[string][]byte) {
	tb.Helper()
	bare := bareServer(tb, ready)
	measured.bare.meet(tb, s.owner, func() counts { return viewers.visit(tb, bare.Listener.Addr().String(), nil) })
	bare.Close()
	relay, addr := s.startRelay(tb)
	defer relay.kill()
	time.Sleep(time.Second) // starting it is over
	measured.relay.meet(tb, s.owner, func() counts { return viewers.visit(tb, addr, nil) })
	measured.reads = append(measured.reads, relay.newCounts(tb)["repairs"])
}

// startRelay starts a relay without clients, and gives its address.
func (p *planes) startRelay(tb testing.TB) (relay *process, addr string) {
	tb.Helper()
	relay = p.launch(tb, partConfig{Role: "relay"})
	addr = relay.await(tb, "listening").Who
	relay.await(tb, "ready")
	return relay, addr
}

func (r *joinRounds) report(b *testing.B) {
	p50 := func(d spans) time.Duration { return d.P50 }
	b.ReportMetric(middle(r.relay.before, p50), "calm-p50-ms")
	b.ReportMetric(middle(r.relay.during, p50)/middle(r.relay.before, p50), "x-p50")
	b.ReportMetric(middle(r.relay.before, p99Of), "calm-p99-ms")
	b.ReportMetric(r.relay.slower(), "x-p99")
	b.ReportMetric(r.bare.slower(), "bare-x-p99")
	b.ReportMetric(r.relay.overBare(&r.bare), "x-over-bare")
	b.ReportMetric(median(r.relay.joins, "p50-us")/1000, "join-p50-ms")
	b.ReportMetric(median(r.relay.joins, "p99-us")/1000, "join-p99-ms")
	b.ReportMetric(median(r.bare.joins, "p99-us")/1000, "bare-join-p99-ms")
	b.ReportMetric(float64(slices.Max(r.reads)), "cold-reads")
	b.ReportMetric(0, "ns/op") // the length of the rounds: it says nothing
}

// middle is the median of a figure over rounds, in milliseconds.
func middle(rounds []spans, of func(spans) time.Duration) float64 {
	var all []time.Duration
	for _, r := range rounds {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return ms(all[len(all)/2])
}
