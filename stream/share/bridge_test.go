package share_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
)

// mortal is a bridge process's way to its log and publisher. After its death nothing goes through any more:
// nothing is published, no mark is moved.
type mortal struct {
	stream.Log
	fanout.Publisher
	dead atomic.Bool
}

func (m *mortal) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	if m.dead.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return m.Log.Read(ctx, cursors)
}

func (m *mortal) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	if m.dead.Load() {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	return m.Publisher.Publish(ctx, messages)
}

func (m *mortal) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	if m.dead.Load() {
		<-ctx.Done()
		return slices.Repeat([]error{context.Cause(ctx)}, len(writes))
	}
	return m.Log.Mark(ctx, writes)
}

// bridgeProcess is a bridge and its share of the tiles.
type bridgeProcess struct {
	life  *mortal
	link  *link
	share *share.Share
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// plant is a world of tiles that are committed to, with bridges that share them.
type plant struct {
	t      *testing.T
	tiles  []fence.TileID
	store  *memfence.Store
	log    *memstream.Log // with the marks, which are the one store's
	broker *memfanout.Broker
	list   *share.Memory
	heads  map[fence.TileID]fence.Position

	mu       sync.Mutex
	received map[fence.TileID][]fence.Seq
}

func (p *plant) startBridge(tiles share.Lister) *bridgeProcess {
	b := &bridgeProcess{life: &mortal{Log: p.log, Publisher: p.broker}, link: &link{Members: p.list}}
	forward, err := bridge.New(b.life, b.life, p.broker, nil, nil)
	require.NoError(p.t, err)
	b.share, err = share.New(b.link, "bridge", tiles, forward, &share.Config{Hints: p.broker})
	require.NoError(p.t, err)
	var ctx context.Context
	ctx, b.stop = context.WithCancel(p.t.Context())
	run, stopBridge := context.WithCancel(context.WithoutCancel(ctx))
	b.ended.Go(func() { _ = forward.Run(run) })
	b.ended.Go(func() {
		_ = b.share.Run(ctx)
		stopBridge()
	})
	return b
}

// kill is SIGKILL: nothing is cleaned up that anybody could see.
func (b *bridgeProcess) kill() {
	b.life.dead.Store(true)
	b.link.set(true, nil)
	b.stop()
}

// commit makes one batch on every tile, and hints it.
func (p *plant) commit(tick int, hinter *fanout.Hinter) {
	for _, tile := range p.tiles {
		payload, _, err := (&stream.Batch{Events: [][]byte{[]byte(fmt.Sprint("event ", tick))}}).Encode()
		require.NoError(p.t, err)
		c := fence.Commit{Tile: tile, Epoch: 1, Contact: "owner:1", Prev: p.heads[tile], Tick: fence.Tick(tick),
			Payload: payload, Install: tick == 1}
		result, err := p.store.Commit(p.t.Context(), c)
		require.NoError(p.t, err)
		p.heads[tile] = result.Position
		hinter.Hint(tile)
	}
}

func (p *plant) subscribe() {
	for _, tile := range p.tiles {
		stop, err := p.broker.Subscribe(p.t.Context(), tile, func(data []byte) {
			f, err := fence.DecodeEntry(data)
			require.NoError(p.t, err)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.received[tile] = append(p.received[tile], f.Seq)
		})
		require.NoError(p.t, err)
		p.t.Cleanup(stop)
	}
}

// requireAll fails unless each tile's subscriber got every batch, each for the first time in order.
func (p *plant) requireAll(ticks int) (repeated int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, tile := range p.tiles {
		next := fence.Seq(1)
		for _, seq := range p.received[tile] {
			require.LessOrEqual(p.t, seq, next, "tile %s: batch %d was skipped", tile, next)
			if seq == next {
				next++
			} else {
				repeated++
			}
		}
		require.EqualValues(p.t, ticks+1, next, "tile %s", tile)
	}
	return repeated
}

// TestBridgesShareTiles: two bridges share tiles that are committed to all the time; one is killed without
// cleaning up, a third comes, one leaves in good order. Every batch reaches its subscriber, in order.
func TestBridgesShareTiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plant{t: t, store: memfence.New(), broker: memfanout.New(), list: share.NewMemory(),
			heads: map[fence.TileID]fence.Position{}, received: map[fence.TileID][]fence.Seq{}}
		p.log = memstream.New(p.store)
		for i := range 24 {
			p.tiles = append(p.tiles, fence.TileID(0x85283083fffffff+i<<30))
		}
		list := share.Fixed(p.tiles[:20]) // the last four are discovered by hints
		hinter, err := fanout.NewHinter(p.broker, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		hinting := make(chan error, 1)
		go func() { hinting <- hinter.Run(ctx) }()
		p.subscribe()

		one, two := p.startBridge(list), p.startBridge(list)
		time.Sleep(2 * ttl)
		tick := 0
		during := func(d time.Duration) {
			for range d / (100 * time.Millisecond) {
				tick++
				p.commit(tick, hinter)
				time.Sleep(100 * time.Millisecond)
			}
		}
		during(5 * time.Second)
		had := one.share.Stats().Tiles
		require.Positive(t, had)
		require.Equal(t, 24-had, two.share.Stats().Tiles)
		require.Zero(t, p.requireAll(tick), "no member publishes what is another's")

		one.kill()
		during(10 * time.Second)
		require.Equal(t, 24, two.share.Stats().Tiles)
		afterKill := p.requireAll(tick)
		require.LessOrEqual(t, afterKill, had*20, "what comes twice was published since the last marks")

		three := p.startBridge(list)
		during(10 * time.Second)
		require.Equal(t, 24, two.share.Stats().Tiles+three.share.Stats().Tiles)
		two.stop()
		during(10 * time.Second)
		require.Equal(t, 24, three.share.Stats().Tiles)
		t.Logf("%d of %d batches came twice", p.requireAll(tick), tick*len(p.tiles))

		three.stop()
		cancel()
		require.NoError(t, <-hinting)
		for _, b := range []*bridgeProcess{one, two, three} {
			b.ended.Wait()
		}
	})
}
