package natsfanout_test

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/natstest"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
)

// TestNodeDies: a subscriber and then a publisher lose their node, go to another one by themselves, which the cluster
// has named, and report it.
func TestNodeDies(t *testing.T) {
	cluster := natstest.StartCluster(t, 3, nil)
	log := &buffer{}
	sub := open(t, &natsfanout.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}, cluster[0].URL())
	connected := func(times int) (to string) {
		waittest.Until(t, func() bool {
			lines := strings.Split(log.String(), `msg="connected to NATS" server=`)
			to, _, _ = strings.Cut(lines[len(lines)-1], "\n")
			return len(lines) == times+1
		}, patience, time.Millisecond)
		return to
	}
	pub := open(t, nil, cluster[1].URL())
	probes := make([]*probe, 20)
	for i := range probes {
		probes[i] = newProbe(t, sub, pub)
		probes[i].awaitLive()
	}
	require.Equal(t, cluster[0].URL(), connected(1))

	cluster[0].Kill()
	require.NotEqual(t, cluster[0].URL(), connected(2))
	for _, p := range probes {
		p.awaitLive()
	}
	require.Contains(t, log.String(), "connection to NATS lost")
	require.Equal(t, uint64(1), sub.Stats().Disconnects)

	cluster[0].Restart()
	cluster[0].AwaitPeers(2)
	cluster[1].Kill()
	for _, p := range probes {
		p.awaitLive()
	}
	require.True(t, pub.Stats().Connected)
}

// TestSilentServer: a server that accepts and never answers costs a Publish its timeout and no more, and is given up;
// subscriptions to hints say that they are not in force.
func TestSilentServer(t *testing.T) {
	node := natstest.Start(t, nil)
	proxy := newProxy(t, node)
	cfg := natsfanout.Config{}.With(
		natsfanout.Tuning{Timeout: 300 * time.Millisecond, PingInterval: 200 * time.Millisecond})
	f, pub := open(t, cfg, proxy.URL()), open(t, nil, node.URL())
	states := make(chan bool, 100)
	stop, err := f.SubscribeHints(3, func([]fence.TileID) {}, func(up bool) { states <- up })
	require.NoError(t, err)
	t.Cleanup(stop)
	require.True(t, <-states)
	p := newProbe(t, f, pub)
	p.awaitLive()

	proxy.Freeze()
	began := time.Now()
	_, err = f.Publish(t.Context(), []fanout.Message{{Tile: p.tile, Data: []byte("?")}})
	require.Less(t, time.Since(began), 5*time.Second)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	require.False(t, <-states)
	proxy.Thaw()
	require.True(t, <-states)
	p.awaitLive()
}

// TestCut: connections are cut again and again; the subscriptions come back each time.
func TestCut(t *testing.T) {
	node := natstest.Start(t, nil)
	proxy := newProxy(t, node)
	f, pub := open(t, nil, proxy.URL()), open(t, nil, node.URL())
	probes := []*probe{newProbe(t, f, pub), newProbe(t, f, pub)}
	for i := range 5 {
		proxy.Cut()
		waittest.Until(t, func() bool { return f.Stats().Disconnects == uint64(i+1) }, patience, time.Millisecond)
		for _, p := range probes {
			p.awaitLive()
		}
	}
}

// TestStalledProcess: a process that does not read its connection is disconnected by the server, delays no other, and
// comes back.
func TestStalledProcess(t *testing.T) {
	node := natstest.Start(t, func(o *server.Options) {
		o.MaxPending, o.WriteDeadline = 4<<20, 200*time.Millisecond
	})
	proxy := newProxy(t, node)
	// Its own probes would notice first; here the server must.
	stalled := open(t, natsfanout.Config{}.With(natsfanout.Tuning{PingInterval: time.Minute}), proxy.URL())
	well := open(t, nil, node.URL())
	pub := open(t, natsfanout.Config{}.With(natsfanout.Tuning{Timeout: patience}), node.URL())
	p := newProbe(t, stalled, pub)
	got := make(chan int, 10_000)
	stop, err := well.Subscribe(t.Context(), p.tile, func(data []byte) { got <- len(data) })
	require.NoError(t, err)
	t.Cleanup(stop)

	proxy.Freeze()
	frame := make([]byte, 256<<10)
	for i := 0; node.Server().NumSlowConsumers() == 0; i++ {
		require.Less(t, i, 1000, "the server keeps everything")
		_, err := pub.Publish(t.Context(), []fanout.Message{{Tile: p.tile, Data: frame}})
		require.NoError(t, err)
		require.Equal(t, len(frame), <-got)
	}
	proxy.Thaw()
	p.awaitLive()
	require.Positive(t, stalled.Stats().Disconnects)
}

// TestRandomFaults kills and restarts the nodes of a cluster at random while messages are published. What arrives is in
// order, whatever was lost, but while nodes make their routes anew: then messages may come again, and one a fault may
// overtake others. In a time without faults every message arrives, once, in order.
func TestRandomFaults(t *testing.T) {
	rng := seed.Rand(t)
	cluster := natstest.StartCluster(t, 3, nil)
	urls := []string{cluster[0].URL(), cluster[1].URL(), cluster[2].URL()}
	pub := open(t, nil, urls...)
	tile := anyTile()
	var mu sync.Mutex
	got := make([][]int, 3)
	for i := range got {
		f := open(t, nil, slices.Concat(urls[i:], urls[:i])...)
		stop, err := f.Subscribe(t.Context(), tile, func(data []byte) {
			mu.Lock()
			defer mu.Unlock()
			got[i] = append(got[i], int(binary.BigEndian.Uint64(data)))
		})
		require.NoError(t, err)
		t.Cleanup(stop)
	}
	next := 0
	publish := func(n int) {
		for range n {
			_, _ = pub.Publish(t.Context(), []fanout.Message{{Tile: tile,
				Data: binary.BigEndian.AppendUint64(nil, uint64(next))}})
			next++
		}
	}
	const faults = 8
	for range faults {
		node := cluster[rng.IntN(3)]
		node.Kill()
		publish(rng.IntN(50))
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		publish(rng.IntN(50))
		node.Restart()
		publish(rng.IntN(50))
	}
	for _, n := range cluster {
		n.AwaitPeers(2)
	}
	var calm int
	waittest.Until(t, func() bool { // all are back
		calm = next
		publish(1)
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(got, func(n []int) bool { return len(n) == 0 || n[len(n)-1] != calm })
	}, patience, time.Millisecond)
	publish(100)
	waittest.Until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(got, func(n []int) bool { return n[len(n)-1] != next-1 })
	}, patience, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	for _, numbers := range got {
		seen, overtaken, highest := map[int]bool{}, map[int]bool{}, -1 // overtaken: by which messages
		for _, n := range numbers {
			if n < highest && !seen[n] {
				overtaken[highest] = true
			}
			seen[n], highest = true, max(highest, n)
		}
		require.LessOrEqual(t, len(overtaken), faults, "order: %v", numbers)
		want := make([]int, next-calm)
		for i := range want {
			want[i] = calm + i
		}
		require.Equal(t, want, numbers[slices.Index(numbers, calm):], "a loss without a fault")
	}
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
