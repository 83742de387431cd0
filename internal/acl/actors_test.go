package acl_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// logAs is a stream.Log of one user.
func logAs(t *testing.T, c *redis.ClusterClient) (*redisfence.Store, *redisstream.Log) {
	t.Helper()
	store, err := redisfence.New(c, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	return store, redisstream.New(store, c)
}

// TestEveryActorWorksUnderItsUser: a tile is installed, committed, snapshotted and trimmed by an owner,
// forwarded by a bridge, checkpointed, and repaired from by a relay, each under its own user.
func TestEveryActorWorksUnderItsUser(t *testing.T) {
	coordination, delivery := withUsers(t, "coordination.acl", stacktest.Redis(t)),
		withUsers(t, "fanout.acl", stacktest.Fanout(t))
	tile := fence.TileID(rand.Uint64()>>1 | 1)

	store, log := logAs(t, coordination.as(t, "owner"))
	require.NoError(t, store.Load(t.Context()))
	rebased, err := store.Rebase(t.Context(),
		fence.Rebase{Tile: tile, Epoch: 1, Contact: "owner:1", Seq: 1, Replicas: fence.AllReplicas})
	require.NoError(t, err)

	sub, err := redisfanout.New(delivery.as(t, "relay"), nil)
	require.NoError(t, err)
	frames := make(chan []byte, 16)
	stop, err := sub.Subscribe(t.Context(), tile, func(b []byte) { frames <- b })
	require.NoError(t, err)
	defer stop()

	_, bridgeLog := logAs(t, coordination.as(t, "bridge"))
	pub, err := redisfanout.New(delivery.as(t, "bridge"), nil)
	require.NoError(t, err)
	b, err := bridge.New(bridgeLog, pub, nil, []fence.TileID{tile}, nil)
	require.NoError(t, err)
	_, checkpointLog := logAs(t, coordination.as(t, "checkpointer"))
	seen, err := checkpointLog.Stat(t.Context(), []fence.TileID{tile})
	require.NoError(t, err)
	require.NoError(t, seen[0].Err, "or it fetches every snapshot to see whether it is new")
	durable := memcheckpoint.New()
	cp, err := checkpoint.New(checkpointLog, durable, nil, []fence.TileID{tile}, nil)
	require.NoError(t, err)
	running := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { running <- b.Run(ctx) }()
	go func() { running <- cp.Run(ctx) }()

	at, before := rebased.Position, time.Now()
	for i := range 5 {
		r, err := store.Commit(t.Context(),
			fence.Commit{Tile: tile, Epoch: 1, Contact: "owner:1", Prev: at, Tick: fence.Tick(i + 1),
				Payload: batch(t)})
		require.NoError(t, err)
		at = r.Position
		require.NoError(t, store.Confirm(t.Context(), tile, at))
	}
	require.Less(t, time.Since(before), 2*time.Second, "an owner may ask the replicas what they have")
	require.NoError(t, store.SaveSnapshot(t.Context(),
		fence.SnapshotWrite{Tile: tile, Position: at, Tick: 5, Blob: []byte("state")}))

	for range 5 {
		select {
		case <-frames:
		case <-time.After(time.Minute):
			t.Fatal("no frame arrived: may the bridge publish, and the relay subscribe?")
		}
	}
	waittest.Until(t, func() bool {
		marks, err := log.Marks(t.Context(), []fence.TileID{tile})
		return err == nil && marks[0].Marks[stream.BridgeAcked].Seq == at.Seq &&
			marks[0].Marks[stream.Checkpointed].Seq == at.Seq
	}, 20*time.Second, 20*time.Millisecond, "bridge and checkpointer move their marks")
	cancel()
	require.NoError(t, <-running)
	require.NoError(t, <-running)
	require.NoError(t, bridgeLog.DeadLetter(t.Context(), stream.Poison{Tile: tile, Seq: 9, Reason: "test"}))

	_, relayLog := logAs(t, coordination.as(t, "relay"))
	history, err := stream.Recover(t.Context(), relayLog, tile)
	require.NoError(t, err)
	require.Equal(t, at, history.Position)
	last, err := relayLog.Last(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, at, last)
	require.NoError(t, stream.MarkOne(t.Context(), relayLog,
		stream.MarkWrite{Tile: tile, Consumer: stream.RelayMember("a"), Seq: at.Seq}))

	trimmed, err := log.Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: time.Minute})
	require.NoError(t, err)
	require.Equal(t, at.Seq, trimmed.Floor)
	require.NoError(t, stream.MarkOne(t.Context(), relayLog,
		stream.MarkWrite{Tile: tile, Consumer: stream.RelayMember("a"), Release: true}))

	router, _ := logAs(t, coordination.as(t, "router"))
	owner, err := router.Owner(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, "owner:1", owner.Contact)

	reader, viewer := logAs(t, coordination.as(t, "viewer"))
	require.NoError(t, reader.Confirm(t.Context(), tile, at))
	stats, err := viewer.Stat(t.Context(), []fence.TileID{tile})
	require.NoError(t, err)
	require.NoError(t, stats[0].Err)
	require.Equal(t, at, stats[0].Last)
	letters, err := viewer.DeadLetters(t.Context(), tile)
	require.NoError(t, err)
	require.Len(t, letters, 1)
}

func batch(t *testing.T) []byte {
	t.Helper()
	payload, _, err := (&stream.Batch{Events: [][]byte{[]byte("event")}}).Encode()
	require.NoError(t, err)
	return payload
}

