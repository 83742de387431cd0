package benchmark

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/relay/relaypb"
)

const (
	stormClients = 10_000
	stormOver    = time.Second
	stormRounds  = 9
	stormTiles   = 200 // of one coordination node, at 2 Hz: so many that a second has a p99 of commits
	stormPayload = 64  // bytes that a tick commits: a Sync has a tail of up to 30 ticks, for each client
)

// BenchmarkJoinStorm has clients connect to a relay within a second and subscribe, and measures the commits of the
// tiles meanwhile, over those of the moment before: all of them to one tile of 200 on one coordination node, and
// spread over the 200, each of which is then read from the node. Figures are medians of the rounds', so that a moment
// in which the machine stalls does not decide. x-p99-of-calm is how far two windows differ in which nothing happens:
// no ratio is more exact. The commit path has one half of the processors; relay, bridge and clients share the other,
// and joining takes them the longer (the relay's BenchmarkJoin measures that).
func BenchmarkJoinStorm(b *testing.B) {
	p := newPlanes(b, devstack.Coordination, devstack.Fanout)
	tiles, _ := p.tilesOn(b, stormTiles)
	owner := p.start(b, partConfig{Role: "owner", Tiles: tiles, Tick: 500 * time.Millisecond, SnapshotEvery: 30,
		Payload: stormPayload, State: isolationState, Hints: true})
	p.start(b, partConfig{Role: "bridge", Tiles: tiles, Hints: true})
	for _, watched := range []int{1, stormTiles} {
		b.Run(fmt.Sprintf("tiles=%d", watched), func(b *testing.B) {
			for b.Loop() {
				s := joinStorm{planes: p, owner: owner, tiles: tiles[:watched], clients: stormClients}
				s.run(b, stormRounds)
				s.report(b)
			}
		})
	}
}

// TestAJoinStormIsMeasured plays BenchmarkJoinStorm in small.
func TestAJoinStormIsMeasured(t *testing.T) {
	p := newPlanes(t, devstack.Coordination, devstack.Fanout)
	tiles, _ := p.tilesOn(t, 10)
	owner := p.start(t, partConfig{Role: "owner", Tiles: tiles, Tick: 50 * time.Millisecond, SnapshotEvery: 30,
		Payload: stormPayload, State: isolationState, Hints: true})
	p.start(t, partConfig{Role: "bridge", Tiles: tiles, Hints: true})
	s := joinStorm{planes: p, owner: owner, tiles: tiles, clients: 200}
	s.run(t, 2)
	for i, joined := range s.joined {
		require.Equal(t, 200, joined.N)
		require.Positive(t, joined.P50)
		require.NotZero(t, s.during[i].N, "commits go on")
		require.GreaterOrEqual(t, s.reads[i], int64(len(tiles)))
		// One more if the fan-out was faster than a read.
		require.Less(t, s.reads[i], int64(2*len(tiles)), "each tile is read once, however many clients come")
	}
}

// joinStorm is a relay that nothing watched before, and what was measured when clients came.
type joinStorm struct {
	*planes
	owner   *process
	tiles   []fence.TileID // that clients watch
	clients int

	// Of each round.
	calm, before, during []spans // of commits: in two windows without a storm, and in it
	joined               []spans
	reads                []int64 // by the relay from the store
}

func (s *joinStorm) run(tb testing.TB, rounds int) {
	tb.Helper()
	for range rounds {
		s.round(tb)
	}
}

// round starts a relay, so that each is as cold as the others.
func (s *joinStorm) round(tb testing.TB) {
	tb.Helper()
	relay, addr := s.startRelay(tb)
	joiners := s.start(tb, partConfig{Role: "joiners", Relay: addr, Tiles: s.tiles, AtOnce: s.clients})
	time.Sleep(stormOver) // starting them is over
	s.calm = append(s.calm, s.owner.measure(tb, 2*stormOver).Commit)
	s.before = append(s.before, s.owner.measure(tb, 2*stormOver).Commit)
	_, err := joiners.orders.Write([]byte("join\n"))
	require.NoError(tb, err)
	s.joined = append(s.joined, *joiners.await(tb, "joined").Joined)
	s.during = append(s.during, s.owner.window(tb).Commit)
	s.reads = append(s.reads, relay.newCounts(tb)["repairs"])
	joiners.kill()
	relay.kill()
}

// startRelay starts a relay without clients, and gives its address.
func (p *planes) startRelay(tb testing.TB) (relay *process, addr string) {
	tb.Helper()
	relay = p.launch(tb, partConfig{Role: "relay"})
	addr = relay.await(tb, "listening").Who
	relay.await(tb, "ready")
	return relay, addr
}

func (s *joinStorm) report(b *testing.B) {
	p50, p99 := func(d spans) time.Duration { return d.P50 }, func(d spans) time.Duration { return d.P99 }
	b.ReportMetric(middle(s.before, p50), "calm-p50-ms")
	b.ReportMetric(middle(s.during, p50), "p50-ms")
	b.ReportMetric(middle(s.during, p50)/middle(s.before, p50), "x-p50")
	b.ReportMetric(middle(s.before, p99), "calm-p99-ms")
	b.ReportMetric(middle(s.during, p99), "p99-ms")
	b.ReportMetric(middle(s.during, p99)/middle(s.before, p99), "x-p99")
	b.ReportMetric(middle(s.before, p99)/middle(s.calm, p99), "x-p99-of-calm")
	b.ReportMetric(middle(s.joined, p99), "join-p99-ms")
	b.ReportMetric(float64(slices.Max(s.reads)), "cold-reads")
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

// join has clients join a relay on a line of its input, each on the next tile, and says how long that took them. They
// stay as long as the process.
func (p *part) join(ctx context.Context) error {
	p.say(nodeEvent{What: "ready"})
	if order := bufio.NewScanner(os.Stdin); !order.Scan() {
		return order.Err()
	}
	joins := make([]crowd.Join, p.AtOnce)
	for i := range joins {
		joins[i].Addr, joins[i].Path = p.Relay, subscribeTo(p.Tiles[i%len(p.Tiles)])
	}
	short := 0
	leave, err := crowd.Storm(joins, stormOver, relaypb.Subprotocol, func(_ int, sync []byte) {
		if len(sync) < isolationState {
			short++
		}
	})
	if err != nil {
		return err
	}
	defer leave()
	if short > 0 {
		return fmt.Errorf("%d first messages are shorter than a Sync with the tile's state", short)
	}
	took := make([]time.Duration, len(joins))
	for i := range joins {
		took[i] = joins[i].Took
	}
	joined := spansOf(took)
	p.say(nodeEvent{What: "joined", Joined: &joined})
	<-ctx.Done()
	return nil
}
