package tile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/internal/ledgertest"
)

const testTile fence.TileID = 0x85283083fffffff

// world is a set of embedded back ends and the processors running on them.
type world struct {
	t         *testing.T
	store     *memfence.Store
	log       *memstream.Log
	authority *current
	more      tile.Seams // Checkpoint, Journal and Handover of the processors that begin from now on
}

// current is an authority that a test replaces while no processor uses it.
type current struct{ fence.Authority }

// with is the world for processors that have more seams.
func (w *world) with(more tile.Seams) *world {
	c := *w
	c.more = more
	return &c
}

// seams are the back ends themselves.
func (w *world) seams() tile.Seams {
	s := w.more
	s.Authority, s.Store, s.Log = w.authority, w.store, w.log
	return s
}

func newWorld(t *testing.T) *world {
	s := memfence.New()
	return &world{t: t, store: s, log: memstream.New(s), authority: &current{memfence.NewAuthority()}}
}

// runner is one processor under Run.
type runner struct {
	*tile.TileProcessor
	rules *ledgerRules
	stop  context.CancelFunc
	err   error
	done  chan struct{}
}

func (w *world) start(contact string, cfg tile.Config) *runner {
	w.t.Helper()
	return startOn(w.t, w.seams(), contact, cfg)
}

// startOn runs a processor on other seams than a world's.
func startOn(t *testing.T, seams tile.Seams, contact string, cfg tile.Config) *runner {
	t.Helper()
	rules := &ledgerRules{}
	p, err := tile.New(testTile, contact, seams, rules, &cfg)
	require.NoError(t, err)
	return launch(t, p, rules)
}

// launch runs a processor.
func launch(t *testing.T, p *tile.TileProcessor, rules *ledgerRules) *runner {
	r := &runner{TileProcessor: p, rules: rules, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.err = p.Run(ctx)
	}()
	return r
}

func (r *runner) drain() error {
	r.stop()
	<-r.done
	return r.err
}

func (r *runner) say(t *testing.T, action, word string) stream.Outcome {
	t.Helper()
	o, err := r.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: action, Body: []byte(word)})
	require.NoError(t, err)
	return o.Outcome
}

// history folds what the store has, as the next owner would.
func (w *world) history() []string { return w.historyOf(testTile) }

func (w *world) historyOf(id fence.TileID) []string {
	w.t.Helper()
	words, err := ledgertest.Committed(context.Background(), w.log, id)
	require.NoError(w.t, err)
	return words
}

func TestServesFromGenesisAndDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("a:1", tile.Config{})
		assert.Equal(t, stream.Applied, p.say(t, "", "hello"))
		assert.Equal(t, stream.Fizzled, p.say(t, "", "no"))
		assert.Equal(t, tile.Serving, p.Status().State)
		assert.Equal(t, fence.Epoch(1), p.Status().Epoch)
		require.NoError(t, p.drain())
		assert.Equal(t, tile.Stopped, p.Status().State)
		assert.Equal(t, []string{"hello"}, w.history())

		g, err := w.authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		assert.False(t, g.Held(), "drained means released")
		_, err = p.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("late")})
		assert.ErrorIs(t, err, tile.ErrRedirect)
		assert.ErrorIs(t, p.Run(t.Context()), fence.ErrAlreadyRun)
	})
}

func TestIntentsQueuedAtTheEndAreResolvedByTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("a:1", tile.Config{})
		p.say(t, "", "one")
		out := make(chan stream.Outcome, 1)
		go func() {
			o, _ := p.Submit(context.Background(), tile.Intent{Tile: testTile, Body: []byte("two")})
			out <- o.Outcome
		}()
		synctest.Wait()
		require.NoError(t, p.drain())
		assert.Equal(t, stream.Applied, <-out)
		assert.Equal(t, []string{"one", "two"}, w.history())
	})
}

func TestQuietTileKeepsItsOwnerHashAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("a:1", tile.Config{})
		p.say(t, "", "x")
		time.Sleep(10 * time.Minute)
		o, err := w.store.Owner(t.Context(), testTile)
		require.NoError(t, err)
		assert.True(t, o.Present())
		assert.Greater(t, o.Tick, fence.Tick(1000))
		assert.Equal(t, p.Status().Position, o.Position)
		require.NoError(t, p.drain())
	})
}

func TestTakeoverRedirectsAndContinuesTheSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.start("a:1", tile.Config{})
		a.say(t, "", "one")
		before := a.Status().Position

		refusedB := w.start("b:1", tile.Config{})
		<-refusedB.done
		var lost *fence.LostError
		require.ErrorAs(t, refusedB.err, &lost, "without TakeOver a held tile is left alone")
		assert.Equal(t, "a:1", lost.Current.Contact)

		b := w.start("b:1", tile.Config{TakeOver: true})
		b.say(t, "", "two")
		<-a.done
		var sup *tile.SupersededError
		require.ErrorAs(t, a.err, &sup)
		assert.Equal(t, "b:1", sup.Successor.Contact)
		assert.Equal(t, fence.Epoch(2), sup.Successor.Epoch)
		assert.Equal(t, tile.StoodDown, a.Status().State)
		<-a.Superseded()
		_, err := a.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("three")})
		var redirect *tile.RedirectError
		require.ErrorAs(t, err, &redirect)
		assert.Equal(t, "b:1", redirect.Contact)
		assert.Greater(t, b.Status().Position.Seq, before.Seq)
		require.NoError(t, b.drain())
		assert.Equal(t, []string{"one", "two"}, w.history())
	})
}