// TestWhatIsRefused: what an actor has no business with is NOPERM, and changes nothing.
func TestWhatIsRefused(t *testing.T) {
	coordination, delivery := withUsers(t, "coordination.acl", stacktest.Redis(t)),
		withUsers(t, "fanout.acl", stacktest.Fanout(t))
	tile := fence.TileID(rand.Uint64()>>1 | 1)
	k := fence.KeysOf(tile)
	admin, err := redisfence.New(coordination.admin, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, admin.Load(t.Context()))
	_, err = admin.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 1, Contact: "owner:1", Seq: 1})
	require.NoError(t, err)

	readers := []string{"bridge", "checkpointer", "collector", "relay", "router", "viewer"}
	for _, command := range [][]any{
		{"hset", k.Owner, "epoch", "9"}, {"del", k.Owner}, {"xadd", k.Stream, "*", "f", "v"},
		{"xtrim", k.Stream, "maxlen", "0"}, {"pexpire", k.Stream, "1"}, {"persist", k.Stream},
		{"hset", k.Snapshot, "seq", "9"}, {"set", "other", "1"}, {"get", "other"}, {"flushall"}, {"config", "get", "*"},
		{"keys", "*"},
		{"function", "flush"}, {"function", "load", "replace",
			"#!lua name=x\nredis.register_function('x', function() end)"},
		{"eval", "return 1", "0"}, {"acl", "list"}, {"shutdown", "nosave"}, {"cluster", "reset"},
	} {
		for _, actor := range readers {
			requireRefused(t, coordination.as(t, actor), actor, command)
		}
	}
	for _, command := range [][]any{{"del", k.Owner}, {"flushall"}, {"function", "flush"}, {"eval", "return 1", "0"},
		{"set", "other", "1"},
		{"hset", "{tile:1}:other", "a", "b"}, {"acl", "list"}, {"config", "set", "maxmemory", "1"}} {
		requireRefused(t, coordination.as(t, "owner"), "owner", command)
	}
	for _, actor := range []string{"router", "viewer"} {
		requireRefused(t, coordination.as(t, actor), actor, []any{"hset", k.Marks, "relay", "9"})
	}

	// The functions write with their caller's rights.
	for _, actor := range []string{"bridge", "checkpointer", "relay", "router", "viewer"} {
		store, log := logAs(t, coordination.as(t, actor))
		_, err := store.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "thief:1", Seq: 10})
		require.ErrorContains(t, err, "NOPERM", "%s rebases", actor)
		_, err = store.Commit(t.Context(), fence.Commit{Tile: tile, Epoch: 2, Contact: "thief:1", Install: true})
		require.ErrorContains(t, err, "NOPERM", "%s commits", actor)
		_, err = log.Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: time.Minute})
		require.ErrorContains(t, err, "NOPERM", "%s trims", actor)
	}
	for _, actor := range []string{"bridge", "checkpointer", "relay", "router", "viewer"} {
		_, log := logAs(t, coordination.as(t, actor))
		quiet := []stream.Quiet{{Tile: tile, Durable: fence.Position{Epoch: 1, Seq: 1}}}
		require.ErrorContains(t, log.Expire(t.Context(), quiet, time.Second)[0].Err, "NOPERM", "%s expires", actor)
	}
	owner, err := admin.Owner(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, fence.Epoch(1), owner.Epoch)

	// The collector has the keys, and none of the commands that change what they hold.
	thief, _ := logAs(t, coordination.as(t, "collector"))
	_, err = thief.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "thief:1", Seq: 10})
	require.Error(t, err)
	_, err = thief.Commit(t.Context(),
		fence.Commit{Tile: tile, Epoch: 1, Contact: "owner:1", Prev: owner.Position, Payload: []byte("x")})
	require.Error(t, err)
	require.Equal(t, owner.Position, must(admin.Owner(t.Context(), tile)).Position)

	// A tile without an owner may be collected, by the collector.
	require.NoError(t, coordination.admin.Del(t.Context(), k.Owner).Err())
	_, collector := logAs(t, coordination.as(t, "collector"))
	quiet := []stream.Quiet{{Tile: tile, Durable: owner.Position}}
	require.Equal(t, []stream.Expiry{{Expires: true}}, collector.Expire(t.Context(), quiet, time.Hour))
	// The owner's user brings it back.
	ownerStore, _ := logAs(t, coordination.as(t, "owner"))
	_, err = ownerStore.Commit(t.Context(),
		fence.Commit{Tile: tile, Epoch: 1, Contact: "owner:1", Prev: owner.Position, Install: true})
	require.NoError(t, err)
	require.EqualValues(t, -1, coordination.admin.PTTL(t.Context(), k.Stream).Val())

	requireRefused(t, delivery.as(t, "relay"), "relay", []any{"spublish", fence.World{}.Channel(tile), "forged"})
	requireRefused(t, delivery.as(t, "bridge"), "bridge", []any{"spublish", "{tile:1}:other", "forged"})
	requireRefused(t, delivery.as(t, "bridge"), "bridge", []any{"set", "a", "b"})
}

func must(o fence.Owner, err error) fence.Owner {
	if err != nil {
		panic(err)
	}
	return o
}

// requireRefused runs a command on the node it belongs to.
func requireRefused(t *testing.T, c *redis.ClusterClient, actor string, command []any) {
	t.Helper()
	require.ErrorContains(t, c.Do(t.Context(), command...).Err(), "NOPERM", "%s may %v", actor, command)
}
