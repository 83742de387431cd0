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
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/tile"
)

// The last tick before a hand-over finds a fork, and the repair cannot be finished in time: the tile stays, and
// is repaired when that is possible again.
func TestHandOverWhoseLastTickCannotBeRepairedLeavesTheTile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var cut atomic.Bool
		authority := intercept.AuthorityOf(w.authority, refusing("promote", &cut))
		p := startOn(t, tile.Seams{Authority: authority, Store: w.store, Log: w.log,
			Handover: func(context.Context, tile.Handover) error {
				t.Error("the successor was asked although the last tick was not settled")
				return errors.New("not now")
			}}, "a:1", tile.Config{ConfirmEvery: never})
		for i := range 4 {
			p.say(t, "", fmt.Sprint(i))
		}
		w.loseTail(2)
		w.fork(3)
		cut.Store(true)
		require.Error(t, p.Drain(t.Context(), "b:1"))
		cut.Store(false)
		p.say(t, "", "after")
		assert.Equal(t, tile.Serving, p.Status().State)
		require.NoError(t, p.drain())
		assert.Equal(t, []string{"0", "1", "2", "3", "after"}, w.history())
	})
}

// An owner that leaves in good order asks again when a replica was slow to confirm its last batch.
func TestDrainInsistsOnConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		asked := 0
		p := w.start("a:1",
			tile.Config{ConfirmEvery: never, Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt,
				error) {
				r, err := w.store.Commit(ctx, c)
				if err == nil && c.Replicas != 0 && !c.Install {
					if asked++; asked == 1 {
						return fence.Receipt{}, &fence.UnconfirmedError{Tile: c.Tile, Receipt: r, Want: 1}
					}
				}
				return r, err
			}})
		p.say(t, "", "one")
		require.NoError(t, p.drain())
		assert.Equal(t, 2, asked)
		assert.Zero(t, p.Status().Kept)
		g, err := w.authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		assert.False(t, g.Held())
	})
}

// A replica sleeps, and the store waits longer for it than the owner for the store: the tile goes on, with what
// the master says.
func TestConfirmationThatTakesTooLongDoesNotFreezeTheTile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		asleep := false
		p := w.start("a:1", tile.Config{TickInterval: 50 * time.Millisecond, ConfirmEvery: 3,
			Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
				r, err := w.store.Commit(ctx, c)
				if err == nil && c.Replicas != 0 && asleep {
					<-ctx.Done()
					return fence.Receipt{},
						&fence.StoreError{Op: "commit", Tile: c.Tile, Outcome: fence.ErrUnknownOutcome,
							Err: context.Cause(ctx)}
				}
				return r, err
			}})
		p.say(t, "", "one")
		asleep = true
		before := time.Now()
		for i := range 9 {
			p.say(t, "", fmt.Sprint(i))
		}
		assert.Less(t, time.Since(before), 3*time.Second)
		assert.Positive(t, p.Status().Kept)
		asleep = false
		require.NoError(t, p.drain())
		assert.Zero(t, p.Status().Kept)
	})
}

// unconfirming is a store whose replicas, while it is set to, confirm no rebase. It notes the epochs that were
// confirmed, and ticks that were presented under any other.
type unconfirming struct {
	fence.Store
	cut      atomic.Bool
	mu       sync.Mutex
	begun    map[fence.Epoch]bool
	tooEarly []fence.Epoch
}

func (u *unconfirming) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	receipt, err := u.Store.Rebase(ctx, r)
	if err == nil && u.cut.Load() {
		return receipt, &fence.UnconfirmedError{Tile: r.Tile, Receipt: receipt, Want: 1}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.begun[r.Epoch] = u.begun[r.Epoch] || err == nil
	return receipt, err
}

func (u *unconfirming) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	u.mu.Lock()
	if !c.Install && c.Epoch > 1 && !u.begun[c.Epoch] {
		u.tooEarly = append(u.tooEarly, c.Epoch)
	}
	u.mu.Unlock()
	return u.Store.Commit(ctx, c)
}

// The repair that the last tick before a hand-over needs has presented its rebase when the time is up. It is finished
// before anything else is presented under its epoch.
func TestAHandOverFinishesTheRepairThatItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		store := &unconfirming{Store: w.store, begun: map[fence.Epoch]bool{}}
		p := startOn(t, tile.Seams{Authority: w.authority, Store: store, Log: w.log,
			Handover: func(context.Context, tile.Handover) error {
				return errors.New("not now")
			}}, "a:1", tile.Config{ConfirmEvery: never})
		for i := range 4 {
			p.say(t, "", fmt.Sprint(i))
		}
		store.cut.Store(true)
		w.loseTail(1)
		w.fork(1)
		began := time.Now()
		require.ErrorContains(t, p.Drain(t.Context(), "b:1"), "the tile stays")
		assert.LessOrEqual(t, time.Since(began), 6*time.Second)
		time.Sleep(time.Second)
		store.cut.Store(false)
		p.say(t, "", "after")
		assert.Equal(t, []string{"0", "1", "2", "3", "after"}, w.history())
		require.NoError(t, p.drain())
		assert.Empty(t, store.tooEarly)
	})
}
