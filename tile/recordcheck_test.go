package tile_test

import (
	"context"
	"fmt"
	"sync/atomic"
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

// grant has a claimant granted the tile that does nothing with it.
func (w *world) grant(contact string) fence.Grant {
	w.t.Helper()
	now, err := w.authority.Lookup(w.t.Context(), testTile)
	require.NoError(w.t, err)
	g, err := w.authority.Promote(w.t.Context(), fence.Claim{Tile: testTile, Contact: contact,
		ID: fence.NewClaimID(), Expected: now.Epoch})
	require.NoError(w.t, err)
	return g
}

// agree requires that authority and owner hash name an owner's one epoch.
func (w *world) agree(contact string, e fence.Epoch) {
	w.t.Helper()
	g, err := w.authority.Lookup(w.t.Context(), testTile)
	require.NoError(w.t, err)
	assert.Equal(w.t, contact, g.Contact)
	assert.Equal(w.t, e, g.Epoch)
	o, err := w.store.Owner(w.t.Context(), testTile)
	require.NoError(w.t, err)
	assert.Equal(w.t, contact, o.Contact)
	assert.Equal(w.t, e, o.Epoch)
}

// cutOff cuts a replica's link, or mends it.
func (s *shard) cutOff(replica int, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[replica] = cut
}

// twoLooks is how long an owner needs to notice, with the default RetryWindow.
const twoLooks = 2*time.Minute + 5*time.Second

// TestAnOwnerGoesAboveAClaimThatWasNotTakenUp: the claimant died before its install, or let the tile go, or the
// authority has forgotten the owner. The store refuses nothing, so the record would stay as it is until the tile moves.
func TestAnOwnerGoesAboveAClaimThatWasNotTakenUp(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(w *world)
		epoch fence.Epoch // that the owner has afterwards
	}{
		"died":               {func(w *world) { w.grant("dead:1") }, 3},
		"died, at our place": {func(w *world) { w.grant("a:1") }, 3},
		"released": {func(w *world) {
			require.NoError(w.t, w.authority.Release(w.t.Context(), w.grant("gone:1")))
		}, 3},
		"forgotten": {func(w *world) { w.authority.Authority = memfence.NewAuthority() }, 2},
	} {
		for _, class := range classes {
			t.Run(fmt.Sprint(name, "/", class), func(t *testing.T) {
				onShard(t, func(t *testing.T, s *shard, sh *shelf) {
					a := s.spawn("a:1", sh, tile.Config{Durability: class})
					want := a.words(t, "a", 12)
					c.leave(s.w)
					want = append(want, a.words(t, "b", 12)...)
					time.Sleep(twoLooks)
					s.w.agree("a:1", c.epoch)
					want = append(want, a.words(t, "c", 12)...)
					assert.Equal(t, stream.Applied, a.say(t, "a3", "again"), "it remembers")
					assert.Equal(t, tile.Serving, a.Status().State)
					time.Sleep(10 * time.Minute)
					s.w.agree("a:1", c.epoch)
					require.NoError(t, a.drain())
					assert.Equal(t, want, s.w.history())
				})
			})
		}
	}
}

// An install that was delayed for minutes arrives after all: the epoch that the owner has gone to fences it.
func TestAnInstallThatArrivesLateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		for i := range 5 {
			a.say(t, "", fmt.Sprint("w", i))
		}
		g := w.grant("late:1")
		at, err := w.log.Last(t.Context(), testTile)
		require.NoError(t, err)
		_, claim, err := (&stream.Batch{Claim: g.ID}).Encode()
		require.NoError(t, err)
		time.Sleep(twoLooks)
		w.agree("a:1", 3)
		_, err = w.store.Commit(t.Context(), fence.Commit{Tile: testTile, Epoch: g.Epoch, Contact: "late:1", Prev: at,
			Private: claim, Install: true})
		require.ErrorIs(t, err, fence.ErrStale)
		a.say(t, "", "w5")
		assert.Len(t, w.history(), 6)
		require.Len(t, a.healed, 1)
		assert.True(t, a.healed[0].Reclaimed)
	})
}

// TestAnOwnerLeavesAClaimantTime: one look is none. A claimant that lives installs itself, or gives up.
func TestAnOwnerLeavesAClaimantTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "w0")
		for range 10 { // each time another epoch
			w.grant("b:1")
			time.Sleep(45 * time.Second)
		}
		assert.EqualValues(t, 1, a.Status().Epoch)
		b := w.process("b:1", tile.Config{TakeOver: true})
		b.eventually(t, tile.Serving, time.Second)
		a.eventually(t, tile.StoodDown, time.Second)
		time.Sleep(twoLooks)
		assert.EqualValues(t, 12, b.Status().Epoch)
	})
}

