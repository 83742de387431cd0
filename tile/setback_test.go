package tile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/tile"
)

// doubtful is a store whose replicas do not confirm what a reader asks about, for a while.
type doubtful struct {
	fence.Store
	doubts atomic.Bool
	asked  atomic.Int64

	presented int // rebases since its owner last asked the authority
	unasked   int // the most there were
}

func (d *doubtful) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	d.presented++
	d.unasked = max(d.unasked, d.presented)
	return d.Store.Rebase(ctx, r)
}

func (d *doubtful) ownerAsked() {
	if d != nil {
		d.presented = 0
	}
}

func (d *doubtful) Confirm(ctx context.Context, id fence.TileID, at fence.Position) error {
	d.asked.Add(1)
	if d.doubts.Load() {
		return &fence.UnconfirmedError{Tile: id, Receipt: fence.Receipt{Position: at}, Want: 1}
	}
	return d.Store.Confirm(ctx, id, at)
}

// setback is what a test of setBack has.
type setback struct {
	w           *world
	store       *doubtful // the later owner's
	authority   *interrupted
	early, late *runner
	lines       [2]*line
}

// wake has an owner that slept go on.
func (s *setback) wake(i int) {
	s.lines[i].set(func(l *line) {
		close(l.paused)
		l.paused = nil
	})
}

// standsDown waits until the later owner has.
func (s *setback) standsDown(t *testing.T) {
	t.Helper()
	select {
	case <-s.late.done:
	case <-time.After(time.Minute):
		require.FailNow(t, "it does not stand down")
	}
}

// interrupted is an authority before whose grants something happens, once.
type interrupted struct {
	fence.Authority
	store     *doubtful // nil: not of interest
	meanwhile func()
}

func (i *interrupted) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	i.store.ownerAsked()
	return i.Authority.Lookup(ctx, id)
}

func (i *interrupted) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	i.store.ownerAsked()
	if f := i.meanwhile; f != nil {
		i.meanwhile = nil
		f()
	}
	return i.Authority.Promote(ctx, c)
}

// setBack runs a test with two owners of a tile that sleep. The later one took over at "one" and has committed "two".
// Then every copy of that is lost, and the authority is restored to when the tile was the earlier one's.
func setBack(t *testing.T, f func(t *testing.T, s *setback)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		authority := &restorable{now: memfence.NewAuthority()}
		store := &doubtful{Store: w.store}
		lines := [2]*line{{w: w}, {w: w}}
		pause := func(l *line) { l.set(func(l *line) { l.paused = make(chan struct{}) }) }
		early := startOn(t, lines[0].seams(authority), "a:1", tile.Config{})
		early.say(t, "x", "one")
		pause(lines[0])
		var before memfence.State
		w.store.Update(testTile, func(s *memfence.State) {
			before = *s
			before.Entries = slices.Clone(s.Entries)
		})
		seams := lines[1].seams(authority)
		seams.Store, store.Store = store, seams.Store
		asks := &interrupted{Authority: seams.Authority, store: store}
		seams.Authority = asks
		late := startOn(t, seams, "b:1", tile.Config{TakeOver: true})
		late.say(t, "y", "two")
		pause(lines[1])
		time.Sleep(time.Second)
		w.store.Update(testTile, func(s *memfence.State) { *s = before })
		authority.restore(t, true)
		f(t, &setback{w, store, asks, early, late, lines})
	})
}

// TestAnEarlierOwnerThatWentOnKeepsTheTile: it woke first, and store and authority agree that the tile is its own.
func TestAnEarlierOwnerThatWentOnKeepsTheTile(t *testing.T) {
	setBack(t, func(t *testing.T, s *setback) {
		s.wake(0)
		s.early.say(t, "z", "three")
		s.store.doubts.Store(true)
		s.wake(1)
		time.Sleep(10 * time.Second)
		assert.Positive(t, s.store.asked.Load())
		assert.Equal(t, tile.Serving, s.late.Status().State, "as long as no replica has it, nothing is decided")
		assert.Equal(t, []string{"one", "three"}, s.w.history())
		s.store.doubts.Store(false)
		s.standsDown(t)
		var sup *tile.SupersededError
		require.ErrorAs(t, s.late.err, &sup)
		assert.Equal(t, "a:1", sup.Successor.Contact)
		s.early.say(t, "q", "four")
		require.NoError(t, s.early.drain())
		assert.Equal(t, []string{"one", "three", "four"}, s.w.history())
	})
}

