//go:build linux

package benchmark

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
)

// BenchmarkReplay is what a takeover costs: reading a full tile's snapshot and 60 batches, verifying
// and folding them. The battle's own names make a snapshot of half the size that a full tile is reckoned with.
func BenchmarkReplay(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		store := memfence.New()
		replay(b, store, memstream.New(store), 0x85283083fffffff, shipName)
	})
	b.Run("redis", func(b *testing.B) { replayRedis(b, shipName) })
	b.Run("redis-100KB", func(b *testing.B) { replayRedis(b, longName) })
}

func replayRedis(b *testing.B, ship func(int) string) {
	client := redis.NewClusterClient(redisfence.Options(stacktest.Redis(b)...))
	b.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(b, err)
	require.NoError(b, store.Load(b.Context()))
	replay(b, store, redisstream.New(store, client), someTiles(1)[0], ship)
}

func replay(b *testing.B, store fence.Store, log stream.Log, id fence.TileID, ship func(int) string) {
	ground, err := game.GroundOf(0x85283083fffffff, nil)
	require.NoError(b, err)
	bytes := fullTile(b, store, id, ground, ship)
	b.ResetTimer()
	for range b.N {
		h, err := stream.Recover(b.Context(), log, id)
		require.NoError(b, err)
		require.Len(b, h.Entries, batches)
		rules, err := game.NewRules(ground)
		require.NoError(b, err)
		blob, _, err := stream.OpenSnapshot(h.Snapshot.Blob)
		require.NoError(b, err)
		require.NoError(b, rules.Restore(blob))
		for i := range h.Entries {
			batch, err := stream.DecodeBatch(&h.Entries[i])
			require.NoError(b, err)
			require.NoError(b, rules.Apply(h.Entries[i].Tick, batch.Events))
		}
	}
	b.ReportMetric(float64(bytes)/1024, "snapshot-KiB")
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/replay")
}

const batches = 60

// fullTile commits a tile with a ship on nearly every cell, a snapshot of it, and the batches after it.
// It returns the snapshot's size.
func fullTile(b testing.TB, store fence.Store, id fence.TileID, ground game.Ground, ship func(int) string) int {
	rules, err := game.NewRules(ground)
	require.NoError(b, err)
	ctx := context.Background()
	var intents []tile.Intent
	ships := shipsOn(ground.Len())
	for i := range ships {
		intents = append(intents, tile.Intent{Tile: id, Actor: ship(i),
			Body: game.Order{Kind: game.Spawn, Cell: uint16(i * ground.Len() / ships)}.Encode()})
	}
	events, _ := rules.Resolve(1, intents)
	require.Len(b, events, ships)
	require.NoError(b, rules.Apply(1, events))
	state, err := rules.Snapshot()
	require.NoError(b, err)
	blob := stream.AppendDivided(nil, state, nil)
	r, err := store.Rebase(ctx, fence.Rebase{Tile: id, Epoch: 1, Contact: "bench:1", Seq: 1, Tick: 1, Blob: blob})
	require.NoError(b, err)
	at := r.Position
	for t := fence.Tick(2); t < 2+batches; t++ {
		var moves []tile.Intent
		for i := 0; i < len(intents); i += 3 {
			moves = append(moves, tile.Intent{Tile: id, Actor: ship(i), ActionID: fmt.Sprint(t, "/", i),
				Body: game.Order{Kind: game.Warp, Cell: uint16(rand.IntN(ground.Len()))}.Encode()})
		}
		events, _ := rules.Resolve(t, moves)
		require.NotEmpty(b, events)
		batch := stream.Batch{Events: events}
		batch.Divide(rules.Area)
		require.NoError(b, rules.Apply(t, batch.Events))
		payload, _, err := batch.Encode()
		require.NoError(b, err)
		c := fence.Commit{Tile: id, Epoch: 1, Contact: "bench:1", Prev: at, Tick: t, Payload: payload}
		r, err := store.Commit(ctx, c)
		require.NoError(b, err)
		at = r.Position
	}
	return len(blob)
}
