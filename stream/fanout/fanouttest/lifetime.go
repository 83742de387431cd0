package fanouttest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

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