// A quarantine is the operator's, although an owner that could fold the history lives.
func TestAnOwnerLeavesAQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "w0")
		contact, err := (&fence.Quarantine{By: "f:1", Reason: "x"}).Contact()
		require.NoError(t, err)
		w.grant(contact)
		time.Sleep(2 * twoLooks)
		a.say(t, "", "w1")
		assert.EqualValues(t, 1, a.Status().Epoch)
	})
}

// While a replica is down no install is confirmed, and one that waits would stop the tile. The owner goes on below the
// record, and goes above it when the replica is back.
func TestAnOwnerDoesNotStopForAClaimThatWasNotTakenUp(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{})
		a.words(t, "a", 3)
		s.w.grant("dead:1")
		s.cutOff(1, true)
		for i := range 120 {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			_, err := a.Submit(ctx, tile.Intent{Tile: testTile, Body: fmt.Append(nil, "b", i)})
			cancel()
			require.NoError(t, err)
			time.Sleep(3 * time.Second)
		}
		assert.EqualValues(t, 1, a.Status().Epoch)
		s.cutOff(1, false)
		time.Sleep(twoLooks)
		s.w.agree("a:1", 3)
		require.NoError(t, a.drain())
		assert.Len(t, s.w.history(), 123)
	})
}

// An authority that does not answer holds up no tick, and is not taken for one that has forgotten the tile.
func TestALookAtASilentAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "w0")
		w.grant("dead:1")
		a.line.set(func(l *line) { l.authority = true })
		time.Sleep(2 * twoLooks)
		a.say(t, "", "w1")
		assert.EqualValues(t, 1, a.Status().Epoch)
		a.line.set(func(l *line) { l.authority = false })
		time.Sleep(twoLooks)
		w.agree("a:1", 3)
	})
}

// What the store does just before the owner's install arrives: it takes the other's, which then commits, or loses all.
func TestAnOwnerThatGoesAboveMeetsAnotherHistory(t *testing.T) {
	for name, c := range map[string]struct {
		before func(w *world, g fence.Grant, own fence.Commit)
		adds   []string
	}{
		"taken up after all": {func(w *world, g fence.Grant, own fence.Commit) {
			at := own.Prev
			for _, b := range []stream.Batch{{Claim: g.ID}, {Events: [][]byte{[]byte("theirs")}}} {
				public, private, err := b.Encode()
				require.NoError(w.t, err)
				r, err := w.store.Commit(context.Background(), fence.Commit{Tile: testTile, Epoch: g.Epoch,
					Contact: g.Contact, Prev: at, Tick: own.Tick, Payload: public, Private: private,
					Install: b.Claim != fence.ClaimID{}})
				require.NoError(w.t, err)
				at = r.Position
			}
		}, []string{"theirs"}},
		"lost": {func(w *world, _ fence.Grant, _ fence.Commit) {
			w.store.Update(testTile, func(m *memfence.State) { *m = memfence.State{} })
		}, nil},
		"cut short": {func(w *world, _ fence.Grant, _ fence.Commit) {
			w.store.Update(testTile, func(m *memfence.State) {
				m.Entries = m.Entries[:len(m.Entries)-1]
				last := m.Entries[len(m.Entries)-1]
				m.Owner.Position, m.Owner.Tick = last.Position, last.Tick
			})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var g atomic.Pointer[fence.Grant]
				commit := func(ctx context.Context, o fence.Commit) (fence.Receipt, error) {
					if o.Install && o.Epoch == 3 {
						c.before(w, *g.Load(), o)
					}
					return w.store.Commit(ctx, o)
				}
				a := w.process("a:1", tile.Config{SnapshotEvery: never, Commit: commit})
				want := []string{"w0", "w1"}
				for _, word := range want {
					a.say(t, word, word)
				}
				late := w.grant("late:1")
				g.Store(&late)
				time.Sleep(twoLooks)
				w.agree("a:1", 4)
				a.say(t, "w2", "w2")
				want = append(append(want, c.adds...), "w2")
				a.stop()
				<-a.done
				assert.Equal(t, want, a.rules.Words)
			})
		})
	}
}
