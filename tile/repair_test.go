package tile_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// never is a ConfirmEvery that keeps every batch, as an owner does whose replicas do not confirm.
const never = 1 << 20

func TestOwnerHashDeletedIsInstalledAgainUnderTheSameEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("a:1", tile.Config{})
		p.say(t, "", "one")
		w.store.Update(testTile, func(s *memfence.State) { s.Owner = fence.Owner{} })
		p.say(t, "", "two")
		assert.Equal(t, fence.Epoch(1), p.Status().Epoch)
		time.Sleep(5 * time.Second)
		w.store.Update(testTile, func(s *memfence.State) { s.Owner = fence.Owner{} })
		time.Sleep(5 * time.Second) // a quiet tick meets it
		o, err := w.store.Owner(t.Context(), testTile)
		require.NoError(t, err)
		assert.True(t, o.Present())
		require.NoError(t, p.drain())
		assert.Equal(t, []string{"one", "two"}, w.history())
	})
}

// loseTail undoes the last n commits, as a failover to a lagging replica does.
func (w *world) loseTail(n int) {
	w.store.Update(testTile, func(s *memfence.State) {
		if n == 0 || n >= len(s.Entries) {
			return
		}
		s.Entries = s.Entries[:len(s.Entries)-n]
		last := s.Entries[len(s.Entries)-1]
		s.Owner.Position, s.Owner.Epoch, s.Owner.Tick = last.Position, last.Epoch, last.Tick
	})
}

// fork lets another process commit n batches where the stream ends, under the owner's epoch.
func (w *world) fork(n int) {
	payload, _, err := (&stream.Batch{Events: [][]byte{[]byte("intruder")}}).Encode()
	require.NoError(w.t, err)
	w.store.Update(testTile, func(s *memfence.State) {
		for range n {
			_, err = s.Commit(&fence.Commit{Tile: testTile, Epoch: s.Owner.Epoch, Contact: s.Owner.Contact,
				Prev: s.Last(), Tick: 3, Payload: payload})
			require.NoError(w.t, err)
		}
	})
}

func TestTailLostInFailoverIsReappended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var healed []tile.HealInfo
		p := w.start("a:1", tile.Config{ConfirmEvery: never,
			Hooks: tile.Hooks{Healed: func(i tile.HealInfo) { healed = append(healed, i) }}})
		for i := range 6 {
			p.say(t, "", fmt.Sprint(i))
		}
		before := p.Status().Position
		w.loseTail(4)
		p.say(t, "", "after")
		assert.Equal(t, before.Seq+1, p.Status().Position.Seq, "same sequences as the first time")
		require.NoError(t, p.drain())
		require.Len(t, healed, 1)
		assert.Equal(t, 4, healed[0].Reappended)
		assert.Equal(t, []string{"0", "1", "2", "3", "4", "5", "after"}, w.history())
		assert.Equal(t, fence.Epoch(1), p.Status().Epoch)
	})
}

func TestForkIsHealedByRebaseUnderANewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var healed []tile.HealInfo
		p := w.start("a:1", tile.Config{ConfirmEvery: never,
			Hooks: tile.Hooks{Healed: func(i tile.HealInfo) { healed = append(healed, i) }}})
		for i := range 4 {
			p.say(t, "", fmt.Sprint(i))
		}
		before := p.Status().Position
		// A replica that never saw the last two entries was promoted, and another process wrote there.
		w.loseTail(2)
		w.fork(2)
		p.say(t, "", "after")
		require.Len(t, healed, 1)
		assert.True(t, healed[0].Rebased)
		assert.Equal(t, fence.Epoch(2), p.Status().Epoch)
		assert.Greater(t, p.Status().Position.Seq, before.Seq+fence.RebaseJump)
		require.NoError(t, p.drain())
		assert.Equal(t, []string{"0", "1", "2", "3", "after"}, w.history())
	})
}

func TestStoreNamesAnOwnerTheAuthorityNeverMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("a:1", tile.Config{})
		p.say(t, "", "one")
		w.store.Update(testTile, func(s *memfence.State) { s.Owner.Epoch, s.Owner.Contact = 40, "ghost:1" })
		p.say(t, "", "two")
		assert.Greater(t, p.Status().Epoch, fence.Epoch(40), "minted above what the store has seen")
		require.NoError(t, p.drain())
		assert.Equal(t, []string{"one", "two"}, w.history())
	})
}

