package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/faultinject/chaos"
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
	var kill *chaos.Injection
	breaker, workers := d.newChaos(), d.pilot.Status().Workers
	waittest.Until(t, func() bool { // once a worker is at a request
		kill, err = d.pilot.WorkerKilled().Choose(t.Context(), breaker)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, kill.Inject(t.Context()))
	require.NoError(t, kill.Repair(t.Context())) // when what it was at is over
	waittest.Until(t, func() bool {
		s := d.pilot.Status()
		return s.Applied > 5 && s.Billed > 5 && s.Tokens > 5
	}, time.Minute, 10*time.Millisecond)
	s := d.pilot.Status()
	require.Equal(t, []int{4, workers, 1}, []int{s.Ships, s.Workers, s.Killed})
	require.Zero(t, s.Dead)
	for i, status := range d.poller.Status().Tiles { // while calls are under way: ticks follow each other
		waittest.Until(t, func() bool {
			return d.pilot.Status().Running > 0 && d.poller.Status().Tiles[i].Tick >= status.Tick+20
		}, time.Minute, 10*time.Millisecond, status.Tile)
	}
	over()
	require.NoError(t, <-played)
}
