package tilefence_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// muffled is a bell without a sound.
type muffled struct{ bell }

func (m *muffled) Apply(_ fence.Tick, events [][]byte) error {
	if len(events) > 0 {
		panic("no clapper")
	}
	return nil
}

// TestAQuarantinedTileIsSeen: two servers and a gateway meet a tile that cannot be folded. Health, log and inspector
// say so, clients are refused with a code of its own, the neighbour plays on, and no server loops.
func TestAQuarantinedTileIsSeen(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	log, text := logged()
	rules := func(id fence.TileID) (tile.Rules, error) {
		if id == plaza {
			return &muffled{}, nil
		}
		return newBell(id)
	}
	var servers []*tilefence.TileServer
	for range 2 {
		l := listen(t)
		cfg := &tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}, Logger: log, Spawn: always}
		cfg.Host.Tile.TickInterval = 20 * time.Millisecond
		s, err := tilefence.NewTileServer(l.Addr().String(), b, rules, cfg)
		require.NoError(t, err)
		start(t, s)
		servers = append(servers, s)
	}
	gateway, err := tilefence.NewGatewayServer("127.0.0.1:0", b, anybody, free,
		&tilefence.GatewayServerConfig{Spawn: true})
	require.NoError(t, err)
	start(t, gateway)
	require.NoError(t, servers[0].Own(plaza, harbour))
	await(t, servers[0], plaza)
	await(t, servers[0], harbour)
	require.NoError(t, servers[1].Own(plaza, harbour))
	follows(t, servers[1], plaza)
	_, err = servers[0].Submit(t.Context(), tile.Intent{Tile: plaza})
	require.ErrorIs(t, err, tile.ErrUnresolved)

	const said = "TileServer: rules: tiles are quarantined: an operator must decide how they go on (1, such as "
	becomes(t, servers[0], said+plaza.String())
	waittest.Until(t, func() bool { return text.count("level=ERROR msg=\"tile is quarantined") > 0 },
		10*time.Second, 10*time.Millisecond)
	g, err := b.Authority.Lookup(t.Context(), plaza)
	require.NoError(t, err)
	inspector, err := inspect.New(servers[0], b.Log, func(*http.Request) error { return nil }, nil)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	inspector.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/tiles", nil))
	var page struct {
		Tiles []struct{ State, Problem string }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
	require.Equal(t, "quarantined", page.Tiles[0].State)
	assert.Contains(t, page.Tiles[0].Problem, "Apply: no clapper")

	waittest.Until(t, func() bool {
		_, err := gateway.Gateway().Move(t.Context(), tile.Intent{Tile: plaza, Actor: "ann"})
		return errors.Is(err, tile.ErrQuarantined)
	}, 20*time.Second, 50*time.Millisecond)
	outcome, err := gateway.Gateway().Move(t.Context(), tile.Intent{Tile: harbour, Actor: "ann"})
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, outcome.Outcome)
	becomes(t, servers[1], said) // it has followed the tile, and asks for it in its turn
	now, err := b.Authority.Lookup(t.Context(), plaza)
	require.NoError(t, err)
	assert.Equal(t, g, now, "no server has taken it")
}
