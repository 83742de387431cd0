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
	admin, err := redisfence.New(coordination.admin, &redisfence.Config{Persistence: redisfence.Volatile})
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

// TestRepairersUser: what no owner has written can be found and removed, and nothing can be committed.
func TestRepairersUser(t *testing.T) {
	coordination := withUsers(t, "coordination.acl", stacktest.Redis(t))
	tile := fence.TileID(rand.Uint64()>>1 | 1)
	k := fence.KeysOf(tile)
	e := (&fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Prev: fence.Position{}}).Entry()
	for _, command := range [][]any{{"xadd", k.Stream, "1-0", "f", string(e.Frame)},
		{"xadd", k.Stream, "9-9", "f", "x"}, {"set", k.Owner, "x"}, {"hset", k.Marks, "shown", "x", "bridge", "2"}} {
		require.NoError(t, coordination.admin.Do(t.Context(), command...).Err())
	}
	client := coordination.as(t, "repairer")
	store, err := redisfence.New(client, nil)
	require.NoError(t, err)
	log := redisstream.New(store, client)
	x, err := log.Examine(t.Context(), tile, 0, "owner")
	require.NoError(t, err)
	require.Len(t, x.Damage, 4)
	require.NoError(t, log.Repair(t.Context(), x))
	x, err = log.Examine(t.Context(), tile, 0, "owner")
	require.NoError(t, err)
	require.Empty(t, x.Damage)
	for _, command := range [][]any{{"xadd", k.Stream, "2-0", "f", "x"}, {"xtrim", k.Stream, "MAXLEN", "0"},
		{"get", "elsewhere"}, {"fcall", "tilefence_mark_v1", "1", k.Marks, "bridge", "1", "0"}} {
		require.ErrorContains(t, client.Do(t.Context(), command...).Err(), "NOPERM", "%v", command)
	}
	_, err = redisstream.New(store, coordination.as(t, "operator")).Examine(t.Context(), tile, 0)
	require.ErrorContains(t, err, "NOPERM")
}
