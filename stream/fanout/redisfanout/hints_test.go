package redisfanout_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

// listener is a subscription to one hint group.
type listener struct {
	got chan fence.TileID

	mu     sync.Mutex
	states []bool
}

func listen(t *testing.T, f *redisfanout.Fanout, group int) *listener {
	l := &listener{got: make(chan fence.TileID, 10_000)}
	stop, err := f.SubscribeHints(group, func(tiles []fence.TileID) {
		for _, tile := range tiles {
			l.got <- tile
		}
	}, func(up bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.states = append(l.states, up)
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	return l
}

func (l *listener) history() []bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.states)
}

func (l *listener) awaitUp(t *testing.T) {
	t.Helper()
	waittest.Until(t, func() bool {
		h := l.history()
		return len(h) > 0 && h[len(h)-1]
	}, patience, time.Millisecond)
}

// awaitTile waits for a hint of this tile; others may use the group.
func (l *listener) awaitTile(t *testing.T, tile fence.TileID) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case got := <-l.got:
			if got == tile {
				return
			}
		case <-timeout:
			t.Fatalf("no hint of tile %s", tile)
		}
	}
}

func tileOfGroup(group int) fence.TileID {
	for {
		if t := anyTile(); fanout.HintGroupOf(t) == group {
			return t
		}
	}
}

// groupsOn returns the hint groups whose channels are in the slots.
func (c *ownCluster) groupsOn(first, last int) (groups []int) {
	for g := range fanout.HintGroups {
		slot, err := c.nodes[0].ClusterKeySlot(c.t.Context(), fanout.HintChannel(g)).Result()
		require.NoError(c.t, err)
		if int(slot) >= first && int(slot) <= last {
			groups = append(groups, g)
		}
	}
	return groups
}

// TestBadHintsAreIgnored: what cannot be read is counted, and what follows is delivered.
func TestBadHintsAreIgnored(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	const group = 11
	f := open(t, client, nil)
	l := listen(t, f, group)
	l.awaitUp(t)
	tile := tileOfGroup(group)
	whole := fanout.AppendHints(nil, []fence.TileID{tile})
	for i, payload := range [][]byte{nil, {1}, whole[:len(whole)-1], append([]byte{9}, whole[1:]...),
		fanout.AppendHints(nil, []fence.TileID{tileOfGroup(group + 1)}), []byte(strings.Repeat("x", 1<<20))} {
		require.NoError(t, client.SPublish(t.Context(), fanout.HintChannel(group), payload).Err())
		waittest.Until(t, func() bool { return f.Stats().BadHints == uint64(i+1) }, patience, time.Millisecond)
	}
	require.NoError(t, f.PublishHints(t.Context(), []fence.TileID{tile}))
	l.awaitTile(t, tile)
	require.Equal(t, []bool{true}, l.history(), "the subscription lives on")
}

// TestHintsTellWhetherTheyArrive: a node that hangs takes its groups down and no others, both for the
// subscriber and for the publisher, which knows which hints got through; and all come back.
func TestHintsTellWhetherTheyArrive(t *testing.T) {
	c := startCluster(t)
	cfg := redisfanout.Config{}.With(
		redisfanout.Tuning{Timeout: 500 * time.Millisecond, PingInterval: 200 * time.Millisecond})
	f, pub := open(t, newClient(t, c.stack.FanoutAddrs), cfg), open(t, newClient(t, c.stack.FanoutAddrs), cfg)
	dead, alive := c.groupsOn(c.slotsOf(1)), c.groupsOn(c.slotsOf(0))
	require.NotEmpty(t, dead)
	require.NotEmpty(t, alive)
	down, up := listen(t, f, dead[0]), listen(t, f, alive[0])
	down.awaitUp(t)
	up.awaitUp(t)
	hung, well := tileOfGroup(dead[0]), tileOfGroup(alive[0])

	require.NoError(t, pub.PublishHints(t.Context(), []fence.TileID{well, hung})) // it knows the slots now
	down.awaitTile(t, hung)
	up.awaitTile(t, well)

	require.NoError(t, c.process(1).Signal(devstack.Pause))
	err := pub.PublishHints(t.Context(), []fence.TileID{well, hung, well})
	var partial *fanout.PublishError
	require.ErrorAs(t, err, &partial)
	require.Equal(t, []bool{true, false, true}, partial.Handed)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	require.ErrorContains(t, err, "1 of 3")
	require.EqualValues(t, 4, pub.Stats().HintsSent)
	require.EqualValues(t, 1, pub.Stats().HintsUnsent)
	up.awaitTile(t, well)
	waittest.Until(t, func() bool { return slices.Contains(down.history(), false) }, patience, time.Millisecond,
		"the subscriber is told that hints do not arrive")
	require.NoError(t, c.process(1).Signal(devstack.GoOn))
	down.awaitUp(t)
	waittest.Until(t, func() bool {
		return pub.PublishHints(t.Context(), []fence.TileID{hung}) == nil
	}, patience, 10*time.Millisecond)
	down.awaitTile(t, hung)
	require.Equal(t, []bool{true}, up.history(), "the groups of the other node noticed nothing")
}

