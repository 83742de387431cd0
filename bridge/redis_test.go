package bridge_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// servers is the real thing: two Redis clusters with a bridge between them.
type servers struct {
	store *redisfence.Store
	coord *redis.ClusterClient
	log   *redisstream.Log
	pub   *redisfanout.Fanout
	sub   *redisfanout.Fanout
}

func openServers(t testing.TB) *servers {
	return serversOf(t, stacktest.Redis(t), stacktest.Fanout(t))
}

// serversOf connects to a stack.
func serversOf(t testing.TB, coord, delivery []string) *servers {
	client := func(addrs []string) *redis.ClusterClient {
		c := redis.NewClusterClient(redisfanout.Options(addrs...))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	s := &servers{coord: client(coord)}
	var err error
	s.store, err = redisfence.New(s.coord, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, s.store.Load(t.Context()))
	s.log = redisstream.New(s.store, s.coord)
	s.pub, err = redisfanout.New(client(delivery), nil)
	require.NoError(t, err)
	s.sub, err = redisfanout.New(client(delivery), nil)
	require.NoError(t, err)
	return s
}

// TestOnRealServers: tiles tick, owners change, bridges follow one another, an entry is damaged; every
// watcher receives every batch of its tile, in order.
func TestOnRealServers(t *testing.T) {
	s := openServers(t)
	const tiles, ticks = 40, 30
	ids := make([]fence.TileID, tiles)
	watchers := make([]*watcher, tiles)
	for i := range ids {
		ids[i] = fence.TileID(rand.Uint64() | 1)
		watchers[i] = &watcher{}
		stop, err := s.sub.Subscribe(t.Context(), ids[i], watchers[i].deliver)
		require.NoError(t, err)
		defer stop()
	}
	var b *bridge.Bridge
	run := func() (stop func()) {
		var err error
		b, err = bridge.New(s.log, s.pub, nil, ids, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		return func() {
			cancel()
			require.NoError(t, <-ended)
		}
	}
	stop, forwarded := run(), uint64(0)
	heads := make([]fence.Position, tiles)
	epoch := fence.Epoch(1)
	for tick := range fence.Tick(ticks) {
		switch tick {
		case 10:
			stop() // a planned restart
			forwarded = b.Stats().Batches
			stop = run()
		case 20:
			waittest.Until(t, func() bool { return watchedAll(watchers, heads) }, 20*time.Second, 5*ms)
			epoch++ // all tiles change hands
		}
		for i, id := range ids {
			payload, _, err := (&stream.Batch{Events: [][]byte{[]byte("event")}}).Encode()
			require.NoError(t, err)
			r, err := s.store.Commit(t.Context(), fence.Commit{Tile: id, Epoch: epoch, Contact: "owner", Prev: heads[i],
				Tick: tick + 1, Payload: payload, Install: heads[i].Epoch != epoch})
			require.NoError(t, err)
			heads[i] = r.Position
		}
	}
	waittest.Until(t, func() bool { return watchedAll(watchers, heads) }, 20*time.Second, 5*ms)
	for _, w := range watchers {
		require.Equal(t, upTo(1, ticks), w.all())
	}

	// An entry of an unknown form, as a broken tool would add: dead-lettered, and the tile goes on.
	stranger := heads[0].Seq + 1
	keys := fence.KeysOf(ids[0])
	require.NoError(t, s.coord.XAdd(t.Context(), &redis.XAddArgs{Stream: keys.Stream,
		ID: strconv.FormatUint(uint64(stranger), 10), Values: []string{"x", "y"}}).Err())
	waittest.Until(t, func() bool {
		dead, err := s.log.DeadLetters(t.Context(), ids[0])
		return err == nil && len(dead) == 1 && dead[0].Seq == stranger && dead[0].Fields["x"] == "y"
	}, 20*time.Second, 10*ms)
	stop()
	for i, id := range ids {
		marks, err := s.log.Marks(t.Context(), []fence.TileID{id})
		require.NoError(t, err)
		want := heads[i].Seq
		if i == 0 {
			want = stranger
		}
		require.Equal(t, want, marks[0].Marks[stream.BridgeAcked].Seq)
		require.Equal(t, want, marks[0].Marks[stream.BridgePending].Seq)
	}
	s.remove(t, ids)
	stats := b.Stats()
	require.EqualValues(t, tiles*ticks, forwarded+stats.Batches)
	require.EqualValues(t, 1, stats.DeadLetters)
	require.Zero(t, stats.Gaps)
	require.Zero(t, stats.Dropped)
	require.Less(t, stats.Passes, uint64(tiles*ticks), "tiles share passes")
	t.Logf("%+v", stats)
}

// watcher keeps the sequences it received.
type watcher struct {
	mu   sync.Mutex
	seqs []fence.Seq
}

func (w *watcher) deliver(data []byte) {
	f, err := fence.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seqs = append(w.seqs, f.Seq)
}

func (w *watcher) all() []fence.Seq {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seqs
}

func watchedAll(watchers []*watcher, heads []fence.Position) bool {
	for i, w := range watchers {
		if seqs := w.all(); len(seqs) == 0 || seqs[len(seqs)-1] != heads[i].Seq {
			return false
		}
	}
	return true
}
