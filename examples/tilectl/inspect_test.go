package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

// still is a game whose state stays as it is.
type still struct{}

func (still) Resolve(_ fence.Tick, in []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range in {
		events, outcomes = append(events, []byte("calm")), append(outcomes, stream.Applied)
	}
	return events, outcomes
}
func (still) Apply(fence.Tick, [][]byte) error { return nil }
func (still) Snapshot() ([]byte, error)        { return []byte("calm"), nil }
func (still) Restore([]byte) error             { return nil }

// TestInspect: the inspectors of two running servers show a tile, its state, and move it from one to the other and
// back.
func TestInspect(t *testing.T) {
	const id fence.TileID = 0x85283083fffffff
	store := memfence.New()
	b := tilefence.Backends{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store),
		Fanout: memfanout.New(), Durable: memcheckpoint.New(), Workers: share.NewMemory(), Members: new(route.Group)}
	t.Setenv("TILEFENCE_INSPECTOR_TOKEN", "secret")
	var servers []*tilefence.TileServer
	var sites []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		cfg := &tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}}
		cfg.Host.Tile.TickInterval, cfg.Host.Tile.SnapshotEvery = 20*time.Millisecond, 2
		s, err := tilefence.NewTileServer(l.Addr().String(), b, func(fence.TileID) (tile.Rules, error) {
			return still{}, nil
		}, cfg)
		require.NoError(t, err)
		page, err := inspect.New(s, b.Log, func(r *http.Request) error {
			if r.Header.Get("Authorization") != "Bearer secret" {
				return errors.New("no token")
			}
			return nil
		}, &inspect.Config{Control: true})
		require.NoError(t, err)
		site := httptest.NewServer(page)
		t.Cleanup(site.Close)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
		servers, sites = append(servers, s), append(sites, site.URL)
	}
	tilectl := func(server int, args ...string) string {
		var out, errs bytes.Buffer
		status := run(t.Context(), append([]string{"-inspector", sites[server], "inspect"}, args...), nil, &out, &errs)
		require.Zero(t, status, errs.String())
		return out.String()
	}
	shows := func(server int, text string) {
		waittest.Until(t, func() bool { return strings.Contains(tilectl(server, id.String()), text) }, 20*time.Second,
			10*time.Millisecond)
	}
	require.NoError(t, servers[0].Own(id))
	require.NoError(t, servers[0].Host().Await(t.Context(), id))
	require.NoError(t, servers[1].Follow(id))
	shows(0, "serving")
	shows(1, "following")
	assert.Contains(t, tilectl(0), servers[0].Contact())
	tilectl(1, "takeover", id.String())
	shows(1, "serving")
	tilectl(1, "drain", id.String(), servers[0].Contact())
	shows(0, "serving")
	_, err := servers[0].Submit(t.Context(), tile.Intent{Tile: id, Actor: "ann"})
	require.NoError(t, err)
	waittest.Until(t, func() bool { // a snapshot is saved
		var out, errs bytes.Buffer
		args := []string{"-inspector", sites[0], "inspect", "state", id.String()}
		return run(t.Context(), args, nil, &out, &errs) == 0 && strings.Contains(out.String(), `"state":{"bytes":4}`)
	}, 20*time.Second, 10*time.Millisecond)

	var out, errs bytes.Buffer
	assert.NotZero(t, run(t.Context(), []string{"-inspector", "", "inspect"}, nil, &out, &errs))
	assert.Contains(t, errs.String(), "TILEFENCE_INSPECTOR")
}