// TestEveryLossOfHintsIsTold: connections are cut over and over; after each the subscriber is notified,
// even if the connection is back at once.
func TestEveryLossOfHintsIsTold(t *testing.T) {
	addrs := stacktest.Fanout(t)
	client := newClient(t, addrs)
	opts := redisfanout.Options(addrs...)
	opts.ClientName = "tilefence-" + strings.ReplaceAll(stacktest.UniqueName(t), "_", "-")
	subClient := redis.NewClusterClient(opts)
	t.Cleanup(func() { _ = subClient.Close() })
	l := listen(t, open(t, subClient, nil), 2)
	l.awaitUp(t)
	for cut := 1; cut <= 3; cut++ {
		node, err := client.MasterForKey(t.Context(), fanout.HintChannel(2))
		require.NoError(t, err)
		killed := 0
		list, err := node.ClientList(t.Context()).Result()
		require.NoError(t, err)
		for line := range strings.Lines(list) {
			if strings.Contains(line, " name="+opts.ClientName+" ") && !strings.Contains(line, " ssub=0 ") {
				id := strings.TrimPrefix(strings.Fields(line)[0], "id=")
				require.NoError(t, node.Do(t.Context(), "client", "kill", "id", id).Err())
				killed++
			}
		}
		require.Equal(t, 1, killed)
		waittest.Until(t, func() bool { return len(l.history()) == 1+2*cut }, patience, time.Millisecond)
		for i, up := range l.history() {
			require.Equal(t, i%2 == 0, up, "up and down alternate")
		}
	}
}

// TestHintsWithoutServers: subscribing waits for no server, and publishing says that nothing was sent.
func TestHintsWithoutServers(t *testing.T) {
	f := open(t, newClient(t, []string{"127.0.0.1:1"}), nil)
	ups := make(chan bool, 10)
	stop, err := f.SubscribeHints(0, func([]fence.TileID) {}, func(up bool) { ups <- up })
	require.NoError(t, err)
	err = f.PublishHints(t.Context(), []fence.TileID{7})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	stop()
	require.Empty(t, ups, "it was never up")
	require.Zero(t, f.Stats().Subscriptions)
	require.Zero(t, f.Stats().Channels)
}

// TestHinterOnADeadNode: the process that hints goes on, and the tiles of the other nodes are hinted.
func TestHinterOnADeadNode(t *testing.T) {
	c := startCluster(t)
	f, pub := open(t, newClient(t, c.stack.FanoutAddrs), nil), open(t, newClient(t, c.stack.FanoutAddrs), nil)
	alive := listen(t, f, c.groupsOn(c.slotsOf(0))[0])
	alive.awaitUp(t)
	h, err := fanout.NewHinter(pub, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	dead, well := tileOfGroup(c.groupsOn(c.slotsOf(1))[0]), tileOfGroup(c.groupsOn(c.slotsOf(0))[0])
	require.NoError(t, pub.PublishHints(t.Context(), []fence.TileID{well})) // it knows the slots now
	alive.awaitTile(t, well)
	require.NoError(t, c.process(1).Signal(os.Kill))
	<-c.process(1).Exited()
	for range 20 {
		waittest.Until(t, func() bool {
			h.Hint(dead)
			h.Hint(well)
			select {
			case got := <-alive.got:
				return got == well
			case <-time.After(20 * time.Millisecond):
				return false
			}
		}, patience, time.Millisecond)
	}
	waittest.Until(t, func() bool { return h.Stats().Failed > 0 }, patience, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

// BenchmarkHintToDeliver is the time from Hint to deliver, through Hinter and Redis, of one tile at a time
// on otherwise idle servers.
func BenchmarkHintToDeliver(b *testing.B) {
	f := open(b, newClient(b, stacktest.Fanout(b)), nil)
	tile := anyTile()
	got, ups := make(chan struct{}, 1), make(chan bool, 10)
	stop, err := f.SubscribeHints(fanout.HintGroupOf(tile), func(tiles []fence.TileID) {
		if slices.Contains(tiles, tile) {
			got <- struct{}{}
		}
	}, func(up bool) { ups <- up })
	require.NoError(b, err)
	defer stop()
	require.True(b, <-ups)
	h, err := fanout.NewHinter(f, nil)
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		h.Hint(tile)
		<-got
		took = append(took, time.Since(began))
		time.Sleep(rand.N(2 * time.Millisecond)) // neither always just after a flush, nor never
	}
	cancel()
	require.NoError(b, <-done)
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkPublishHints is one flush: the hints of n tiles, heard by one subscriber of every group.
func BenchmarkPublishHints(b *testing.B) {
	for _, n := range []int{1, 20, 10_000} {
		b.Run(fmt.Sprintf("%d tiles", n), func(b *testing.B) {
			f := open(b, newClient(b, stacktest.Fanout(b)), nil)
			for g := range fanout.HintGroups {
				ups := make(chan bool, 10)
				stop, err := f.SubscribeHints(g, func([]fence.TileID) {}, func(up bool) { ups <- up })
				require.NoError(b, err)
				defer stop()
				<-ups
			}
			tiles := make([]fence.TileID, n)
			for i := range tiles {
				tiles[i] = anyTile()
			}
			b.ReportAllocs()
			calls := 0
			for b.Loop() {
				require.NoError(b, f.PublishHints(b.Context(), tiles))
				calls++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(calls*n), "ns/hint")
		})
	}
}
