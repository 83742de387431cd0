package main

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/tile"
)

// deploy starts every actor but the bots, on embedded back ends, and waits until all tiles are served and
// followed.
func deploy(t *testing.T, args ...string) *deployment {
	o, err := parse(append([]string{"-listen", "127.0.0.1:0", "-clients", "0"}, args...), io.Discard)
	require.NoError(t, err)
	world, err := o.world()
	require.NoError(t, err)
	b, err := openBackends(t.Context(), o, t.TempDir(), io.Discard)
	require.NoError(t, err)
	t.Cleanup(b.close)
	logged := &screen{}
	d := &deployment{options: o, backends: b, world: world, crew: newCrew(t.Context()), joins: inGroup(new(route.Group)),
		meters: newMeters(), logger: slog.New(slog.NewTextHandler(logged, nil)), errs: io.Discard}
	t.Cleanup(d.stopAll)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logged)
		}
		for _, e := range d.meters.log.after(0) {
			if t.Failed() {
				t.Log(time.UnixMilli(e.At), e.Text)
			}
		}
		for _, h := range d.hosts.all() {
			for _, s := range h.Status() {
				if t.Failed() {
					t.Logf("%s: tile %s %s, owner %s, dead %t", h.contact, s.Tile, s.State, s.Owner.Contact, h.line.is(dead))
				}
			}
		}
	})
	require.NoError(t, d.start())
	require.Eventually(t, func() bool {
		for _, id := range world {
			for _, h := range d.hosts.all() {
				s, _ := h.TileStatus(id)
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
	killed := d.hosts.owner(d.world[0])
	d.logger.Info("test", "kills", killed.contact)
	d.hosts.kill(killed)
	require.Eventually(t, func() bool {
		for _, e := range d.meters.log.after(0) {
			if strings.Contains(e.Text, "heard that "+killed.contact+" is dead, and goes after 1 tile") {
				return true
			}
		}
		return false
	}, 30*time.Second, 20*time.Millisecond, "nobody heard of the death")
	require.Eventually(t, func() bool { return d.hosts.owner(d.world[0]) != nil }, 30*time.Second, 20*time.Millisecond)
}
