package tiered_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

// TestRandomMoves: watchers come and go, so that the tile moves up and down at random, with random delays of both tiers
// and bursts of frames, and a second bridge now and then. No watcher misses a frame.
func TestRandomMoves(t *testing.T) {
	for range 5 {
		runRandom(t, false)
	}
}

// TestRandomFaults: the same while tiers go down and come back, for a bridge or for a relay. Frames may be missed then;
// but each watcher ends where the history does, and once all tiers are back nothing is missed.
func TestRandomFaults(t *testing.T) {
	for range 5 {
		runRandom(t, true)
	}
}

func runRandom(t *testing.T, faults bool) {
	rng := seed.Rand(t)
	inBubble(t, func(t *testing.T, w *world) {
		cfg := settings().With(tiered.Tuning{Interval: interval, Cooldown: time.Second})
		bridges := []*process{w.process(cfg), w.process(cfg)}
		bridge := bridges[0]
		var relays []*process
		watching := map[*process]*watcher{}
		for range 5 {
			p := w.process(cfg)
			p.ordinary.lag = time.Duration(rng.IntN(100)) * time.Millisecond
			p.broker.lag = time.Duration(rng.IntN(100)) * time.Millisecond
			relays = append(relays, p)
		}
		var wg sync.WaitGroup
		moves := 0
		for range 120 {
			p := relays[rng.IntN(len(relays))]
			switch op := rng.IntN(12); {
			case op < 3 && watching[p] == nil && (!faults || !isDown(p.ordinary)):
				watching[p] = p.watch()
			case op < 5 && watching[p] != nil:
				if !faults {
					watching[p].requireWholeAfter(0)
				}
				watching[p].stop()
				delete(watching, p)
			case op == 5:
				bridge = bridges[rng.IntN(2)]
				time.Sleep(200 * time.Millisecond) // no bridge takes a tile sooner
			case op == 6 && faults:
				victim := append(relays, bridges...)[rng.IntN(7)]
				way := []*path{victim.ordinary, victim.broker}[rng.IntN(2)]
				way.set(func(p *path) { p.down = true })
				back := time.Duration(rng.IntN(5000)) * time.Millisecond
				wg.Go(func() {
					time.Sleep(back)
					way.set(func(p *path) { p.down = false })
				})
			}
			switch rng.IntN(4) {
			case 0:
				bridge.send(w.commit(1 + rng.IntN(40)))
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			default:
				bridge.tick(time.Duration(rng.IntN(1500)) * time.Millisecond)
			}
		}
		wg.Wait()
		bridge.tick(15 * time.Second) // all is well again
		time.Sleep(time.Second)
		gaps := map[*watcher]int{}
		for _, in := range watching {
			_, gaps[in], _ = in.result()
		}
		bridge.tick(5 * time.Second)
		for _, in := range watching {
			time.Sleep(time.Second)
			at, now, _ := in.result()
			require.Equal(t, w.head(), at)
			require.Equal(t, gaps[in], now, "a gap without a fault")
			if !faults {
				require.Zero(t, now, "a gap without a fault")
			}
		}
		for _, b := range bridges {
			moves += len(b.history()) // checks them too
		}
		require.Greater(t, moves, 5, "the tile has to move for this to be a test")
		for _, in := range watching {
			in.stop()
		}
		for _, p := range append(relays, bridges...) {
			p.Close()
		}
	})
}

func isDown(p *path) bool {
	down, _, _ := p.state()
	return down
}
