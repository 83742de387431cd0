package redisfanout_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/fanouttest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

const patience = time.Minute

func TestMain(m *testing.M) {
	logging.Disable() // servers are broken on purpose here, of which the library prints every sign
	// After a pool was closed, its attempt to reach a dead server sleeps on for up to a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func newClient(t testing.TB, addrs []string) *redis.ClusterClient {
	client := redis.NewClusterClient(redisfanout.Options(addrs...))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func open(t testing.TB, client redis.UniversalClient, cfg *redisfanout.Config) *redisfanout.Fanout {
	f, err := redisfanout.New(client, cfg)
	require.NoError(t, err)
	return f
}

func TestConformance(t *testing.T) {
	addrs := stacktest.Fanout(t)
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		// Two clients, as the bridge and a relay would have.
		pub, sub := open(t, newClient(t, addrs), nil), open(t, newClient(t, addrs), nil)
		return fanouttest.Backend{Publisher: pub, Subscriber: sub, HintPublisher: pub, HintSubscriber: sub,
			Dropped: func() uint64 { return sub.Stats().Dropped }}
	})
}

func TestArgumentsOfNew(t *testing.T) {
	good := redis.NewClusterClient(redisfanout.Options("127.0.0.1:1"))
	defer func() { _ = good.Close() }()
	deaf := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = deaf.Close() }()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"},
		HeartbeatFrequency: time.Hour})
	defer func() { _ = ring.Close() }()

	for name, err := range map[string]error{
		"no client":         errOf(redisfanout.New(nil, nil)),
		"typed nil":         errOf(redisfanout.New((*redis.ClusterClient)(nil), nil)),
		"another kind":      errOf(redisfanout.New(ring, nil)),
		"deadlines ignored": errOf(redisfanout.New(deaf, nil)),
	} {
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	require.NoError(t, errOf(redisfanout.New(good, nil)))
}

func errOf(_ *redisfanout.Fanout, err error) error { return err }

// TestOneConnectionANode: hundreds of tiles do not cost hundreds of connections, and when the last
// subscription stops none is left.
func TestOneConnectionANode(t *testing.T) {
	addrs := stacktest.Fanout(t)
	client := newClient(t, addrs)
	f := open(t, client, nil)
	var stops []func()
	for range 300 {
		stop, err := f.Subscribe(t.Context(), anyTile(), func([]byte) {})
		require.NoError(t, err)
		stops = append(stops, stop)
	}
	stats := f.Stats()
	require.Equal(t, 300, stats.Channels)
	require.Equal(t, 300, stats.InForce)
	require.Equal(t, 300, stats.Subscriptions)
	require.LessOrEqual(t, stats.Connections, len(addrs))
	for _, stop := range stops {
		stop()
	}
	require.Zero(t, f.Stats().Connections)
	require.Zero(t, f.Stats().Channels)
}

// TestNobodyThere: without servers both sides say so, in time, and recover nothing by themselves.
func TestNobodyThere(t *testing.T) {
	f := open(t, newClient(t, []string{"127.0.0.1:1"}), nil)
	sent, err := f.Publish(t.Context(), []fanout.Message{{Tile: 7, Data: []byte("x")}})
	require.Zero(t, sent)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	var failed *fanout.PublishError
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.Handed[0])

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = f.Subscribe(ctx, 7, func([]byte) {})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorContains(t, err, "refused", "the error names what stood in the way")
	require.Zero(t, f.Stats().Subscriptions)
	require.Zero(t, f.Stats().Channels)
}

// TestConnectionLost: the connections are cut under the subscriptions, which come back by themselves.
func TestConnectionLost(t *testing.T) {
	addrs := stacktest.Fanout(t)
	client := newClient(t, addrs)
	logger, lost := lostConnections()
	opts := redisfanout.Options(addrs...)
	opts.ClientName = "tilefence-" + strings.ReplaceAll(stacktest.UniqueName(t), "_", "-")
	subClient := redis.NewClusterClient(opts)
	t.Cleanup(func() { _ = subClient.Close() })
	f := open(t, subClient, &redisfanout.Config{Logger: logger})
	pub := open(t, client, nil)
	probes := make([]*probe, 40)
	for i := range probes {
		probes[i] = newProbe(t, f, pub)
	}
	for range 3 {
		require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			list, err := node.ClientList(ctx).Result()
			if err != nil {
				return err
			}
			for line := range strings.Lines(list) {
				if strings.Contains(line, " name="+opts.ClientName+" ") && !strings.Contains(line, " ssub=0 ") {
					id := strings.TrimPrefix(strings.Fields(line)[0], "id=")
					if err := node.Do(ctx, "client", "kill", "id", id).Err(); err != nil {
						return err
					}
				}
			}
			return nil
		}))
		require.Contains(t, <-lost, "error=")
		for _, p := range probes {
			p.awaitLive()
		}
	}
	require.Equal(t, len(probes), f.Stats().InForce)
	require.Positive(t, f.Stats().Disconnects)
}

