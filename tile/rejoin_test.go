package tile_test

import (
	"context"
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
	"github.com/tilefence/tilefence/tile"
)

// restorable is an authority that can be restored to what it was after the first claim, or before it.
type restorable struct {
	fence.Authority // nil: what processors do not call

	mu    sync.Mutex
	now   fence.Authority
	first *fence.Claim
}

func (r *restorable) current() fence.Authority {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *restorable) restore(t *testing.T, firstClaim bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = memfence.NewAuthority()
	if firstClaim {
		_, err := r.now.Claim(t.Context(), *r.first)
		require.NoError(t, err)
	}
}

func (r *restorable) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	r.mu.Lock()
	if r.first == nil {
		r.first = &c
	}
	r.mu.Unlock()
	return r.current().Claim(ctx, c)
}

func (r *restorable) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return r.current().Promote(ctx, c)
}

func (r *restorable) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	return r.current().Lookup(ctx, id)
}

func (r *restorable) Release(ctx context.Context, g fence.Grant) error {
	return r.current().Release(ctx, g)
}

// restoredTwice runs a test with an authority that is restored to when the tile was its first owner's, and to before
// that. The first owner has not noticed its successor, which has committed "two" as the outcome of "y".
func restoredTwice(t *testing.T, f func(t *testing.T, w *world, old, later *runner, l *line, healed *[]tile.HealInfo)) {
	for _, firstClaim := range []bool{true, false} {
		t.Run(fmt.Sprintf("firstClaim=%v", firstClaim), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				authority := &restorable{now: memfence.NewAuthority()}
				var healed []tile.HealInfo
				hooks := tile.Hooks{Healed: func(i tile.HealInfo) { healed = append(healed, i) }}
				old := startOn(t, tile.Seams{Authority: authority, Store: w.store, Log: w.log}, "a:1",
					tile.Config{Hooks: hooks})
				old.say(t, "x", "one")
				l := &line{w: w}
				later := startOn(t, l.seams(authority), "b:1",
					tile.Config{TakeOver: true, TickInterval: 10 * time.Millisecond, ConfirmEvery: 1})
				later.say(t, "y", "two")
				require.Equal(t, tile.Serving, old.Status().State, "it has not ticked since")
				authority.restore(t, firstClaim)
				f(t, w, old, later, l, &healed)
			})
		})
	}
}

// TestRestoredAuthorityDoesNotVoidALaterOwner: the successor has died when the owner before it notices. What it
// confirmed is kept.
func TestRestoredAuthorityDoesNotVoidALaterOwner(t *testing.T) {
	restoredTwice(t, func(t *testing.T, w *world, old, later *runner, l *line, healed *[]tile.HealInfo) {
		l.set(func(l *line) { l.store, l.authority = true, true })
		o, err := old.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: "y", Body: []byte("two")})
		require.NoError(t, err)
		assert.Equal(t, stream.Applied, o.Outcome)
		old.say(t, "z", "three")
		assert.Equal(t, []tile.HealInfo{{Tile: testTile, Rejoined: true, At: (*healed)[0].At}}, *healed)
		assert.Equal(t, fence.Epoch(3), old.Status().Epoch)
		l.set(func(l *line) { l.store, l.authority = false, false })
		<-later.done
		require.ErrorIs(t, later.err, tile.ErrSuperseded)
		require.NoError(t, old.drain())
		assert.Equal(t, []string{"one", "two", "three"}, w.history())
	})
}

