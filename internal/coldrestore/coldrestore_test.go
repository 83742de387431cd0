package coldrestore_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

// classes are all there are.
var classes = []tile.Durability{tile.Checkpointed, tile.Replicated, tile.WriteThrough}

// TestEverythingIsLost: the owner and the whole coordination store die at once. The next owner begins from the
// durable store; bridge, relay and client find to it by themselves.
func TestEverythingIsLost(t *testing.T) {
	t.Parallel()
	for _, class := range classes {
		t.Run(class.String()+"/embedded", func(t *testing.T) {
			t.Parallel()
			s, lose := embedded(t, class)
			everythingIsLost(newWorld(t, s), lose)
		})
	}
	t.Run("servers", func(t *testing.T) {
		c := newCluster(t)
		for _, class := range classes {
			t.Run(class.String(), func(t *testing.T) {
				everythingIsLost(newWorld(t, c.servers(t, class)), c.loseEverything)
			})
		}
	})
}

func everythingIsLost(w *world, lose func(*testing.T, fence.TileID)) {
	first := w.own("first:1")
	kept := first.play("kept", times(15))
	_, at := first.state()
	w.checkpointed(at)
	w.checkpoints.shut.Store(true) // from now on only a journal makes anything durable
	recent := first.play("recent", times(25))
	_, at = first.state()
	waittest.Until(w, func() bool { return w.client.seen() >= at.Seq }, soon, 5*time.Millisecond)
	first.crash()
	lose(w.T, w.tile)
	w.checkpoints.shut.Store(false)

	seen := w.client.seen()
	second := w.own("second:1")
	state, begins := second.state()
	require.Zero(w, w.missing(kept, state), "what was in the checkpoint is kept")
	lost := w.missing(recent, state)
	report := second.report()
	w.Logf("%s: %d of %d actions lost; reported: %d ticks, %v, from %s to %s", w.class, lost, len(recent),
		report.LostTicks, report.LostFor, report.From, report.At)
	switch w.class {
	case tile.WriteThrough:
		require.Zero(w, lost, "write-through promises that nothing acknowledged is lost")
		require.Zero(w, report.LostTicks)
		require.Zero(w, report.LostFor)
	default:
		require.Len(w, recent, lost, "nothing but the checkpoint can have survived, or the test lost nothing")
		// One action a tick at most, so at least as many ticks were lost.
		require.GreaterOrEqual(w, int(report.LostTicks), lost, "the report is a bound on what was lost")
		require.Equal(w, report.LostFor, time.Duration(report.LostTicks)*tickInterval)
	}
	require.Greater(w, begins.Seq, seen, "the sequence jumps ahead of every sequence seen before")
	require.Greater(w, begins.Epoch, at.Epoch)
	w.converges(second)

	after := second.play("after", times(10))
	state, _ = second.state()
	require.Zero(w, w.missing(after, state))
	w.converges(second)
	require.Equal(w, w.class, second.processor.Status().Durability)
	second.crash()
}

// TestALivingOwnerLosesNothing: the whole coordination store is lost, and the owner lives on. It has everything in
// memory.
func TestALivingOwnerLosesNothing(t *testing.T) {
	t.Parallel()
	for _, class := range classes {
		t.Run(class.String()+"/embedded", func(t *testing.T) {
			t.Parallel()
			s, lose := embedded(t, class)
			livingOwner(newWorld(t, s), lose)
		})
	}
	t.Run("servers", func(t *testing.T) {
		c := newCluster(t)
		for _, class := range classes {
			t.Run(class.String(), func(t *testing.T) {
				livingOwner(newWorld(t, c.servers(t, class)), c.loseEverything)
			})
		}
	})
}

func livingOwner(w *world, lose func(*testing.T, fence.TileID)) {
	o := w.own("first:1")
	acknowledged := o.play("before", times(15))
	w.checkpoints.shut.Store(true)
	acknowledged = append(acknowledged, o.play("held", times(10))...)
	_, at := o.state()
	waittest.Until(w, func() bool { return w.client.seen() >= at.Seq }, soon, 5*time.Millisecond)
	lose(w.T, w.tile)
	w.checkpoints.shut.Store(false)
	acknowledged = append(acknowledged, o.play("after", times(10))...)
	state, now := o.state()
	require.Zero(w, w.missing(acknowledged, state))
	require.Greater(w, now.Seq, at.Seq)
	w.converges(o)
	o.crash()
}

// TestWhoIsLeftGoesAboveTheCheckpoint: an owner is cut off while others own the tile, one after the other. Then the
// coordination store is lost, the authority too, and the owners but the first, whose way is free again. It finds the
// last one's checkpoint. What it acknowledges from then on must not be replaced by that at the next take-over.
func TestWhoIsLeftGoesAboveTheCheckpoint(t *testing.T) {
	t.Parallel()
	for _, class := range classes {
		t.Run(class.String()+"/embedded", func(t *testing.T) {
			t.Parallel()
			s, lose := embedded(t, class)
			whoIsLeft(newWorld(t, s), lose)
		})
	}
	t.Run("servers", func(t *testing.T) {
		c := newCluster(t)
		for _, class := range classes {
			t.Run(class.String(), func(t *testing.T) {
				whoIsLeft(newWorld(t, c.servers(t, class)), c.loseEverything)
			})
		}
	})
}

// forgettable is an authority that a test can replace by one that knows nothing.
type forgettable struct {
	fence.Authority // what owners do not call
	atomic.Pointer[fence.Authority]
}