func TestStaleOwnerWithoutAuthorityFreezesAndThenStandsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var silent atomic.Bool
		seams := w.seams()
		seams.Authority = intercept.AuthorityOf(w.authority, refusing("lookup", &silent))
		a := startOn(t, seams, "a:1", tile.Config{})
		a.say(t, "", "one")
		silent.Store(true)
		b := w.start("b:1", tile.Config{TakeOver: true})
		b.say(t, "", "two")
		time.Sleep(time.Minute)
		assert.Equal(t, tile.Serving, a.Status().State, "it does not stand down on the store's word alone")
		assert.True(t, a.Status().Pending, "and it plays no tick")
		silent.Store(false)
		<-a.done
		assert.ErrorIs(t, a.err, tile.ErrSuperseded)
		require.NoError(t, b.drain())
		assert.Equal(t, []string{"one", "two"}, w.history())
	})
}

func TestColdRestoreFromCheckpointJumpsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.start("a:1", tile.Config{})
		a.say(t, "act-1", "one")
		require.NoError(t, a.drain())
		saved, found, err := w.log.Snapshot(t.Context(), testTile)
		require.NoError(t, err)
		require.True(t, found)
		checkpoint := func(context.Context, fence.TileID) (fence.Snapshot, bool, error) { return saved, true, nil }

		w.store.Update(testTile, func(s *memfence.State) { *s = memfence.State{} }) // all of coordination is gone
		b := w.with(tile.Seams{Checkpoint: checkpoint}).start("b:1", tile.Config{})
		assert.Equal(t, stream.Applied, b.say(t, "act-1", "one"), "remembered through the checkpoint")
		b.say(t, "", "two")
		assert.Greater(t, b.Status().Position.Seq, saved.Seq+fence.RebaseJump-1)
		assert.Greater(t, b.Status().Epoch, saved.Epoch)
		require.NoError(t, b.drain())
		assert.Equal(t, []string{"one", "two"}, w.history())

		// only the owner hash is left
		w.store.Update(testTile, func(s *memfence.State) { s.Entries, s.Snapshot = nil, nil })
		c := w.start("c:1", tile.Config{})
		<-c.done
		assert.ErrorIs(t, c.err, fence.ErrCorrupt, "without a checkpoint it refuses to start empty")
		d := w.with(tile.Seams{Checkpoint: checkpoint}).start("d:1", tile.Config{TakeOver: true})
		d.say(t, "", "three")
		require.NoError(t, d.drain())
		assert.Equal(t, []string{"one", "three"}, w.history())
	})
}

func TestAuthorityDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		began := time.Now()
		p := startOn(t, (&line{w: w, authority: true}).seams(w.authority), "a:1", tile.Config{})
		<-p.done
		var down *fence.StoreError
		require.ErrorAs(t, p.err, &down)
		assert.WithinDuration(t, began.Add(10*time.Second), time.Now(), time.Second)
	})
}

func TestRulesThatRefuseACommittedBatchEndTheProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("a:1", tile.Config{})
		_, err := p.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: "x", Body: nil})
		assert.ErrorIs(t, err, tile.ErrUnresolved, "committed, but this processor cannot vouch for it")
		<-p.done
		assert.ErrorContains(t, p.err, "an empty word")
	})
}

// TestABatchThatLandedIsKept: an owner's batch is in the store, and no answer says so. Then the owner hash is deleted,
// and the authority is restored to before the owner. The owner goes on above its history; the batch, which others have
// read by now, is part of that, and the action that it decided is not decided again.
func TestABatchThatLandedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		authority := &restorable{now: memfence.NewAuthority()}
		var deaf atomic.Bool
		landed := false
		store := intercept.StoreOf(w.store, func(ctx context.Context, c intercept.Call,
			do func(context.Context) error) error {
			if !deaf.Load() || !c.Write {
				return do(ctx)
			}
			if !landed {
				landed = do(ctx) == nil
			}
			return &fence.StoreError{Op: c.Op, Tile: testTile, Outcome: fence.ErrUnknownOutcome,
				Err: errors.New("answer lost")}
		})
		owner := startOn(t, tile.Seams{Authority: authority, Store: store, Log: w.log}, "a:1", tile.Config{})
		owner.say(t, "w", "before")
		deaf.Store(true)
		time.AfterFunc(2*time.Second, func() {
			w.store.Update(testTile, func(s *memfence.State) { s.Owner = fence.Owner{} })
			authority.restore(t, false)
			deaf.Store(false)
		})
		// By then the action is too old to be decided.
		o, err := owner.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: "x", Body: []byte("landed"),
			Admitted: time.Now().Add(time.Second - tile.DefaultRetryWindow)})
		require.NoError(t, err)
		assert.Equal(t, stream.Applied, o.Outcome)
		owner.say(t, "y", "after")
		assert.Equal(t, []string{"before", "landed", "after"}, w.history())
		assert.Greater(t, owner.Status().Epoch, fence.Epoch(1))
		require.NoError(t, owner.drain())
	})
}
