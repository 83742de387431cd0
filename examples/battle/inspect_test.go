package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

func TestInspectorDecodesTheGame(t *testing.T) {
	const id fence.TileID = 0x85283083fffffff
	rules, err := newRules(id)
	require.NoError(t, err)
	join := tile.Intent{Tile: id, Actor: "ann", Body: game.Order{Kind: game.Spawn, Cell: 1200}.Encode()}
	events, _ := rules.Resolve(1, []tile.Intent{join})
	require.NoError(t, rules.Apply(1, events))
	snapshot, err := rules.Snapshot()
	require.NoError(t, err)
	state, err := decodeTile(id, snapshot)
	require.NoError(t, err)
	require.Len(t, state.(map[string]any)["ships"], 1)
	_, err = decodeTile(id, []byte("nonsense"))
	require.Error(t, err)
}

func TestWhoMayInspect(t *testing.T) {
	for _, c := range []struct {
		from, host string
		may        bool
	}{
		{"127.0.0.1:50000", "127.0.0.1:7000", true},
		{"[::1]:50000", "localhost:7000", true},
		{"10.0.0.8:50000", "127.0.0.1:7000", false},
		{"127.0.0.1:50000", "rebound.example:7000", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/inspect/tiles", nil)
		r.RemoteAddr, r.Host = c.from, c.host
		assert.Equal(t, c.may, onThisMachine(r) == nil, "%s asks for %s", c.from, c.host)
	}
}
