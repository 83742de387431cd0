package tiered_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

// TestMoveThereAndBack: a tile moves to the broker while it is published, and back when its watchers have gone, and no
// watcher misses a frame, whichever tier is faster.
func TestMoveThereAndBack(t *testing.T) {
	for name, lag := range map[string]struct{ ordinary, broker time.Duration }{
		"alike":         {},
		"broker slow":   {0, 200 * time.Millisecond},
		"ordinary slow": {200 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				bridge := w.process(settings())
				var watchers []*watcher
				for range 4 {
					relay := w.process(settings())
					relay.ordinary.lag, relay.broker.lag = lag.ordinary, lag.broker
					watchers = append(watchers, relay.watch())
				}
				bridge.tick(5 * time.Second)
				require.Equal(t, tiered.Broker, bridge.state())
				before := bridge.ordinary.calls
				bridge.tick(5 * time.Second)
				require.Equal(t, before, bridge.ordinary.calls, "the ordinary tier is relieved")
				time.Sleep(time.Second)
				for _, in := range watchers {
					in.requireWhole()
				}
				for _, in := range watchers[1:] {
					in.stop()
				}
				// One watcher of two is half of the bound: hysteresis keeps the tile there.
				bridge.tick(10 * time.Second)
				require.Equal(t, tiered.Broker, bridge.state())
				watchers[0].requireWholeAfter(lag.ordinary + lag.broker)
				watchers[0].stop()
				bridge.tick(15 * time.Second)
				require.Equal(t, []tiered.State{tiered.Both, tiered.Broker, tiered.Both, tiered.Ordinary},
					bridge.history())
			})
		})
	}
}

func (in *watcher) requireWholeAfter(lag time.Duration) {
	in.w.t.Helper()
	time.Sleep(lag + time.Second)
	in.requireWhole()
}

// TestBackWhileWatched: bytes move a tile there and, when they are few, back, under a watcher that misses nothing.
func TestBackWhileWatched(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cfg := settings()
		cfg.Subscribers, cfg.Bytes = 100, 2000 // a frame of some 140 bytes each 20 ms is 7,000 a second
		bridge, relay := w.process(cfg), w.process(cfg)
		relay.broker.lag = 150 * time.Millisecond
		in := relay.watch()
		bridge.tick(6 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		for range 40 { // 2 a second
			bridge.send(w.commit(1))
			time.Sleep(500 * time.Millisecond)
		}
		require.Equal(t, tiered.Ordinary, bridge.state())
		in.requireWholeAfter(0)
		bridge.tick(6 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		in.requireWholeAfter(0)
	})
}

// TestJoinDuringMove: watchers join at every moment of a move, also with a broker that is slow to take them.
func TestJoinDuringMove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge := w.process(settings())
		w.process(settings()).watch()
		w.process(settings()).watch()
		var watchers []*watcher
		for i := range 60 {
			bridge.tick(100 * time.Millisecond)
			relay := w.process(settings())
			relay.broker.slow = time.Duration(i%4) * 200 * time.Millisecond
			relay.broker.lag = time.Duration(i%3) * 60 * time.Millisecond
			go func() {
				in := relay.watch()
				w.mu.Lock()
				defer w.mu.Unlock()
				watchers = append(watchers, in)
			}()
		}
		bridge.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, watchers, 60)
		for _, in := range watchers {
			in.requireWhole()
		}
	})
}

// TestRelayWithoutBroker: a relay that cannot reach the broker keeps the tile on both tiers, and misses nothing; when
// it can, the move is completed.
func TestRelayWithoutBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge, well, lame := w.process(settings()), w.process(settings()), w.process(settings())
		lame.broker.down = true
		a, b := well.watch(), lame.watch()
		bridge.tick(20 * time.Second)
		require.Equal(t, tiered.Both, bridge.state())
		require.Equal(t, 1, lame.Stats().Joining)
		lame.broker.set(func(p *path) { p.down = false })
		bridge.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		require.Zero(t, lame.Stats().Joining)
		a.requireWholeAfter(0)
		b.requireWhole()
	})
}

// TestRelayRefused: a relay that may send presence on the broker and may not subscribe there says nothing.
func TestRelayRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge, well, lame := w.process(settings()), w.process(settings()), w.process(settings())
		lame.broker.deny = true
		a, b := well.watch(), lame.watch()
		bridge.tick(10 * time.Second)
		require.Equal(t, tiered.Both, bridge.state())
		a.requireWholeAfter(0)
		b.requireWhole()
	})
}

