package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// feeder commits batches of about two kilobytes on many tiles.
type feeder struct {
	commit  fence.CommitFn
	ids     []fence.TileID
	heads   []fence.Position
	payload []byte
}

func newFeeder(b *testing.B, commit fence.CommitFn, tiles int) *feeder {
	payload, _, err := (&stream.Batch{Events: slices.Repeat([][]byte{make([]byte, 200)}, 10)}).Encode()
	require.NoError(b, err)
	f := &feeder{commit: commit, payload: payload, ids: make([]fence.TileID, tiles),
		heads: make([]fence.Position, tiles)}
	for i := range f.ids {
		f.ids[i] = fence.TileID(rand.Uint64() | 1)
	}
	return f
}

// one commits the next batch of tile i.
func (f *feeder) one(ctx context.Context, i int) error {
	r, err := f.commit(ctx, fence.Commit{Tile: f.ids[i], Epoch: 1, Contact: "bench", Prev: f.heads[i],
		Tick: fence.Tick(f.heads[i].Seq), Payload: f.payload, Install: f.heads[i].Seq == 0})
	if err == nil {
		f.heads[i] = r.Position
	}
	return err
}

// each commits n batches on every tile.
func (f *feeder) each(b *testing.B, n int) {
	var g errgroup.Group
	g.SetLimit(32)
	for i := range f.ids {
		g.Go(func() error {
			for range n {
				if err := f.one(b.Context(), i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
}

// counter passes messages on and signals when so many have been.
type counter struct {
	fanout.Publisher
	sent  atomic.Int64
	until atomic.Int64
	full  chan struct{}
}

func (c *counter) Publish(ctx context.Context, m []fanout.Message) (int, error) {
	n, err := c.Publisher.Publish(ctx, m)
	if now := c.sent.Add(int64(n)); now >= c.until.Load() && now-int64(n) < c.until.Load() {
		c.full <- struct{}{}
	}
	return n, err
}

// backlog measures how fast a bridge works off what was committed: each round has a bridge of its own, begun when all
// is committed.
func backlog(b *testing.B, f *feeder, log stream.Log, pub fanout.Publisher, perTile int) {
	n := perTile * len(f.ids)
	for b.Loop() {
		b.StopTimer()
		f.each(b, perTile)
		c := &counter{Publisher: pub, full: make(chan struct{}, 1)}
		c.until.Store(int64(n))
		br, err := bridge.New(log, c, nil, f.ids, nil)
		require.NoError(b, err)
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		b.StartTimer()
		go func() { ended <- br.Run(ctx) }()
		<-c.full
		b.StopTimer()
		cancel()
		require.NoError(b, <-ended)
		b.StartTimer()
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "batches/s")
}

// BenchmarkMemory compares the bridge, over the back ends in memory, with a publish of the same frames.
func BenchmarkMemory(b *testing.B) {
	for _, tiles := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("publish alone/%d tiles", tiles), func(b *testing.B) {
			broker := memfanout.New()
			f := newFeeder(b, nil, tiles)
			messages := make([]fanout.Message, tiles)
			frames := make([][]byte, tiles)
			for i, id := range f.ids {
				frames[i] = fence.NewEntry(fence.Entry{Tile: id, Kind: fence.KindBatch,
					Position: fence.Position{Epoch: 1, Seq: 1}, Payload: f.payload}).Frame
			}
			n := 0
			for b.Loop() {
				for i, id := range f.ids {
					messages[i] = fanout.Message{Tile: id, Data: frames[i]}
				}
				_, _ = broker.Publish(b.Context(), messages)
				n += tiles
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "batches/s")
		})
		b.Run(fmt.Sprintf("backlog/%d tiles", tiles), func(b *testing.B) {
			store := memfence.New()
			backlog(b, newFeeder(b, store.Commit, tiles), memstream.New(store), memfanout.New(), 10000/tiles)
		})
	}
}

// BenchmarkWake is what a hint costs its caller, one tile a call, while the bridge works them off.
func BenchmarkWake(b *testing.B) {
	ids := randomTiles(10_000, nil)
	r := newRig(b)
	br, _ := r.run(nil, ids...)
	br.Hints(true)
	i := 0
	for b.Loop() {
		br.Wake(ids[i%len(ids)])
		i++
	}
}

// BenchmarkRedis measures the bridge between two Redis clusters.
func BenchmarkRedis(b *testing.B) {
	s := openServers(b)
	for _, tiles := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("backlog/%d tiles", tiles), func(b *testing.B) {
			f := newFeeder(b, s.store.Commit, tiles)
			defer s.remove(b, f.ids)
			backlog(b, f, s.log, s.pub, 10000/tiles)
		})
	}
}

// remove deletes what the tiles left.
func (s *servers) remove(t testing.TB, ids []fence.TileID) {
	ctx := context.WithoutCancel(t.Context())
	pipe := s.coord.Pipeline()
	for _, id := range ids {
		k := fence.KeysOf(id)
		pipe.Unlink(ctx, k.Stream, k.Marks, k.Owner, k.Snapshot, k.Dead)
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
}