// TestAnEarlierOwnerThatGoesOnMeanwhileKeepsTheTile: store and authority say to the later one that no other has
// gone on. The rebase names what it replaces.
func TestAnEarlierOwnerThatGoesOnMeanwhileKeepsTheTile(t *testing.T) {
	setBack(t, func(t *testing.T, s *setback) {
		s.authority.meanwhile = func() {
			s.wake(0)
			s.early.say(t, "z", "three")
		}
		s.wake(1)
		s.standsDown(t)
		require.ErrorIs(t, s.late.err, tile.ErrSuperseded)
		s.early.say(t, "q", "four")
		require.NoError(t, s.early.drain())
		assert.Equal(t, []string{"one", "three", "four"}, s.w.history())
	})
}

// TestAnOwnerThatCannotDecideMintsNothing: as above, and while the replicas do not say whether they have what the
// earlier one has committed, the later one waits under the epoch that it has.
func TestAnOwnerThatCannotDecideMintsNothing(t *testing.T) {
	setBack(t, func(t *testing.T, s *setback) {
		s.store.doubts.Store(true)
		s.authority.meanwhile = func() {
			s.wake(0)
			s.early.say(t, "z", "three")
		}
		s.wake(1)
		time.Sleep(time.Second)
		before, err := s.authority.Authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		after, err := s.authority.Authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		assert.LessOrEqual(t, after.Epoch, before.Epoch+1, "the earlier one looks its record up, and mints above it")
		s.store.doubts.Store(false)
		s.standsDown(t)
		assert.Equal(t, 1, s.store.unasked, "each time that it was refused it asked the authority first")
		require.NoError(t, s.early.drain())
		assert.Equal(t, []string{"one", "three"}, s.w.history())
	})
}

// TestALaterOwnerTakesUpWhatAnEarlierOneLeft: that one went on, and its owner hash is gone.
func TestALaterOwnerTakesUpWhatAnEarlierOneLeft(t *testing.T) {
	setBack(t, func(t *testing.T, s *setback) {
		s.wake(0)
		s.early.say(t, "z", "three")
		s.early.stop()
		<-s.early.done
		s.w.store.Update(testTile, func(m *memfence.State) { m.Owner = fence.Owner{} })
		s.wake(1)
		s.late.say(t, "q", "four")
		require.NoError(t, s.late.drain())
		assert.Equal(t, []string{"one", "three", "four"}, s.w.history())
	})
}

// TestALaterOwnerRestoresWhatEveryCopyLost: no other has gone on, so what it remembers is the tile's state.
func TestALaterOwnerRestoresWhatEveryCopyLost(t *testing.T) {
	setBack(t, func(t *testing.T, s *setback) {
		s.wake(1)
		s.late.say(t, "z", "three")
		assert.Zero(t, s.store.asked.Load())
		s.wake(0)
		<-s.early.done
		require.True(t, errors.Is(s.early.err, tile.ErrSuperseded), "%v", s.early.err)
		require.NoError(t, s.late.drain())
		assert.Equal(t, []string{"one", "two", "three"}, s.w.history())
	})
}

// TestACheckpointThatItsOwnerHasPassed: a claimant reads the stream, and then a checkpoint that is later, since the
// owner lives and goes on. What that one has committed since the checkpoint is not replaced by it.
func TestACheckpointThatItsOwnerHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{TickInterval: 10 * time.Millisecond, SnapshotEvery: 5})
		var words []string
		say := func(n int) {
			for range n {
				words = append(words, fmt.Sprint("w", len(words)))
				a.say(t, "", words[len(words)-1])
			}
		}
		say(12)
		asked := 0
		b := w.with(tile.Seams{Checkpoint: func(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
			var snap fence.Snapshot
			var err error
			if asked++; asked == 1 {
				time.Sleep(50 * time.Millisecond)
				say(12)
				snap, _, err = w.log.Snapshot(ctx, id)
				say(3)
			}
			return snap, asked == 1, err
		}}).process("b:1", tile.Config{TakeOver: true})
		b.eventually(t, tile.Serving, time.Minute)
		assert.Equal(t, 2, asked)
		assert.Equal(t, words, w.history())
		a.eventually(t, tile.StoodDown, time.Minute)
	})
}