func TestActionHasOneOutcomeAcrossRetriesTakeoverAndSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.start("a:1", tile.Config{SnapshotEvery: 5})
		assert.Equal(t, stream.Applied, a.say(t, "act-1", "spend"))
		assert.Equal(t, stream.Fizzled, a.say(t, "act-2", "no"))
		assert.Equal(t, stream.Applied, a.say(t, "act-1", "spend"))
		b := w.start("b:1", tile.Config{TakeOver: true, SnapshotEvery: 5})
		assert.Equal(t, stream.Applied, b.say(t, "act-1", "spend"), "from the replayed stream")
		time.Sleep(10 * time.Second) // snapshots are taken and the stream is trimmed
		c := w.start("c:1", tile.Config{TakeOver: true})
		assert.Equal(t, stream.Applied, c.say(t, "act-1", "spend"), "from the snapshot")
		assert.Equal(t, stream.Fizzled, c.say(t, "act-2", "anything"))

		outcomes := make(chan stream.Outcome, 8)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { outcomes <- c.say(t, "act-3", "together") })
		}
		wg.Wait()
		for range 8 {
			assert.Equal(t, stream.Applied, <-outcomes)
		}
		require.NoError(t, c.drain())
		assert.Equal(t, []string{"spend", "together"}, w.history())
		<-a.done
		<-b.done
	})
}

func TestRestartUnderTheSameAddressTakesItsTileBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, err := w.authority.Claim(t.Context(), fence.Claim{Tile: testTile, Contact: "a:1", ID: fence.NewClaimID()})
		require.NoError(t, err) // a predecessor that crashed
		a := w.start("a:1", tile.Config{})
		a.say(t, "", "back")
		assert.Equal(t, fence.Epoch(2), a.Status().Epoch)
		require.NoError(t, a.drain())
	})
}

func TestSnapshotsTrimTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var saved []tile.SnapshotInfo
		p := w.start("a:1", tile.Config{SnapshotEvery: 10,
			Hooks: tile.Hooks{Snapshotted: func(i tile.SnapshotInfo) { saved = append(saved, i) }}})
		for i := range 95 {
			p.say(t, "", fmt.Sprint(i))
		}
		require.NoError(t, p.drain())
		assert.GreaterOrEqual(t, len(saved), 9)
		removed := 0
		for _, s := range saved {
			require.NoError(t, s.Err)
			removed += s.Trimmed.Removed
		}
		assert.Greater(t, removed, 80)
		assert.Len(t, w.history(), 95)
	})
}

func TestBadArguments(t *testing.T) {
	w := newWorld(t)
	seams := w.seams()
	rules := &ledgerRules{}
	for name, f := range map[string]func() (*tile.TileProcessor, error){
		"tile":    func() (*tile.TileProcessor, error) { return tile.New(0, "a", seams, rules, nil) },
		"contact": func() (*tile.TileProcessor, error) { return tile.New(testTile, "", seams, rules, nil) },
		"rules":   func() (*tile.TileProcessor, error) { return tile.New(testTile, "a", seams, nil, nil) },
		"seams":   func() (*tile.TileProcessor, error) { return tile.New(testTile, "a", tile.Seams{}, rules, nil) },
		"interval": func() (*tile.TileProcessor, error) {
			return tile.New(testTile, "a", seams, rules, &tile.Config{TickInterval: -1})
		},
		"queue": func() (*tile.TileProcessor, error) {
			return tile.New(testTile, "a", seams, rules, &tile.Config{Limits: tile.Limits{QueueLimit: -1}})
		},
		"lease": func() (*tile.TileProcessor, error) {
			return tile.New(testTile, "a", seams, rules, &tile.Config{Limits: tile.Limits{MarkLease: time.Millisecond}})
		},
	} {
		_, err := f()
		assert.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	p, err := tile.New(testTile, "a", seams, rules, &tile.Config{Limits: tile.Limits{QueueLimit: 1}})
	require.NoError(t, err)
	for _, in := range []tile.Intent{{}, {Tile: testTile + 1},
		{Tile: testTile, Body: make([]byte, tile.MaxIntentBody+1)},
		{Tile: testTile, ActionID: string(make([]byte, 65))}} {
		_, err := p.Submit(t.Context(), in)
		assert.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("client left"))
	_, err = p.Submit(ctx, tile.Intent{Tile: testTile})
	assert.ErrorContains(t, err, "client left")
	require.NoError(t, p.Queue(t.Context(), tile.Intent{Tile: testTile}, func(tile.Result, error) {}))
	_, err = p.Submit(t.Context(), tile.Intent{Tile: testTile})
	assert.ErrorIs(t, err, tile.ErrOverloaded)
}

type ledgerRules = ledgertest.Ledger
