package redisstream_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/stream/streamtest"
)

// open returns a loaded store on the shared cluster, a log that reads it, and their client.
func open(t testing.TB) (*redisfence.Store, *redisstream.Log, *redis.ClusterClient) {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stacktest.Redis(t), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{TTL: 5 * time.Minute, Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	return store, redisstream.New(store, client), client
}

// hands reaches into a tile's keys past the functions.
type hands struct {
	t      testing.TB
	client redis.UniversalClient
}

func (h hands) do(args ...any) {
	h.t.Helper()
	require.NoError(h.t, h.client.Do(context.WithoutCancel(h.t.Context()), args...).Err(), "%v", args)
}

func (h hands) hash(key string) map[string]string {
	h.t.Helper()
	m, err := h.client.HGetAll(context.WithoutCancel(h.t.Context()), key).Result()
	require.NoError(h.t, err)
	return m
}

func (h hands) dropOwner(tile fence.TileID) { h.do("del", fence.KeysOf(tile).Owner) }

func (h hands) corruptOwner(tile fence.TileID) {
	h.do("hset", fence.KeysOf(tile).Owner, "head", "no position")
}

func (h hands) damageSnapshot(tile fence.TileID) {
	key := fence.KeysOf(tile).Snapshot
	blob := []byte(h.hash(key)["blob"])
	blob[0] ^= 1
	h.do("hset", key, "blob", blob)
}

func (h hands) ageMarks(tile fence.TileID, d time.Duration) {
	key := fence.KeysOf(tile).Marks
	for field, value := range h.hash(key) {
		if at, err := strconv.ParseInt(value, 10, 64); err == nil && (strings.HasSuffix(field, ".at") ||
			strings.HasSuffix(field, ".silent")) {
			h.do("hset", key, field, at-d.Milliseconds())
		}
	}
}

func (h hands) poison(tile fence.TileID) stream.Poison {
	k := fence.KeysOf(tile)
	at, err := fence.ParsePosition(h.hash(k.Owner)["head"])
	require.NoError(h.t, err)
	at.Seq++
	p := stream.Poison{Tile: tile, Seq: at.Seq, Fields: map[string]string{stream.FrameField: "\x00\xff", "\xff": "?"}}
	args := []any{"xadd", k.Stream, strconv.FormatUint(uint64(at.Seq), 10) + "-0"}
	for name, value := range p.Fields {
		args = append(args, name, value)
	}
	h.do(args...)
	h.do("hset", k.Owner, "head", at.String())
	return p
}

func (h hands) group(tile fence.TileID, read, pending int) {
	key := fence.KeysOf(tile).Stream
	name := "readers-" + strconv.FormatUint(rand.Uint64(), 16)
	h.do("xgroup", "create", key, name, "0")
	ctx := context.WithoutCancel(h.t.Context())
	got, err := h.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: name, Consumer: "one",
		Streams: []string{key, ">"}, Count: int64(read), Block: -1}).Result()
	require.NoError(h.t, err)
	for _, m := range got[0].Messages[:read-pending] {
		h.do("xack", key, name, m.ID)
	}
}

// ageGroups claims all that is pending for whom it is pending, as of earlier.
func (h hands) ageGroups(tile fence.TileID, d time.Duration) {
	ctx, key := context.WithoutCancel(h.t.Context()), fence.KeysOf(tile).Stream
	groups, err := h.client.XInfoGroups(ctx, key).Result()
	require.NoError(h.t, err)
	for _, g := range groups {
		pending, err := h.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: g.Name, Start: "-",
			End: "+", Count: 1000}).Result()
		require.NoError(h.t, err)
		for _, p := range pending {
			h.do("xclaim", key, g.Name, p.Consumer, "0", p.ID, "idle", (p.Idle + d).Milliseconds(), "justid", "force")
		}
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	streamtest.Run(t, func(t *testing.T) streamtest.Harness {
		store, log, client := open(t)
		h := hands{t, client}
		return streamtest.Harness{Log: log, Store: store, DropOwner: h.dropOwner, AgeMarks: h.ageMarks,
			DamageSnapshot: h.damageSnapshot, Poison: h.poison, Group: h.group, AgeGroups: h.ageGroups,
			CorruptOwner: h.corruptOwner, Freeze: h.freeze}
	})
}

// TestATrimThatBreaksOffIsTold: the server refuses a command in the midst of a trim, which undoes nothing that the trim
// has done. What it has removed is reported all the same.
func TestATrimThatBreaksOffIsTold(t *testing.T) {
	store, log, client := open(t)
	tile := fence.TileID(rand.Uint64())
	prev := fence.Position{}
	for i := range fence.Tick(9) {
		receipt, err := store.Commit(t.Context(), fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Prev: prev,
			Tick:    i + 1,
			Payload: []byte("x"), Install: i == 0})
		require.NoError(t, err)
		prev = receipt.Position
	}
	require.NoError(t, store.SaveSnapshot(t.Context(), fence.SnapshotWrite{Tile: tile, Position: prev, Tick: 9,
		Blob: []byte("s")}))
	user := "blind-" + strconv.FormatUint(rand.Uint64(), 16)
	each := func(args ...any) {
		require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.Do(ctx, args...).Err()
		}))
	}
	each("acl", "setuser", user, "on", ">secret", "~*", "&*", "+@all", "-memory")
	defer each("acl", "deluser", user)
	blind := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stacktest.Redis(t), ContextTimeoutEnabled: true,
		Username: user, Password: "secret"})
	defer func() { _ = blind.Close() }()
	theirs, err := redisfence.New(blind, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	_, err = redisstream.New(theirs, blind).Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: time.Minute})
	var failed *fence.StoreError
	require.ErrorAs(t, err, &failed) // whose wording depends on the server's release
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	length, err := client.XLen(t.Context(), fence.KeysOf(tile).Stream).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, length)
	var told *stream.ResyncError
	require.ErrorAs(t, stream.MarkOne(t.Context(), log, stream.MarkWrite{Tile: tile, Consumer: stream.BridgeAcked,
		Seq: 3}), &told)
	require.EqualValues(t, 9, told.Trimmed)
}
