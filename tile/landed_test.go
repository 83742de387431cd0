package tile_test

import (
	"context"
	"errors"
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
		assert.Equal(t, stream.Applied, o)
		owner.say(t, "y", "after")
		assert.Equal(t, []string{"before", "landed", "after"}, w.history())
		assert.Greater(t, owner.Status().Epoch, fence.Epoch(1))
		require.NoError(t, owner.drain())
	})
}
