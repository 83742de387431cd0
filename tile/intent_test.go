package tile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// TestIntentLimits: an intent is judged by the same rule wherever it is judged, and the first wrong field is named.
func TestIntentLimits(t *testing.T) {
	long := strings.Repeat("x", tile.MaxName)
	for _, in := range []tile.Intent{
		{Tile: 1}, {Tile: 1, ActionID: long, Actor: long, Body: make([]byte, tile.MaxIntentBody)}, {Tile: 1,
			Actor: "é🂡\"<>&"},
	} {
		require.NoError(t, in.Validate())
	}
	for _, c := range []struct {
		field string
		in    tile.Intent
	}{
		{"tile", tile.Intent{ActionID: "\xff", Actor: "\xff", Body: make([]byte, tile.MaxIntentBody+1)}},
		{"action ID", tile.Intent{Tile: 1, ActionID: "\xff", Actor: "\xff"}},
		{"action ID", tile.Intent{Tile: 1, ActionID: long + "x"}},
		{"action ID", tile.Intent{Tile: 1, ActionID: "a\nb"}},
		{"action ID", tile.Intent{Tile: 1, ActionID: "\ufffd"}},
		{"actor", tile.Intent{Tile: 1, Actor: "a\xc3"}},
		{"actor", tile.Intent{Tile: 1, Actor: "\x7f"}},
		{"actor", tile.Intent{Tile: 1, Actor: "ann\u202egnp"}},
		{"action ID", tile.Intent{Tile: 1, ActionID: "a\u200bb"}},
		{"body", tile.Intent{Tile: 1, Body: make([]byte, tile.MaxIntentBody+1)}},
	} {
		var bad *fence.ArgumentError
		require.ErrorAs(t, c.in.Validate(), &bad)
		require.Equal(t, c.field, bad.Field)
	}
	require.Error(t, tile.ValidateName("actor", ""))
}
