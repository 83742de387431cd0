package acl_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/share/redisshare"
)

// TestUsersOfAWorld: the users of a world record and read which world a server belongs to, work under its name, and can
// do nothing in another.
func TestUsersOfAWorld(t *testing.T) {
	w := fence.World{Name: "w" + fence.NewWorldID().String()[:12], ID: fence.NewWorldID()}
	stores := withUsersOf(t, w.Name, "coordination.acl", stacktest.Redis(t))
	lists := withUsersOf(t, w.Name, "fanout.acl", stacktest.Fanout(t))
	coordination := func(actor string, name string) fence.WorldKeeper {
		s, err := redisfence.New(stores.as(t, actor), &redisfence.Config{World: fence.World{Name: name}})
		require.NoError(t, err)
		return s
	}
	delivery := func(actor string, name string) fence.WorldKeeper {
		f, err := redisfanout.New(lists.as(t, actor), &redisfanout.Config{World: fence.World{Name: name}})
		require.NoError(t, err)
		return f
	}
	for _, at := range []func(actor, name string) fence.WorldKeeper{coordination, delivery} {
		found, err := at("relay", w.Name).EnterWorld(t.Context(), w)
		require.NoError(t, err, "a reader leaves it to a writer")
		require.True(t, found.ID.IsZero())
		for _, actor := range []string{"owner", "bridge", "checkpointer", "relay"} {
			found, err := at(actor, w.Name).EnterWorld(t.Context(), w)
			require.NoError(t, err, actor)
			require.Equal(t, w, found, actor)
			_, err = at(actor, "").EnterWorld(t.Context(), fence.World{})
			require.ErrorContains(t, err, "NOPERM", actor)
		}
	}
	group := "bridge" + stacktest.UniqueName(t)
	_, _, err := redisshare.New(lists.as(t, "bridge"), w).Beat(t.Context(), group, "a", time.Second)
	require.NoError(t, err)
	_, _, err = redisshare.New(lists.as(t, "bridge"), fence.World{}).Beat(t.Context(), group, "a", time.Second)
	require.ErrorContains(t, err, "NOPERM")
}
