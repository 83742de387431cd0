package redisfence_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/redisfence"
)

func TestWorld(t *testing.T) {
	t.Parallel()
	fencetest.RunWorld(t, false, func(t *testing.T, w fence.World) fence.WorldKeeper {
		store, _ := newStore(t, &redisfence.Config{World: fence.World{Name: w.Name}})
		return store
	})
}

// TestLoadRefusesAnotherWorld: a process of another deployment is refused before it can claim anything.
func TestLoadRefusesAnotherWorld(t *testing.T) {
	t.Parallel()
	w := fence.World{Name: "w" + fence.NewWorldID().String()[:12], ID: fence.NewWorldID()}
	store, client := newStore(t, &redisfence.Config{World: w})
	stranger, err := redisfence.New(client, &redisfence.Config{AllowNoPersistence: true,
		World: fence.World{Name: w.Name, ID: fence.NewWorldID()}})
	require.NoError(t, err)
	require.ErrorIs(t, stranger.Load(t.Context()), fence.ErrWorld)
	require.NoError(t, store.Load(t.Context()))
	_, err = redisfence.New(client, &redisfence.Config{World: fence.World{Name: "{"}})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