// TestStaleOwnerLeavesTheTileToAHealthySuccessor: the successor serves, and goes on doing so, although the authority
// says that the tile is its predecessor's, or no process's. Clients of the predecessor are redirected throughout.
func TestStaleOwnerLeavesTheTileToAHealthySuccessor(t *testing.T) {
	restoredTwice(t, func(t *testing.T, w *world, old, later *runner, _ *line, healed *[]tile.HealInfo) {
		presented := submit(old.TileProcessor, "y", "two")
		for end := time.Now().Add(time.Second); old.Status().Owner.Contact == ""; time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(end), "it redirects from the refusal on")
		}
		for stopped := false; !stopped; time.Sleep(10 * time.Millisecond) {
			_, err := old.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("x")})
			var away *tile.RedirectError
			require.ErrorAs(t, err, &away)
			require.Equal(t, "b:1", away.Contact)
			select {
			case <-old.done:
				stopped = true
			default:
			}
		}
		var sup *tile.SupersededError
		require.ErrorAs(t, old.err, &sup)
		assert.Equal(t, "b:1", sup.Successor.Contact)
		require.ErrorIs(t, <-presented, tile.ErrUnresolved)
		assert.Empty(t, *healed)
		later.say(t, "z", "three")
		assert.Equal(t, fence.Epoch(2), later.Status().Epoch, "it was not disturbed")

		// Refused for another reason, it asks the authority, and goes above what it has forgotten.
		w.store.Update(testTile, func(s *memfence.State) { s.Owner = fence.Owner{} })
		later.say(t, "q", "four")
		assert.Equal(t, fence.Epoch(3), later.Status().Epoch)
		require.NoError(t, later.drain())
		assert.Equal(t, []string{"one", "two", "three", "four"}, w.history())
	})
}

// hanging is a log whose node answers nothing, until another has its place.
type hanging struct {
	stream.Log
	mu    sync.Mutex
	until time.Time
}

func (h *hanging) wait(ctx context.Context) error {
	h.mu.Lock()
	hangs := time.Now().Before(h.until)
	h.mu.Unlock()
	if !hangs {
		return nil
	}
	// The client waits on a connection to the node that hangs, however soon another one takes over.
	select {
	case <-time.After(15 * time.Second):
	case <-ctx.Done():
	}
	return &fence.StoreError{Op: "read", Tile: testTile, Outcome: fence.ErrNotApplied, Err: context.DeadlineExceeded}
}

func (h *hanging) Last(ctx context.Context, id fence.TileID) (fence.Position, error) {
	if err := h.wait(ctx); err != nil {
		return fence.Position{}, err
	}
	return h.Log.Last(ctx, id)
}

func (h *hanging) Snapshot(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
	if err := h.wait(ctx); err != nil {
		return fence.Snapshot{}, false, err
	}
	return h.Log.Snapshot(ctx, id)
}

// TestTakeOverDoesNotWaitForANodeThatHangs longer than for the one that replaces it.
func TestTakeOverDoesNotWaitForANodeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		owner := w.start("a:1", tile.Config{})
		owner.say(t, "x", "one")
		began := time.Now()
		log := &hanging{Log: w.log, until: began.Add(1500 * time.Millisecond)}
		later := startOn(t, tile.Seams{Authority: w.authority, Store: w.store, Log: log}, "b:1",
			tile.Config{TakeOver: true})
		later.say(t, "y", "two")
		assert.Less(t, time.Since(began), 4*time.Second)
		require.NoError(t, later.drain())
	})
}

// racedStore lets something happen before a rebase arrives, once.
type racedStore struct {
	fence.Store
	before func()
}

func (s *racedStore) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.Store.Rebase(ctx, r)
}

// TestRebaseDoesNotVoidALaterOwner: an owner repairs its history under a new epoch. Before its rebase arrives
// another process is granted the tile and serves; then the authority is restored to when the tile was the first one's.
// Or the same epoch is granted to both. What the other one confirmed is kept.
func TestRebaseDoesNotVoidALaterOwner(t *testing.T) {
	for name, later := range map[string]fence.Epoch{"a later epoch": 3, "the same epoch": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				live := memfence.NewAuthority() // what the authority was before it was restored
				_, err := live.Claim(t.Context(), fence.Claim{Tile: testTile, Contact: "a:1", ID: fence.NewClaimID(),
					Floor: later - 2})
				require.NoError(t, err)
				behind := &restorable{now: memfence.NewAuthority()}
				store := &racedStore{Store: w.store}
				var healed []tile.HealInfo
				a := startOn(t, tile.Seams{Authority: behind, Store: store, Log: w.log}, "a:1",
					tile.Config{Hooks: tile.Hooks{Healed: func(i tile.HealInfo) { healed = append(healed, i) }}})
				a.say(t, "x", "one")
				store.before = func() {
					b := startOn(t, tile.Seams{Authority: live, Store: w.store, Log: w.log}, "b:1",
						tile.Config{TakeOver: true, TickInterval: 10 * time.Millisecond, ConfirmEvery: 1})
					b.say(t, "y", "two")
					require.NoError(t, b.drain())
				}
				behind.restore(t, false)
				w.store.Update(testTile, func(s *memfence.State) { s.Owner = fence.Owner{} })

				o, err := a.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: "y", Body: []byte("two")})
				require.NoError(t, err)
				assert.Equal(t, stream.Applied, o.Outcome, "the later owner's outcome")
				a.say(t, "z", "three")
				require.Len(t, healed, 1)
				assert.True(t, healed[0].Rejoined)
				assert.Greater(t, a.Status().Epoch, later)
				require.NoError(t, a.drain())
				assert.Equal(t, []string{"one", "two", "three"}, w.history())
			})
		})
	}
}

