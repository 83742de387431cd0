package redisstream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// benchTile is a tile with entries of so many bytes, a snapshot at the last, and so many relays that have all marked
// the one before.
func benchTile(b *testing.B, store fence.Store, log stream.Log, entries, size, relays int) fence.TileID {
	b.Helper()
	tile := fence.TileID(rand.Uint64()>>1 | 1)
	var at fence.Position
	for i := range entries {
		r, err := store.Commit(b.Context(), fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Prev: at,
			Tick: fence.Tick(i + 1), Payload: make([]byte, size), Install: i == 0})
		require.NoError(b, err)
		at = r.Position
	}
	require.NoError(b, store.SaveSnapshot(b.Context(), fence.SnapshotWrite{Tile: tile, Position: at,
		Tick: fence.Tick(entries), Blob: []byte("state")}))
	writes := []stream.MarkWrite{{Tile: tile, Consumer: stream.BridgeAcked, Seq: at.Seq},
		{Tile: tile, Consumer: stream.BridgePending, Seq: at.Seq},
		{Tile: tile, Consumer: stream.Checkpointed}}
	for i := range relays {
		writes = append(writes, stream.MarkWrite{Tile: tile, Consumer: stream.RelayMember(fmt.Sprint("relay-", i)),
			Seq: at.Seq - 1})
	}
	require.Nil(b, log.Mark(b.Context(), writes))
	return tile
}

// microseconds is what the server that holds a tile has spent on functions, and on how many calls.
func microseconds(b *testing.B, client *redis.ClusterClient, tile fence.TileID) (usec, calls float64) {
	b.Helper()
	node, err := client.MasterForKey(context.Background(), fence.KeysOf(tile).Marks)
	require.NoError(b, err)
	text, err := node.InfoMap(context.Background(), "commandstats").Result()
	require.NoError(b, err)
	for _, pair := range strings.Split(text["Commandstats"]["cmdstat_fcall"], ",") {
		name, value, _ := strings.Cut(pair, "=")
		switch n, _ := strconv.ParseFloat(value, 64); name {
		case "usec":
			usec = n
		case "calls":
			calls = n
		}
	}
	return usec, calls
}

// BenchmarkServerTime is what one call costs the server, whose other callers wait meanwhile: server-us/op.
func BenchmarkServerTime(b *testing.B) {
	store, log, client := open(b)
	trim := func(bytes int64) func(*testing.B, fence.TileID) {
		return func(b *testing.B, tile fence.TileID) {
			_, err := log.Trim(b.Context(), stream.TrimRequest{Tile: tile, Lease: time.Hour, MaxBytes: bytes})
			require.NoError(b, err)
		}
	}
	for _, bench := range []struct {
		name                  string
		entries, size, relays int
		call                  func(*testing.B, fence.TileID)
	}{
		{"mark", 60, 600, 4, func(b *testing.B, tile fence.TileID) {
			require.NoError(b, stream.MarkOne(b.Context(), log,
				stream.MarkWrite{Tile: tile, Consumer: stream.BridgeAcked, Seq: 50}))
		}},
		{"mark-both-of-the-bridge", 60, 600, 4, func(b *testing.B, tile fence.TileID) {
			require.Nil(b, log.Mark(b.Context(), []stream.MarkWrite{{Tile: tile, Consumer: stream.BridgePending,
				Seq: 50}, {Tile: tile, Consumer: stream.BridgeAcked, Seq: 50}}))
		}},
		{"trim/4-relays-60-entries", 60, 600, 4, trim(16 << 20)},
		{"trim/250-relays-60-entries", 60, 600, 250, trim(16 << 20)},
		{"trim/4-relays-15-MiB", 18_000, 600, 4, trim(32 << 20)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			tile := benchTile(b, store, log, bench.entries, bench.size, bench.relays)
			defer hands{b, client}.forget(tile)
			before, calls := microseconds(b, client, tile)
			for b.Loop() {
				bench.call(b, tile)
			}
			after, more := microseconds(b, client, tile)
			b.ReportMetric((after-before)/(more-calls), "server-us/op")
		})
	}
}

// BenchmarkMarks is marks of many tiles in one call, as a relay or a bridge writes them.
func BenchmarkMarks(b *testing.B) {
	_, log, client := open(b)
	const tiles = 512
	writes := make([]stream.MarkWrite, tiles)
	for i := range writes {
		writes[i] = stream.MarkWrite{Tile: fence.TileID(rand.Uint64()>>1 | 1), Consumer: stream.RelayMember("bench"),
			Rewind: true}
		defer hands{b, client}.forget(writes[i].Tile)
	}
	for b.Loop() {
		for i := range writes {
			writes[i].Seq++
		}
		require.Nil(b, log.Mark(b.Context(), writes))
	}
	b.ReportMetric(float64(b.N*tiles)/b.Elapsed().Seconds(), "marks/s")
}
