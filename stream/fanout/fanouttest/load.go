package fanouttest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
)

// slowSubscriber: a subscriber that does not keep up loses messages, which are counted, and delays no other.
func slowSubscriber(t *testing.T, b *bench) {
	const total = 200 * burst // more than any sensible buffer
	tile, other := b.tile(), b.tile()
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	slow := &inbox{t: t, changed: make(chan struct{}, 1)}
	stop := b.subscribeFunc(tile, func(data []byte) {
		<-gate
		slow.deliver(data)
	})
	b.t.Cleanup(release) // before stop, which waits for a delivery that is running
	fast, elsewhere := b.subscribe(tile), b.subscribe(other)
	payload := fill(1024, 0)
	for first := 0; first < total; first += burst {
		var messages []fanout.Message
		for n := first; n < first+burst; n++ {
			data := append(number(n), payload...)
			messages = append(messages, fanout.Message{Tile: tile, Data: data}, fanout.Message{Tile: other, Data: data})
		}
		b.publish(messages...)
		fast.await(first + burst)
		elsewhere.await(first + burst)
	}
	fast.awaitNumbers(total)
	elsewhere.awaitNumbers(total)

	require.Positive(t, b.Dropped(), "a buffer that holds %d messages is not bounded", total)
	release()
	waittest.Until(t, func() bool { return len(slow.all())+int(b.Dropped()) == total }, patience, time.Millisecond,
		"every message is either delivered or counted as dropped")
	kept := slow.all()
	last := -1
	for _, data := range kept {
		require.Greater(t, numberOf(data), last, "order")
		last = numberOf(data)
	}
	b.numbered(tile, total, total+1) // it has caught up, and goes on
	require.Equal(t, total, numberOf(slow.await(len(kept) + 1)[len(kept)]))
	stop()
}

// concurrent: publishers, subscriptions and stops at once, over tiles they share.
func concurrent(t *testing.T, b *bench) {
	tiles := []fence.TileID{b.tile(), b.tile(), b.tile(), b.tile()}
	var g errgroup.Group
	for p := range 4 {
		g.Go(func() error {
			for n := range 100 {
				data := append(number(n), byte(p))
				m := []fanout.Message{{Tile: tiles[p], Data: data}, {Tile: tiles[(p+1)%4], Data: data}}
				if sent, err := b.Publisher.Publish(t.Context(), m); err != nil || sent != 2 {
					return fmt.Errorf("sent %d: %w", sent, err)
				}
			}
			return nil
		})
	}
	for s := range 8 {
		g.Go(func() error {
			for i := range 20 {
				last := map[byte]int{} // by publisher: its messages on a channel arrive in order
				var disorder error
				stop, err := b.Subscriber.Subscribe(t.Context(), tiles[(s+i)%4], func(data []byte) {
					n, from := numberOf(data), data[8]
					if before, seen := last[from]; seen && n <= before && disorder == nil {
						disorder = fmt.Errorf("publisher %d: %d after %d", from, n, before)
					}
					last[from] = n
				})
				if err != nil {
					return err
				}
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				stop()
				if disorder != nil {
					return disorder
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

// random compares random subscribing, stopping and publishing with a model of it: each subscription to a tile gets what
// is published on it while it lasts, in order, whatever the others do and however many tiles a call carries.
func random(t *testing.T, b *bench) {
	rng := seed.Rand(t)
	type listener struct {
		in    *inbox
		since int // messages before this one were under way when it subscribed, and do not count
		want  []int
	}
	tiles := make([]fence.TileID, 6)
	for i := range tiles {
		tiles[i] = fence.TileID(rand.Uint64() | 1) // not from the seed: servers are shared
	}
	listeners := make([][]*listener, len(tiles))
	next := 0
	for range 150 {
		i := rng.IntN(len(tiles))
		switch op := rng.IntN(10); {
		case op < 3:
			l := &listener{since: next, in: &inbox{t: t, changed: make(chan struct{}, 1)}}
			l.in.stop = b.subscribeFunc(tiles[i], func(data []byte) {
				if numberOf(data) >= l.since {
					l.in.deliver(data)
				}
			})
			listeners[i] = append(listeners[i], l)
		case op < 5 && len(listeners[i]) > 0:
			k := rng.IntN(len(listeners[i]))
			listeners[i][k].in.stop()
			listeners[i] = append(listeners[i][:k], listeners[i][k+1:]...)
		default:
			var messages []fanout.Message
			for range 1 + rng.IntN(burst/2) {
				j := rng.IntN(len(tiles))
				messages = append(messages, fanout.Message{Tile: tiles[j], Data: number(next)})
				for _, l := range listeners[j] {
					l.want = append(l.want, next)
				}
				next++
			}
			b.publish(messages...)
			for _, on := range listeners {
				for _, l := range on {
					for k, data := range l.in.await(len(l.want)) {
						require.Equal(t, l.want[k], numberOf(data))
					}
				}
			}
		}
	}
}
