package fanouttest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

func deliversUnaltered(t *testing.T, b *bench) {
	tile := b.tile()
	in := b.subscribe(tile)
	sizes := []int{0, 1, 5, 600, 4096, 65536, 1<<20 + 200}
	var messages []fanout.Message
	for i, size := range sizes {
		messages = append(messages, fanout.Message{Tile: tile, Data: fill(size, byte(i))})
	}
	b.publish(messages...)
	for i, data := range in.await(len(sizes)) {
		require.Len(t, data, sizes[i], describe(i))
		require.True(t, string(fill(sizes[i], byte(i))) == string(data), describe(i))
	}
}

func order(_ *testing.T, b *bench) {
	tile := b.tile()
	in := b.subscribe(tile)
	const rounds = 30
	for i := range rounds {
		// One by one, in pairs, and in bursts: all go the same way.
		switch first := i * burst; i % 3 {
		case 0:
			b.numbered(tile, first, first+burst)
		case 1:
			for n := first; n < first+burst; n += 2 {
				b.numbered(tile, n, n+2)
			}
		default:
			for n := first; n < first+burst; n++ {
				b.numbered(tile, n, n+1)
			}
		}
		in.await((i + 1) * burst)
	}
	in.awaitNumbers(rounds * burst)
}

// subscribeThenPublish: once Subscribe has returned, nothing published is missed.
func subscribeThenPublish(_ *testing.T, b *bench) {
	for range 50 {
		tile := b.tile()
		in := b.subscribe(tile)
		b.numbered(tile, 0, 3)
		in.awaitNumbers(3)
		in.stop()
	}
}

// unheard: a message without subscribers is handed over.
func unheard(t *testing.T, b *bench) {
	tile := b.tile()
	b.numbered(tile, 0, burst)
	sent, err := b.Publisher.Publish(t.Context(), nil)
	require.NoError(t, err)
	require.Zero(t, sent)
	in := b.subscribe(tile)
	b.numbered(tile, 0, 1)
	in.awaitNumbers(1) // and what came before is not kept for later subscribers
}

func arguments(t *testing.T, b *bench) {
	sent, err := b.Publisher.Publish(t.Context(), []fanout.Message{{Tile: b.tile()}, {}})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	require.Zero(t, sent, "a malformed call sends nothing")
	stop, err := b.Subscriber.Subscribe(t.Context(), 0, func([]byte) {})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	require.Nil(t, stop)
	stop, err = b.Subscriber.Subscribe(t.Context(), b.tile(), nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	require.Nil(t, stop)
}

func endedContext(t *testing.T, b *bench) {
	tile := b.tile()
	in := b.subscribe(tile)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sent, err := b.Publisher.Publish(ctx, []fanout.Message{{Tile: tile, Data: []byte("no")}})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, sent)
	stop, err := b.Subscriber.Subscribe(ctx, tile, func([]byte) {})
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, stop)
	b.numbered(tile, 0, 1)
	in.awaitNumbers(1)
}

// subscriptionOutlivesContext: the context bounds the call of Subscribe, not the subscription.
func subscriptionOutlivesContext(t *testing.T, b *bench) {
	tile := b.tile()
	in := &inbox{t: t, changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	stop, err := b.Subscriber.Subscribe(ctx, tile, in.deliver)
	require.NoError(t, err)
	t.Cleanup(stop)
	cancel()
	b.numbered(tile, 0, burst)
	in.awaitNumbers(burst)
}

func stopIsFinal(t *testing.T, b *bench) {
	for range 20 {
		tile := b.tile()
		var stopped, late atomic.Bool
		stop := b.subscribeFunc(tile, func([]byte) {
			if stopped.Load() {
				late.Store(true)
			}
		})
		b.numbered(tile, 0, burst)
		stop()
		stopped.Store(true)
		b.numbered(tile, 0, burst)
		stop()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(stop)
		}
		wg.Wait()
		require.False(t, late.Load(), "delivered after stop")
	}
}

func stopWaitsForDeliver(t *testing.T, b *bench) {
	tile := b.tile()
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	stop := b.subscribeFunc(tile, func([]byte) {
		once.Do(func() { close(entered) })
		<-leave
	})
	b.numbered(tile, 0, 2)
	<-entered
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Error("stop returned while deliver was running")
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	<-stopped
}

// resubscribe: stopping and subscribing in quick succession leaves the last word in force.
func resubscribe(_ *testing.T, b *bench) {
	tile := b.tile()
	lasting := b.subscribe(b.tile()) // keeps a shared connection open, where there is one
	defer lasting.stop()
	for range 50 {
		in := b.subscribe(tile)
		b.numbered(tile, 0, 2)
		in.awaitNumbers(2)
		in.stop()
	}
}

func manyTiles(t *testing.T, b *bench) {
	const tiles = 500
	ids := make([]fence.TileID, tiles)
	inboxes := make([]*inbox, tiles)
	var g errgroup.Group
	g.SetLimit(32)
	for i := range tiles {
		ids[i] = b.tile()
		inboxes[i] = &inbox{t: t, changed: make(chan struct{}, 1)}
		g.Go(func() error {
			stop, err := b.Subscriber.Subscribe(t.Context(), ids[i], inboxes[i].deliver)
			if err == nil {
				t.Cleanup(stop)
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	var messages []fanout.Message
	for n := range 3 {
		for _, tile := range ids {
			messages = append(messages, fanout.Message{Tile: tile, Data: number(n)})
		}
	}
	b.publish(messages...)
	for _, in := range inboxes {
		in.awaitNumbers(3)
	}
}
