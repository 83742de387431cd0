package redisshare_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/share/redisshare"
)

func TestWorld(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	fencetest.RunWorld(t, false, func(_ *testing.T, w fence.World) fence.WorldKeeper {
		return redisshare.New(client, fence.World{Name: w.Name})
	})
}

// TestWorldsDivideTheirOwnTiles: the bridges of two worlds on one server are not on one list.
func TestWorldsDivideTheirOwnTiles(t *testing.T) {
	client, group := newClient(t, stacktest.Fanout(t)), stacktest.UniqueName(t)
	for _, name := range []string{"", "staging", "production"} {
		m := redisshare.New(client, fence.World{Name: name})
		living, _, err := m.Beat(t.Context(), group, "bridge-of-"+name, 3*time.Second)
		require.NoError(t, err)
		require.Equal(t, []string{"bridge-of-" + name}, living)
	}
	_, _, err := redisshare.New(client, fence.World{Name: "{"}).Beat(t.Context(), group, "a", time.Second)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
