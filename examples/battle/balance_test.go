package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

// TestHandOvers: after one host was made the owner of everything, its tiles are handed over one at a time until
// they lie evenly, and those it gave away it follows.
func TestHandOvers(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-tiles", "6", "-hosts", "3", "-tick", "100ms", "-balance-every", "1s")
	greedy := d.hosts.all()[0]
	for _, id := range d.world[1:] {
		if d.hosts.owner(id) != greedy {
			require.NoError(t, greedy.Host().TakeOver(id))
		}
	}
	count := func(h *host, in tile.State) (n int) {
		for _, id := range d.world {
			if h.status(id).State == in {
				n++
			}
		}
		return n
	}
	waittest.Until(t, func() bool { return count(greedy, tile.Serving) == 6 }, time.Minute, 10*time.Millisecond)
	waittest.Until(t, func() bool {
		for _, h := range d.hosts.all() {
			if count(h, tile.Serving) != 2 {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond, "the tiles still lie unevenly")
	waittest.Until(t, func() bool { return count(greedy, tile.Following) == 4 }, time.Minute, 10*time.Millisecond,
		"it keeps no warm copy of what it gave away")
	// A hand-over is counted after the taker serves.
	waittest.Until(t, func() bool {
		n, err := d.totals()
		return err == nil && n["tile_takeover_seconds/handed_over"] >= 4
	}, time.Minute, 10*time.Millisecond)
}
