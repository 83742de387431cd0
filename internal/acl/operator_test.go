package acl_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// TestOperatorsUser: dead letters can be read, handed over and removed, and nothing else is touched.
func TestOperatorsUser(t *testing.T) {
	coordination, delivery := withUsers(t, "coordination.acl", stacktest.Redis(t)),
		withUsers(t, "fanout.acl", stacktest.Fanout(t))
	tile := fence.TileID(rand.Uint64()>>1 | 1)
	admin, err := redisfence.New(coordination.admin, &redisfence.Config{AllowNoPersistence: true})
	require.NoError(t, err)
	require.NoError(t, admin.Load(t.Context()))
	require.NoError(t, redisstream.New(admin, coordination.admin).DeadLetter(t.Context(),
		stream.Poison{Tile: tile, Seq: 1, Reason: "test"}))

	client := coordination.as(t, "operator")
	_, log := logAs(t, client)
	letters, err := log.DeadLetters(t.Context(), tile)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	found, err := log.RemoveDeadLetter(t.Context(), tile, letters[0].Letter)
	require.NoError(t, err)
	require.True(t, found)
	_, err = log.Stat(t.Context(), []fence.TileID{tile})
	require.NoError(t, err)
	pub, err := redisfanout.New(delivery.as(t, "operator"), nil)
	require.NoError(t, err)
	_, err = pub.Publish(t.Context(), []fanout.Message{{Tile: tile, Data: []byte("frame")}})
	require.NoError(t, err)

	k := fence.KeysOf(tile)
	for _, command := range [][]any{{"xdel", k.Stream, "1-0"}, {"hset", k.Owner, "a", "b"}, {"del", k.Dead},
		{"xadd", k.Dead, "*", "a", "b"},
		{"fcall", "tilefence_mark_v1", "1", k.Marks, "bridge", "1", "0"}} {
		require.ErrorContains(t, client.Do(t.Context(), command...).Err(), "NOPERM", "%v", command)
	}
}
