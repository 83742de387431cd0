package tile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// crowded is a game in which each intent takes time and has one event.
type crowded struct {
	large
	each  time.Duration
	event []byte

	most, asked atomic.Int64 // in one call of Resolve, and in all
	kinds       sync.Map     // origins seen, by actor
}

func (c *crowded) Resolve(_ fence.Tick, in []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	c.most.Store(max(c.most.Load(), int64(len(in))))
	c.asked.Add(int64(len(in)))
	time.Sleep(time.Duration(len(in)) * c.each)
	for i := range in {
		c.kinds.Store(in[i].Actor, in[i].Origin)
		outcomes = append(outcomes, stream.Applied)
		if c.event != nil {
			events = append(events, c.event)
		}
	}
	return events, outcomes
}

func (w *world) crowd(rules *crowded, cfg tile.Config) *runner {
	w.t.Helper()
	seams := w.seams()
	p, err := tile.New(testTile, "a:1", seams, rules, &cfg)
	require.NoError(w.t, err)
	return launch(w.t, p, nil)
}

// TestAFloodLeavesRoomForOthers: 1,000 actors send ten times what fits into the ticks. The queue keeps its limit, ticks
// compute about what they commit, the tile is not given up, and an actor that sends little is answered at once.
func TestAFloodLeavesRoomForOthers(t *testing.T) {
	for name, rules := range map[string]*crowded{
		"large events":        {each: 30 * time.Microsecond, event: make([]byte, 1000)},
		"slow rules":          {each: 5 * time.Millisecond},
		"slow and large":      {each: time.Millisecond, event: make([]byte, 4000)},
		"five intents a tick": {each: 100 * time.Millisecond},
	} {
		batch, honest := 100, 10 // intents in 10 ms, and in all
		if rules.each > time.Millisecond {
			batch, honest = 20, 3
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := w.crowd(rules, tile.Config{})
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var answered atomic.Int64
				var flood sync.WaitGroup
				flood.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						in := tile.Intent{Tile: testTile, Actor: fmt.Sprint("h", i%1000)}
						in.Deadline = time.Now().Add(3 * time.Second)
						_ = p.Queue(ctx, in, func(_ tile.Result, err error) {
							if err == nil {
								answered.Add(1)
							}
						})
						if i%batch == batch-1 {
							time.Sleep(10 * time.Millisecond)
						}
					}
				})
				time.Sleep(5 * time.Second)
				slowest := time.Duration(0)
				for i := range honest {
					began := time.Now()
					_, err := p.Submit(ctx, tile.Intent{Tile: testTile, Actor: fmt.Sprint("honest", i)})
					require.NoError(t, err)
					slowest = max(slowest, time.Since(began))
					require.LessOrEqual(t, p.Status().Queued, 4096)
				}
				if rules.each < 100*time.Millisecond {
					assert.Less(t, slowest, 2*time.Second, "of ten times what the tile can do")
				}
				t.Logf("slowest honest answer %v, most in a call %d", slowest, rules.most.Load())
				assert.Equal(t, tile.Serving, p.Status().State)
				assert.LessOrEqual(t, rules.most.Load(), int64(3072))
				stop()
				flood.Wait()
				done := answered.Load()
				require.NoError(t, p.drain())
				assert.Less(t, rules.asked.Load(), 3*done+5000, "no more than in proportion to commits")
			})
		})
	}
}

// TestASizeThatWeChoseIsNotHanging: many cheap intents are followed by as many that take long. That is one late tick,
// and not rules that hang.
func TestASizeThatWeChoseIsNotHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &crowded{}
		p := w.crowd(rules, tile.Config{})
		ask := func(n int) (applied int) {
			answers := make(chan error, n)
			for i := range n {
				in := tile.Intent{Tile: testTile, Actor: fmt.Sprint(i)}
				require.NoError(t, p.Queue(t.Context(), in, func(_ tile.Result, err error) { answers <- err }))
			}
			for range n {
				if <-answers == nil {
					applied++
				}
			}
			return applied
		}
		require.Equal(t, 4096, ask(4096))
		rules.each = 20 * time.Millisecond
		assert.Equal(t, 4096, ask(4096))
		s := p.Status()
		assert.Equal(t, tile.Serving, s.State)
		assert.EqualValues(t, 1, s.Epoch)
		require.NoError(t, p.drain())
	})
}

// TestWhoHasGoneIsNotResolved: intents that wait for a tile that is frozen are dropped with their callers.
func TestWhoHasGoneIsNotResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &crowded{}
		l := &line{w: w}
		p, err := tile.New(testTile, "a:1", l.seams(w.authority), rules, &tile.Config{})
		require.NoError(t, err)
		r := launch(w.t, p, nil)
		say := func(ctx context.Context, in tile.Intent) error {
			_, err := r.Submit(ctx, in)
			return err
		}
		require.NoError(t, say(t.Context(), tile.Intent{Tile: testTile}))
		l.set(func(l *line) { l.store = true })
		frozen := make(chan error, 1)
		go func() { frozen <- say(t.Context(), tile.Intent{Tile: testTile}) }()
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answers := make(chan error, 2)
		answer := func(_ tile.Result, err error) { answers <- err }
		require.NoError(t, r.Queue(short, tile.Intent{Tile: testTile}, answer))
		late := tile.Intent{Tile: testTile, Deadline: time.Now().Add(time.Second)}
		require.NoError(t, r.Queue(t.Context(), late, answer))
		for range 2 {
			require.ErrorIs(t, <-answers, context.DeadlineExceeded, "while the tile is frozen")
		}
		l.set(func(l *line) { l.store = false })
		require.NoError(t, <-frozen)
		require.NoError(t, say(t.Context(), tile.Intent{Tile: testTile}))
		assert.EqualValues(t, 3, rules.asked.Load())
		require.NoError(t, r.drain())
	})
}

// TestActorsShareTheMemoryOfOutcomes: 40 actors send as many actions as they can. Each is stopped before the memory is
// full, and others' actions are decided, those of the game's servers too.
func TestActorsShareTheMemoryOfOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.startLarge(t, fence.MaxSnapshot-fence.MaxPayload-1_200_000, tile.Config{SnapshotEvery: 200})
		time.Sleep(101 * time.Second) // it knows what the game's state leaves of a snapshot: 16,000 actions
		var refused, decided atomic.Int64
		for i := range 17 * 1024 {
			if i%1000 == 999 {
				time.Sleep(500 * time.Millisecond)
			}
			in := tile.Intent{Tile: testTile, ActionID: fmt.Sprintf("%064d", i), Actor: fmt.Sprint("h", i%40)}
			err := p.Queue(t.Context(), in, func(_ tile.Result, err error) {
				if errors.Is(err, tile.ErrOverloaded) {
					refused.Add(1)
				} else if err == nil {
					decided.Add(1)
				}
			})
			require.NoError(t, err)
		}
		time.Sleep(10 * time.Second)
		assert.Greater(t, refused.Load(), int64(2_500))
		assert.Greater(t, decided.Load(), int64(10_000), "little of it is left unused")
		for i := range 100 {
			honest := tile.Intent{Tile: testTile, ActionID: fmt.Sprint("honest", i), Actor: "ann"}
			_, err := p.Submit(t.Context(), honest)
			require.NoError(t, err)
		}
		_, err := p.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: "more", Actor: "h1"})
		require.ErrorIs(t, err, tile.ErrOverloaded)
		server := tile.Intent{Tile: testTile, ActionID: "s", Actor: "h1", Origin: tile.OriginServer}
		_, err = p.Submit(t.Context(), server)
		require.NoError(t, err)
	})
}
