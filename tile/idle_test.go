package tile_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

func idle(tb testing.TB, refreshEvery int) *tile.TileProcessor {
	w := newWorld(nil)
	p, err := tile.New(testTile, "a:1", tile.Seams{Authority: w.authority, Store: w.store, Log: w.log}, &ledgerRules{},
		&tile.Config{RefreshEvery: refreshEvery, TickInterval: 100 * time.Millisecond})
	require.NoError(tb, err)
	require.NoError(tb, p.BootOnly(tb.Context()))
	return p
}

// BenchmarkIdleTick is a tick of a tile in which nothing happens, over memory.
func BenchmarkIdleTick(b *testing.B) {
	for _, every := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("refresh every %d", every), func(b *testing.B) {
			p := idle(b, every)
			b.ReportAllocs()
			for b.Loop() {
				if err := p.PlayTicks(context.Background(), 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestQuietTickAllocatesNothing(t *testing.T) {
	p := idle(t, 150)
	require.NoError(t, p.PlayTicks(t.Context(), 10))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = p.PlayTicks(context.Background(), 1) }))
}

func TestIdleOwnerRefreshesAndLearnsOfItsSuccessorInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{RefreshEvery: 10, SnapshotEvery: 7})
		a.say(t, "", "one")
		time.Sleep(10 * time.Second)
		before := 0
		a.line.set(func(l *line) { before = l.writes })
		time.Sleep(50 * time.Second)
		a.line.set(func(l *line) { assert.InDelta(t, 10, l.writes-before, 1) })
		assert.Greater(t, a.Status().Tick, fence.Tick(110), "ticks are played all the same")
		b := w.process("b:1", tile.Config{TakeOver: true})
		b.eventually(t, tile.Serving, time.Second)
		a.eventually(t, tile.StoodDown, 5*time.Second+500*time.Millisecond)
		require.NoError(t, b.drain())
	})
}

func TestForgottenBatchesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{ConfirmEvery: never, Limits: tile.Limits{KeepBytes: 5 * 170}})
		for i := range 20 {
			a.say(t, "", fmt.Sprint(i))
		}
		assert.InDelta(t, 16, a.Status().Forgotten, 1)
		assert.Equal(t, 5, a.Status().Kept)
		require.NoError(t, a.drain())
	})
}
