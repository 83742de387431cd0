package tiered_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/natstest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/fanouttest"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

const patience = time.Minute

// onServers returns a Fanout over clients of its own, as each process has.
func onServers(
	t testing.TB, redisAddrs []string, natsURL string, cfg *tiered.Config,
) (*tiered.Fanout, *redisfanout.Fanout) {
	logging.Disable() // the library prints every sign of trouble
	client := redis.NewClusterClient(redisfanout.Options(redisAddrs...))
	t.Cleanup(func() { _ = client.Close() })
	ordinary, err := redisfanout.New(client, nil)
	require.NoError(t, err)
	broker, err := natsfanout.Open([]string{natsURL}, &natsfanout.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	f, err := tiered.New(ordinary, broker, cfg)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f, ordinary
}

func TestConformanceOnServers(t *testing.T) {
	addrs, node := stacktest.Fanout(t), natstest.Start(t, nil)
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		// No tile moves: the suite's messages are no frames, so what comes by both tiers during a move comes twice.
		cfg := &tiered.Config{Logger: slog.New(slog.DiscardHandler), Bytes: math.MaxInt32}
		pub, _ := onServers(t, addrs, node.URL(), cfg)
		sub, ordinary := onServers(t, addrs, node.URL(), cfg)
		dropped := func() uint64 { return ordinary.Stats().Dropped }
		return fanouttest.Backend{Publisher: pub, Subscriber: sub, HintPublisher: pub, HintSubscriber: sub,
			Dropped: dropped}
	})
}

// awaitEnd waits until the watcher is where the history ends.
func (in *watcher) awaitEnd() {
	waittest.Until(in.w.t, func() bool {
		at, _, _ := in.result()
		return at == in.w.head()
	}, patience, time.Millisecond)
}

// TestMoveOnServers moves a tile from Redis to NATS and, when the only NATS node dies, back, while it is published. No
// watcher misses a frame in the move; when NATS dies each may miss what was under way.
func TestMoveOnServers(t *testing.T) {
	addrs, node := stacktest.Fanout(t), natstest.Start(t, nil)
	cfg := settings().With(tiered.Tuning{Interval: 100 * time.Millisecond, Cooldown: 5 * time.Second,
		Overlap: 300 * time.Millisecond})
	tile := fence.TileID(rand.Uint64() | 1)
	bridge, _ := onServers(t, addrs, node.URL(), cfg)
	w := &world{t: t, tile: tile}
	var watchers []*watcher
	for range 3 {
		relay, _ := onServers(t, addrs, node.URL(), cfg)
		watchers = append(watchers, (&process{Fanout: relay, w: w}).watch())
	}
	state := func() tiered.State {
		for _, t := range bridge.Tiles() {
			return t.State
		}
		return tiered.Ordinary
	}
	publishUntil := func(want tiered.State) {
		waittest.Until(t, func() bool {
			for _, m := range w.commit(3) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				sent, err := bridge.Publish(ctx, []fanout.Message{m})
				cancel()
				if partial := (*fanout.PublishError)(nil); errors.As(err, &partial) && partial.Handed[0] {
					sent, err = 1, nil
				}
				require.NoError(t, err)
				require.Equal(t, 1, sent)
			}
			return state() == want
		}, patience, 10*time.Millisecond)
	}
	publishUntil(tiered.Broker)
	for _, in := range watchers {
		in.awaitEnd()
		in.requireWhole()
	}
	node.Kill()
	publishUntil(tiered.Both)
	for range 50 {
		publishUntil(tiered.Both)
	}
	for _, in := range watchers {
		in.awaitEnd()
	}
	node.Restart()
	publishUntil(tiered.Broker)
	for _, in := range watchers {
		in.awaitEnd()
		_, gaps, _ := in.result()
		require.LessOrEqual(t, gaps, 1)
	}
}