// TestRelayLosesBroker: within four intervals the ordinary tier carries the tile again; what was lost until then is one
// gap.
func TestRelayLosesBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge, well, lame := w.process(settings()), w.process(settings()), w.process(settings())
		a, b := well.watch(), lame.watch()
		bridge.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		lame.broker.set(func(p *path) { p.down = true })
		bridge.tick(4 * interval)
		require.Equal(t, tiered.Both, bridge.state())
		bridge.tick(5 * time.Second)
		a.requireWholeAfter(0)
		at, gaps, _ := b.result()
		require.Equal(t, w.head(), at)
		require.Equal(t, 1, gaps)
		require.Equal(t, uint64(1), bridge.Stats().FellBack)
		lame.broker.set(func(p *path) { p.down = false })
		bridge.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		_, gaps, _ = b.result()
		require.Equal(t, 1, gaps)
	})
}

// TestPublisherLosesBroker: no message is lost, since each goes by the ordinary tier in the same call; and a broker
// that is back carries everything for the overlap before it is relied on.
func TestPublisherLosesBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge := w.process(settings())
		a, b := w.process(settings()).watch(), w.process(settings()).watch()
		bridge.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		bridge.broker.set(func(p *path) { p.down = true })
		bridge.send(w.commit(5))
		require.Equal(t, tiered.Both, bridge.state())
		require.Equal(t, uint64(5), bridge.Stats().Rescued)
		calls := bridge.broker.calls
		bridge.tick(time.Second)
		require.Equal(t, calls, bridge.broker.calls, "a broker that has failed is left alone")
		bridge.tick(10 * time.Second)
		bridge.broker.set(func(p *path) { p.down = false })
		bridge.tick(2 * time.Second)
		require.Equal(t, tiered.Both, bridge.state())
		bridge.tick(4 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		a.requireWholeAfter(0)
		b.requireWhole()
	})
}

// TestOrdinaryTierDown: a tile on the broker goes on; one in a move is completed there; one on the ordinary tier waits.
func TestOrdinaryTierDown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge := w.process(settings())
		relays := []*process{w.process(settings()), w.process(settings())}
		a, b := relays[0].watch(), relays[1].watch()
		all := func(down bool) {
			for _, p := range append(relays, bridge) {
				p.ordinary.set(func(p *path) { p.down = down })
			}
		}
		bridge.tick(1500 * time.Millisecond)
		require.Equal(t, tiered.Both, bridge.state())
		all(true) // during the move
		bridge.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		bridge.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		require.Positive(t, bridge.Stats().Uncounted)
		all(false)
		bridge.tick(2 * time.Second)
		a.requireWholeAfter(0)
		b.requireWhole()

		// A tile of the ordinary tier is not handed over, and nothing of it is lost.
		fresh := w.process(settings())
		fresh.ordinary.set(func(p *path) { p.down = true })
		sent, err := fresh.Publish(t.Context(), w.commit(1))
		require.Zero(t, sent)
		require.ErrorIs(t, err, errDown)
	})
}

// TestManyBridges: bridges with different views publish the tile at the same time, one is replaced by another that
// knows nothing, and every watcher gets everything.
func TestManyBridges(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		one, two := w.process(settings()), w.process(settings())
		relay := w.process(settings())
		relay.broker.lag = 100 * time.Millisecond
		a, b := relay.watch(), w.process(settings()).watch()
		both := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				m := w.commit(1)
				one.send(m)
				two.send(m)
				time.Sleep(tickEvery)
			}
		}
		one.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, one.state())
		two.tick(time.Second) // took over, and begins on the ordinary tier
		both(10 * time.Second)
		require.Equal(t, tiered.Broker, two.state())
		one.Close()
		two.tick(5 * time.Second)
		three := w.process(settings())
		three.tick(10 * time.Second)
		require.Equal(t, tiered.Broker, three.state())
		a.requireWholeAfter(0)
		b.requireWhole()
	})
}

// TestIdlePublisher: what a publisher knew before a pause is not relied on: a relay may have come without the broker.
func TestIdlePublisher(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge := w.process(settings())
		a, b := w.process(settings()).watch(), w.process(settings()).watch()
		bridge.tick(5 * time.Second)
		require.Equal(t, tiered.Broker, bridge.state())
		time.Sleep(20 * time.Second)
		lame := w.process(settings())
		lame.broker.down = true
		c := lame.watch()
		bridge.tick(3 * time.Second)
		for _, in := range []*watcher{a, b, c} {
			in.requireWholeAfter(0)
		}
	})
}

// TestSteadyStateHoldsNothing: a loss on a tile that one tier carries is delivered as a gap at once, and is not held.
func TestSteadyStateHoldsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge := w.process(settings())
		in := w.process(settings()).watch()
		bridge.tick(time.Second)
		w.commit(1) // never sent
		bridge.send(w.commit(1))
		synctest.Wait()
		_, gaps, _ := in.result()
		require.Equal(t, 1, gaps)
	})
}
