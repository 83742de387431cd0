package main

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// TestPilots: planners whose calls take seconds fly ships of every tile. The tiles tick on, plans are applied, each
// request is charged once, and one that a killed planner was at ends.
func TestPilots(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-tiles", "2", "-hosts", "2", "-tick", "50ms", "-clients", "8", "-lobby", "0")
	f, err := d.newFleet(d.view, d.intents)
	require.NoError(t, err)
	ctx, over := context.WithCancel(t.Context())
	played := make(chan error, 1)
	go func() { played <- f.Run(ctx, ctx) }()
	waittest.Until(t, func() bool { return d.pilot.status().Running > 0 }, time.Minute, 10*time.Millisecond)
	d.pilot.mu.Lock()
	w := d.pilot.workers[0]
	d.pilot.mu.Unlock()
	waittest.Until(t, func() bool { // a worker counts a request before its call has begun
		d.pilot.mu.Lock()
		defer d.pilot.mu.Unlock()
		return slices.Contains(slices.Collect(maps.Values(d.pilot.calls)), w.line)
	}, time.Minute, 10*time.Millisecond)
	lost := d.pilot.kill(w)
	require.NotEmpty(t, lost)
	waittest.Until(t, func() bool { return d.pilot.over(lost) }, time.Minute, 10*time.Millisecond)
	waittest.Until(t, func() bool {
		s := d.pilot.status()
		return s.Applied > 5 && s.Billed > 5 && s.Tokens > 5
	}, time.Minute, 10*time.Millisecond)
	s := d.pilot.status()
	require.Equal(t, []int{4, planWorkers - 1, 1}, []int{s.Ships, s.Workers, s.Killed})
	require.Zero(t, s.Dead)
	for i, status := range d.poller.Status().Tiles { // while calls are under way: ticks follow each other
		waittest.Until(t, func() bool {
			return d.pilot.status().Running > 0 && d.poller.Status().Tiles[i].Tick >= status.Tick+20
		}, time.Minute, 10*time.Millisecond, status.Tile)
	}
	over()
	require.NoError(t, <-played)
}
