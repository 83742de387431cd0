package tilehost_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// Of n tiles that began together no two tick within a third of the interval's n-th part.
func TestTilesTickApart(t *testing.T) {
	const n, interval = 37, 500 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var began []time.Duration // in the interval
		h := w.host("a:1", tilehost.Config{Tile: tile.Config{TickInterval: interval, Hooks: tile.Hooks{
			Ticked: func(i tile.TickInfo) {
				mu.Lock()
				defer mu.Unlock()
				began = append(began, time.Duration(time.Now().Add(-i.Took).UnixNano())%interval)
			}}}})
		mine := tiles(n)
		require.NoError(t, h.Own(mine...))
		require.NoError(t, h.Await(t.Context(), mine...))
		time.Sleep(interval)
		mu.Lock()
		began = began[:0]
		mu.Unlock()
		time.Sleep(interval)
		mu.Lock()
		require.InDelta(t, n, len(began), 1)
		slices.Sort(began)
		for i := 1; i < len(began); i++ {
			assert.Greater(t, began[i]-began[i-1], interval/n/3)
		}
		mu.Unlock()
		h.end(t)
	})
}