// lostConnections are the lines that a logger is given about connections that were lost.
func lostConnections() (*slog.Logger, <-chan string) {
	lost := make(lines, 100)
	return slog.New(slog.NewTextHandler(lost, nil)), lost
}

type lines chan string

func (l lines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "was lost") {
		l <- string(line)
	}
	return len(line), nil
}

// probe is a subscription that can be asked whether it is alive.
type probe struct {
	t    *testing.T
	tile fence.TileID
	pub  *redisfanout.Fanout
	got  chan string
}

func newProbe(t *testing.T, sub, pub *redisfanout.Fanout) *probe {
	return newProbeOn(t, anyTile(), sub, pub)
}

func newProbeOn(t *testing.T, tile fence.TileID, sub, pub *redisfanout.Fanout) *probe {
	p := &probe{t: t, tile: tile, pub: pub, got: make(chan string, 1000)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stop, err := sub.Subscribe(ctx, p.tile, func(data []byte) { p.got <- string(data) })
	require.NoError(t, err)
	t.Cleanup(stop)
	return p
}

// awaitLive publishes until a message arrives, and fails if none does.
func (p *probe) awaitLive() {
	p.t.Helper()
	mark := stacktest.UniqueName(p.t)
	waittest.Until(p.t, func() bool {
		if _, err := p.pub.Publish(p.t.Context(), []fanout.Message{{Tile: p.tile, Data: []byte(mark)}}); err != nil {
			return false
		}
		for {
			select {
			case got := <-p.got:
				if got == mark {
					return true
				}
			case <-time.After(100 * time.Millisecond):
				return false
			}
		}
	}, patience, 20*time.Millisecond)
}

func anyTile() fence.TileID { return fence.TileID(rand.Uint64() | 1) }

func worldOn(t *testing.T, w fence.World) *redisfanout.Fanout {
	client := redis.NewClusterClient(redisfanout.Options(stacktest.Fanout(t)...))
	t.Cleanup(func() { _ = client.Close() })
	f, err := redisfanout.New(client, &redisfanout.Config{World: fence.World{Name: w.Name}})
	require.NoError(t, err)
	return f
}

func TestWorld(t *testing.T) {
	fencetest.RunWorld(t, false, func(t *testing.T, w fence.World) fence.WorldKeeper { return worldOn(t, w) })
}

// TestWorldsHearTheirOwn: of two worlds on one server, each gets its own frames and hints.
func TestWorldsHearTheirOwn(t *testing.T) {
	const tile fence.TileID = 0x8528347bfffffff
	a, b := worldOn(t, fence.World{Name: "a"}), worldOn(t, fence.World{Name: "b"})
	frames, hints, ready := make(chan string, 8), make(chan string, 8), make(chan bool, 2)
	for name, f := range map[string]*redisfanout.Fanout{"a": a, "b": b} {
		stop, err := f.Subscribe(t.Context(), tile, func(data []byte) { frames <- name + " hears " + string(data) })
		require.NoError(t, err)
		defer stop()
		quit, err := f.SubscribeHints(fanout.HintGroupOf(tile), func([]fence.TileID) { hints <- name },
			func(bool) { ready <- true })
		require.NoError(t, err)
		defer quit()
	}
	<-ready
	<-ready
	for name, f := range map[string]*redisfanout.Fanout{"a": a, "b": b} {
		_, err := f.Publish(t.Context(), []fanout.Message{{Tile: tile, Data: []byte(name)}})
		require.NoError(t, err)
		require.NoError(t, f.PublishHints(t.Context(), []fence.TileID{tile}))
		require.Equal(t, name+" hears "+name, <-frames)
		require.Equal(t, name, <-hints)
	}
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, frames)
	require.Empty(t, hints)
}
