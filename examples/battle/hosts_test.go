package main

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

// deploy starts every actor but the bots, on embedded back ends, and waits until all tiles are served and
// followed.
func deploy(t *testing.T, args ...string) *deployment {
	args = append([]string{"-stack", "embedded", "-listen", "127.0.0.1:0", "-clients", "0"}, args...)
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	logged := &screen{}
	ctx, p, err := newPlan(t.Context(), o, t.TempDir(), slog.New(slog.NewTextHandler(logged, nil)), io.Discard)
	require.NoError(t, err)
	t.Cleanup(p.backends.close)
	d := &deployment{plan: p}
	stop, err := d.run()
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, failed(ctx))
		stop()
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logged)
		}
		for _, e := range d.meters.Log.After(0) {
			if t.Failed() {
				t.Log(time.UnixMilli(e.At), e.Text)
			}
		}
		for _, h := range d.hosts.all() {
			for _, s := range h.Host().Status() {
				if t.Failed() {
					t.Logf("%s: tile %s %s, owner %s, dead %t", h.Contact(), s.Tile, s.State, s.Owner.Contact,
						h.line.Is(faultinject.Dead))
				}
			}
		}
	})
	waittest.Until(t, func() bool {
		for _, id := range d.world {
			for _, h := range d.hosts.all() {
				s := h.status(id)
				if s.State != tile.Serving && (s.State != tile.Following || !s.Owner.Present()) {
					return false
				}
			}
		}
		return true
	}, 30*time.Second, 20*time.Millisecond, "not every tile is served and followed")
	return d
}

// TestMembersHearOfADeath: the followers of a killed host's tiles go after them when they hear of its death,
// long before the silence of four ticks would tell them.
func TestMembersHearOfADeath(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-chaos", "-tiles", "2", "-hosts", "2", "-tick", "4s")
	var killed *host
	waittest.Until(t, func() bool {
		killed = d.hosts.owner(d.world[0])
		return killed != nil
	}, 30*time.Second, 20*time.Millisecond, "the tile moves without an end")
	d.logger.Info("test", "kills", killed.Contact())
	d.hosts.kill(killed)
	waittest.Until(t, func() bool {
		for _, e := range d.meters.Log.After(0) {
			if strings.Contains(e.Text, "heard that "+killed.Contact()+" is dead, and goes after ") {
				return true
			}
		}
		return false
	}, 30*time.Second, 20*time.Millisecond, "nobody heard of the death")
	waittest.Until(t, func() bool { return d.hosts.owner(d.world[0]) != nil }, 30*time.Second, 20*time.Millisecond)
}
