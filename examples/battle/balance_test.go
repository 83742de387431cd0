package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

func TestUneven(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		counts       []int
		most, fewest int
		ok           bool
	}{
		{[]int{6, 1, 0}, 0, 2, true},
		{[]int{1, 0, 3}, 2, 1, true},
		{[]int{4, 3, 0}, 0, 2, true},
		{[]int{2, 0, 0}, 0, 1, true},
		{[]int{3, 2, 2}, 0, 1, false},
		{[]int{2, 1, 0}, 0, 2, false},
		{[]int{3, 1}, 0, 1, false},
		{[]int{0, 0}, 0, 0, false},
		{[]int{7}, 0, 0, false},
	} {
		var all []load
		for _, n := range c.counts {
			all = append(all, load{host: &host{}, tiles: make([]tile.Status, n)})
		}
		most, fewest, ok := uneven(all)
		require.Equal(t, c.ok, ok, c.counts)
		if ok {
			assert.Same(t, all[c.most].host, most.host, c.counts)
			assert.Same(t, all[c.fewest].host, fewest.host, c.counts)
		}
	}
}

// TestHandOvers: after one host was made the owner of everything, its tiles are handed over one at a time until
// they lie evenly, and those it gave away it follows.
func TestHandOvers(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-tiles", "6", "-hosts", "3", "-tick", "100ms", "-balance-every", "100ms")
	greedy := d.hosts.all()[0]
	for _, id := range d.world[1:] {
		if d.hosts.owner(id) != greedy {
			require.NoError(t, greedy.Host().TakeOver(id))
		}
	}
	counts := func() (n []int) {
		for _, l := range d.loads() {
			n = append(n, len(l.tiles))
		}
		slices.Sort(n)
		return n
	}
	waittest.Until(t, func() bool { return slices.Equal(counts(), []int{0, 0, 6}) }, 20*time.Second,
		10*time.Millisecond)
	t.Cleanup(d.start(d.balance))
	waittest.Until(t, func() bool { _, _, ok := uneven(d.loads()); return !ok && counts()[0] > 0 },
		20*time.Second, 10*time.Millisecond,
		"the tiles still lie unevenly")
	waittest.Until(t, func() bool {
		followed := 0
		for _, id := range d.world {
			if s := greedy.status(id); s.State == tile.Following {
				followed++
			}
		}
		return followed >= 3
	}, 20*time.Second, 10*time.Millisecond, "it keeps no warm copy of what it gave away")
	// A hand-over is counted after the taker serves.
	waittest.Until(t, func() bool {
		n, err := d.totals()
		return err == nil && n["tile_takeover_seconds/handed_over"] >= 3
	}, 20*time.Second, 10*time.Millisecond)
}