func (f *forgettable) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return (*f.Load()).Claim(ctx, c)
}

func (f *forgettable) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return (*f.Load()).Promote(ctx, c)
}

func (f *forgettable) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	return (*f.Load()).Lookup(ctx, id)
}

func (f *forgettable) Release(ctx context.Context, g fence.Grant) error {
	return (*f.Load()).Release(ctx, g)
}

func whoIsLeft(w *world, lose func(*testing.T, fence.TileID)) {
	var authority forgettable
	now := memfence.NewAuthority()
	authority.Store(&now)
	w.authority = &authority
	first := w.own("first:1")
	first.play("before", times(5))
	first.cut.Store(true)
	for _, contact := range []string{"second:1", "third:1"} {
		o := w.own(contact)
		o.play(contact, times(15))
		_, at := o.state()
		w.checkpointed(at)
		o.crash()
	}
	last, found, err := w.durable.Get(w.Context(), w.tile)
	require.NoError(w, err)
	require.True(w, found)
	now = memfence.NewAuthority()
	authority.Store(&now)
	lose(w.T, w.tile)

	first.cut.Store(false)
	after := first.play("first", times(1))
	_, at := first.state()
	require.Greater(w, at.Epoch, last.Epoch, "it is above the checkpoint before it answers")
	after = append(after, first.play("after", times(20))...)
	first.crash()
	next := w.own("next:1")
	state, _ := next.state()
	require.Zero(w, w.missing(after, state))
	w.converges(next)
	next.crash()
}

// power is what an owner's process runs on. Once it is cut, nothing the process asks for is done, and no answer
// reaches it: that is how a crash looks from outside, and the process itself needs no killing.
type power struct{ cut atomic.Bool }

var errPowerCut = errors.New("power cut")

// call makes a call unless, or whose answer is lost if, the power is cut.
func (p *power) call(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
	if c.To == intercept.Log && c.Op != "trim" {
		return do(ctx)
	}
	lost := func(outcome error) error {
		return &fence.StoreError{Op: c.Op, Tile: c.Tile, Outcome: outcome, Err: errPowerCut}
	}
	if p.cut.Load() {
		return lost(fence.ErrNotApplied)
	}
	err := do(ctx)
	if p.cut.Load() {
		return lost(fence.ErrUnknownOutcome)
	}
	return err
}

type poweredJournal struct {
	tile.Journal
	*power
}

func (j poweredJournal) Seal(ctx context.Context, id fence.TileID, e fence.Epoch) error {
	return j.call(ctx, intercept.Call{Op: "seal", Tile: id},
		func(ctx context.Context) error { return j.Journal.Seal(ctx, id, e) })
}

func (j poweredJournal) Append(ctx context.Context, id fence.TileID, e fence.Entry) error {
	return j.call(ctx, intercept.Call{Op: "append", Tile: id},
		func(ctx context.Context) error { return j.Journal.Append(ctx, id, e) })
}

func (j poweredJournal) Base(ctx context.Context, id fence.TileID, s fence.Snapshot) error {
	return j.call(ctx, intercept.Call{Op: "put", Tile: id},
		func(ctx context.Context) error { return j.Journal.Base(ctx, id, s) })
}

// TestOwnerAndMasterAreLost: the owner and the master of its tile die together, and the replica that is promoted has
// not heard from the master for a while.
func TestOwnerAndMasterAreLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, class := range classes {
		t.Run(class.String(), func(t *testing.T) { ownerAndMasterAreLost(newWorld(t, c.servers(t, class)), c) })
	}
}

func ownerAndMasterAreLost(w *world, c *cluster) {
	first := w.own("first:1")
	kept := first.play("kept", times(25)) // some of them at a confirmation
	master, replica := c.serving(w.T, w.tile)
	_, at := first.state()
	waittest.Until(w, func() bool {
		return c.has(w.T, replica, w.tile, at)
	}, soon, time.Millisecond, "the replica has what was acknowledged")

	// The replica sleeps, and its connection is gone when it wakes: what the master takes from now on dies with it.
	w.checkpoints.shut.Store(true)
	require.NoError(w, replica.Signal(devstack.Pause))
	defer func() { _ = replica.Signal(devstack.GoOn) }()
	c.cutReplicas(w.T, master)
	until := time.Now().Add(700 * time.Millisecond)
	recent := first.play("recent", func(n int) bool { return n >= 20 || time.Now().After(until) })
	if w.class == tile.Replicated {
		require.Empty(w, recent, "without its replica nothing is acknowledged")
	} else {
		require.NotEmpty(w, recent)
	}
	first.crash()
	require.NoError(w, master.Signal(os.Kill))
	require.NoError(w, replica.Signal(devstack.GoOn))
	c.promoted(w.T, w.tile, replica)
	require.NoError(w, master.Restart(w.Context())) // an install wants every replica
	w.checkpoints.shut.Store(false)

	second := w.own("second:1")
	state, _ := second.state()
	require.Zero(w, w.missing(kept, state), "what a replica had is kept")
	lost := w.missing(recent, state)
	w.Logf("%s: %d of %d actions lost", w.class, lost, len(recent))
	if w.class == tile.Checkpointed {
		require.Len(w, recent, lost, "the promoted replica never had them, or the test lost nothing")
	} else {
		require.Zero(w, lost, "%s promises that nothing acknowledged is lost", w.class)
	}
	w.converges(second)
	after := second.play("after", times(10))
	state, _ = second.state()
	require.Zero(w, w.missing(after, state))
	w.converges(second)
	second.crash()
	c.whole(w.T)
}