// twin is what another owner of an epoch writes, to whom an authority that was restored has granted it too, and whom
// the store lets in because the owner hash is gone: an install and a word.
func (w *world) twin(t *testing.T, epoch fence.Epoch, word string) (at fence.Position) {
	var tick fence.Tick
	w.store.Update(testTile, func(m *memfence.State) { tick, m.Owner, at = m.Owner.Tick, fence.Owner{}, m.Last() })
	_, claim, err := (&stream.Batch{Claim: fence.NewClaimID()}).Encode()
	require.NoError(t, err)
	events, _, err := (&stream.Batch{Events: [][]byte{[]byte(word)}}).Encode()
	require.NoError(t, err)
	for i, c := range []fence.Commit{{Private: claim, Install: true}, {Payload: events}} {
		c.Tile, c.Epoch, c.Contact, c.Prev, c.Tick = testTile, epoch, "twin:1", at, tick+fence.Tick(1+i)
		r, err := w.store.Commit(context.Background(), c)
		require.NoError(t, err)
		at = r.Position
	}
	return at
}

// TestATwinCounts: the owner hash names another owner of this one's epoch, and the authority says that the epoch is
// this one's. The owner takes up what the twin has committed, or leaves the tile to it while it lives.
func TestATwinCounts(t *testing.T) {
	for _, lives := range []bool{false, true} {
		t.Run(fmt.Sprintf("lives=%v", lives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.start("a:1", tile.Config{})
				a.say(t, "x", "one")
				at := w.twin(t, a.Status().Epoch, "two")
				if !lives {
					a.say(t, "z", "three")
					require.NoError(t, a.drain())
					assert.Equal(t, []string{"one", "two", "three"}, w.history())
					return
				}
				presented := submit(a.TileProcessor, "z", "three")
				for tick := fence.Tick(2000); ; tick++ {
					_, err := w.store.Commit(t.Context(), fence.Commit{Tile: testTile, Epoch: at.Epoch,
						Contact: "twin:1", Prev: at, Tick: tick})
					require.NoError(t, err)
					select {
					case <-a.done:
						var sup *tile.SupersededError
						require.ErrorAs(t, a.err, &sup)
						assert.Equal(t, "twin:1", sup.Successor.Contact)
						require.ErrorIs(t, <-presented, tile.ErrUnresolved)
						return
					case <-time.After(100 * time.Millisecond):
					}
				}
			})
		})
	}
}

// TestATwinThatHasDiedCounts: an authority that was restored has granted an epoch twice. The other owner of it has
// served, and its owner hash has expired when this one is refused: nothing names it but the stream.
func TestATwinThatHasDiedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		store := &racedStore{Store: w.store}
		a := startOn(t, tile.Seams{Authority: w.authority, Store: store, Log: w.log}, "a:1", tile.Config{})
		a.say(t, "x", "one")
		store.before = func() {
			w.twin(t, 2, "two")
			w.store.Update(testTile, func(m *memfence.State) { m.Owner = fence.Owner{} })
		}
		w.authority.Authority = memfence.NewAuthority()
		w.store.Update(testTile, func(m *memfence.State) { m.Owner = fence.Owner{} })
		a.say(t, "z", "three")
		require.NoError(t, a.drain())
		assert.Equal(t, []string{"one", "two", "three"}, w.history())
	})
}
