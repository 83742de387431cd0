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

// tell has a relay tell the highest epoch that it has shown.
func (w *world) tell(shown fence.Epoch) {
	w.t.Helper()
	err := stream.MarkOne(w.t.Context(), w.log, stream.MarkWrite{Tile: testTile, Consumer: stream.RelayMember("r"),
		Seq: 1 << 40, Shown: shown})
	require.NoError(w.t, err)
}

// TestAnOwnerBelowWhatWatchersWereShownGoesAbove: store and authority have both forgotten an owner. Watchers have not,
// and would refuse everything that this one commits, for ever.
func TestAnOwnerBelowWhatWatchersWereShownGoesAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var healed []tile.HealInfo
		cfg := tile.Config{SnapshotEvery: 5}
		cfg.Hooks.Healed = func(i tile.HealInfo) {
			mu.Lock()
			defer mu.Unlock()
			healed = append(healed, i)
		}
		p := w.start("a:1", cfg)
		var want []string
		say := func(n int) {
			for range n {
				word := fmt.Sprint("w", len(want))
				assert.Equal(t, stream.Applied, p.say(t, word, word))
				want = append(want, word)
			}
		}
		say(12)
		w.tell(1)
		say(12)
		assert.EqualValues(t, 1, p.Status().Epoch, "its own epoch is nothing new")
		w.tell(41)
		say(12)
		assert.EqualValues(t, 42, p.Status().Epoch)
		mu.Lock()
		require.Len(t, healed, 1)
		assert.True(t, healed[0].Rebased)
		mu.Unlock()
		say(12)
		assert.EqualValues(t, 42, p.Status().Epoch)
		assert.Equal(t, stream.Applied, p.say(t, "w3", "again"), "it remembers")
		assert.Equal(t, want, w.history())

		w.tell(fence.MaxNumber) // nonsense must not use the epochs up
		say(12)
		assert.EqualValues(t, 42, p.Status().Epoch)
		require.NoError(t, p.drain())
		assert.Equal(t, want, w.history())
	})
}

// TestAnOwnerThatWasReplacedDoesNotGoAbove: the authority has another owner, which is the one to do it.
func TestAnOwnerThatWasReplacedDoesNotGoAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{SnapshotEvery: 5})
		for i := range 10 {
			a.say(t, "", fmt.Sprint("w", i))
		}
		w.tell(9)
		b := w.process("b:1", tile.Config{SnapshotEvery: 5, TakeOver: true})
		b.eventually(t, tile.Serving, time.Minute)
		a.eventually(t, tile.StoodDown, time.Minute)
		for i := range 10 {
			b.say(t, "", fmt.Sprint("v", i))
		}
		assert.EqualValues(t, 10, b.Status().Epoch)
		assert.Len(t, w.history(), 20)
	})
}

// meddled is a log behind whose back something happens when a trim comes.
type meddled struct {
	stream.Log
	once      sync.Once
	meanwhile func()
}

func (m *meddled) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	m.once.Do(m.meanwhile)
	return m.Log.Trim(ctx, r)
}

// TestAnOwnerThatIsToldOfALaterOneReadsTheStore: the authority has forgotten the later owner, whose owner hash is gone,
// but the stream has what it committed. The owner before it slept meanwhile, and hears of it by a trim first.
func TestAnOwnerThatIsToldOfALaterOneReadsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		authority := &restorable{now: memfence.NewAuthority()}
		log := &meddled{Log: w.log, meanwhile: func() {
			later := startOn(t, tile.Seams{Authority: authority, Store: w.store, Log: w.log}, "b:1",
				tile.Config{TakeOver: true, TickInterval: time.Millisecond, ConfirmEvery: 1})
			later.say(t, "y", "two")
			w.tell(later.Status().Epoch)
			require.NoError(t, later.drain())
			w.store.Update(testTile, func(s *memfence.State) { s.Owner = fence.Owner{} })
			authority.restore(t, true)
		}}
		var healed []tile.HealInfo
		hooks := tile.Hooks{Healed: func(i tile.HealInfo) { healed = append(healed, i) }}
		old := startOn(t, tile.Seams{Authority: authority, Store: w.store, Log: log}, "a:1",
			tile.Config{SnapshotEvery: 2, Hooks: hooks})
		old.say(t, "x", "one")
		time.Sleep(time.Minute)
		old.say(t, "z", "three")
		require.NotEmpty(t, healed)
		assert.True(t, healed[0].Rejoined, "%+v", healed)
		require.NoError(t, old.drain())
		assert.Equal(t, []string{"one", "two", "three"}, w.history())
	})
}

// TestAnOwnerOfAQuietTileHearsWhatWatchersWereShown: it saves no snapshot, since nothing is committed, but trims.
func TestAnOwnerOfAQuietTileHearsWhatWatchersWereShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("a:1", tile.Config{SnapshotEvery: 5})
		p.say(t, "", "one")
		time.Sleep(time.Minute)
		w.tell(41)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 42, p.Status().Epoch)
		require.NoError(t, p.drain())
		assert.Equal(t, []string{"one"}, w.history())
	})
}
