//go:build linux

package benchmark

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/relay"
)

const (
	fullTiles  = 10  // tiles of 2,401 cells, with snapshots of about 100 KB
	smallTiles = 200 // of the same node, which commit 1 KiB a tick beside them
)

// busyNode is one coordination node with small tiles, for what else is done on it.
type busyNode struct {
	*planes
	node   *redis.Client // the master
	tiles  []fence.TileID
	owner  *process
	length time.Duration // of a window
}

func newBusyNode(b *testing.B) *busyNode {
	b.Helper()
	c := &busyNode{planes: newPlanes(b, devstack.Coordination), length: faultLength(b) / 3}
	c.tiles, c.node = c.tilesOn(b, smallTiles+fullTiles)
	c.owner = c.start(b,
		partConfig{Role: "owner", Tiles: c.tiles[fullTiles:], Tick: 500 * time.Millisecond, SnapshotEvery: 60,
			Payload: isolationPayload, State: isolationState})
	c.owner.measure(b, 2*time.Second) // the burst of the start is over
	return c
}

// tilesOn gives new tiles that one node of the coordination cluster holds.
func (p *planes) tilesOn(tb testing.TB, n int) (tiles []fence.TileID, node *redis.Client) {
	tb.Helper()
	for _, id := range someTiles(n * 8) {
		at, err := p.client.MasterForKey(tb.Context(), fence.KeysOf(id).Owner)
		require.NoError(tb, err)
		if node == nil {
			node = at
		}
		if at.Options().Addr == node.Options().Addr && len(tiles) < n {
			tiles = append(tiles, id)
		}
	}
	require.Len(tb, tiles, n)
	return tiles, node
}

// BenchmarkFullTile is what snapshots and trims of full tiles cost: the tick of the tile, which waits for the encoding,
// and for the node if it commits while a function runs there; and 200 other tiles of the node. Ten full tiles save a
// snapshot every second, as three hundred do with the default interval. tick-ms is encoding and functions together.
func BenchmarkFullTile(b *testing.B) {
	c := newBusyNode(b)
	for b.Loop() {
		before := c.owner.measure(b, c.length)
		full := c.start(b, partConfig{Role: "owner", Full: true, Tiles: c.tiles[:fullTiles],
			Tick: 500 * time.Millisecond, SnapshotEvery: 2})
		time.Sleep(2 * time.Second) // the tiles have filled up
		full.window(b)
		during := c.owner.measure(b, c.length)
		w := full.window(b)
		require.GreaterOrEqual(b, w.Snapshots, fullTiles*int(c.length/time.Second)/2, "snapshots are saved")
		require.InDelta(b, 100<<10, w.Bytes, 10<<10, "bytes of a snapshot")
		save, trim := c.functions(b)
		full.kill()
		after := c.owner.measure(b, c.length)

		base := (ms(before.Commit.P99) + ms(after.Commit.P99)) / 2
		b.ReportMetric(float64(w.Bytes)/1024, "snapshot-KiB")
		b.ReportMetric(ms(w.Encode.P50), "encode-ms")
		b.ReportMetric(ms(save.P50), "save-fn-ms")
		b.ReportMetric(ms(trim.P50), "trim-fn-ms")
		b.ReportMetric(ms(w.Encode.P50+save.P50+trim.P50), "tick-ms")
		b.ReportMetric(ms(w.Encode.P99+save.P99+trim.P99), "tick-p99-ms")
		b.ReportMetric(ms(w.Save.P50), "save-ms")
		b.ReportMetric(base, "others-calm-p99-ms")
		b.ReportMetric(ms(during.Commit.P99), "others-p99-ms")
		b.ReportMetric(ms(during.Commit.P99)/base, "x-others")
		b.ReportMetric(0, "ns/op") // the length of the windows: it says nothing
	}
}

// functions has the node note for a while how long it works on snapshots and on trims.
func (c *busyNode) functions(b *testing.B) (save, trim spans) {
	b.Helper()
	ctx := b.Context()
	require.NoError(b, c.node.ConfigSet(ctx, "slowlog-max-len", "100000").Err())
	require.NoError(b, c.node.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
	time.Sleep(c.length)
	require.NoError(b, c.node.ConfigSet(ctx, "slowlog-log-slower-than", "-1").Err())
	calls, err := c.node.SlowLogGet(ctx, -1).Result()
	require.NoError(b, err)
	require.NoError(b, c.node.Do(ctx, "SLOWLOG", "RESET").Err())
	var saves, trims []time.Duration
	for i := range calls {
		switch call := &calls[i]; {
		case len(call.Args) < 2:
		case strings.HasPrefix(call.Args[1], "tilefence_snapshot_"):
			saves = append(saves, call.Duration)
		case strings.HasPrefix(call.Args[1], "tilefence_trim_"):
			trims = append(trims, call.Duration)
		}
	}
	require.NotEmpty(b, saves)
	require.NotEmpty(b, trims)
	return spansOf(saves), spansOf(trims)
}

// BenchmarkColdPath is how many full tiles (snapshot of 100 KB and 60 batches) a second are recovered from one node,
// and what that does to the commits of 200 tiles there: read from the master, and from its replica. node-cores is the
// processor time of the master meanwhile, commits included. The replicas are on the readers' half of the processors:
// another machine than the master.
func BenchmarkColdPath(b *testing.B) {
	c := newBusyNode(b)
	for _, name := range []string{"coord-4", "coord-5", "coord-6"} {
		replica, ok := c.stack.Process(name)
		require.True(b, ok, name)
		pin(b, replica.Pid(), c.back)
	}
	ground, err := game.GroundOf(0x85283083fffffff, nil)
	require.NoError(b, err)
	for _, id := range c.tiles[:fullTiles] {
		fullTile(b, c.store, id, ground, longName)
	}
	c.read(b, "master", partConfig{AtOnce: relay.DefaultMaxRepairs})
	c.read(b, "master-64", partConfig{AtOnce: 64})
	c.read(b, "replica", partConfig{AtOnce: relay.DefaultMaxRepairs, Replicas: true})
	c.read(b, "replica-64", partConfig{AtOnce: 64, Replicas: true})
}

func (c *busyNode) read(b *testing.B, name string, cfg partConfig) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			before := c.owner.measure(b, c.length/2)
			cfg.Tiles = c.tiles[:fullTiles]
			reader := c.startReader(b, cfg)
			used, began := c.nodeTime(b), time.Now()
			reads, during, err := reader.readsBeside(b, c.owner, c.length)
			require.NoError(b, err)
			used, took := c.nodeTime(b)-used, time.Since(began)
			reader.kill()
			after := c.owner.measure(b, c.length/2)

			base := (ms(before.Commit.P99) + ms(after.Commit.P99)) / 2
			b.ReportMetric(reads, "reads/s")
			b.ReportMetric(used.Seconds()/took.Seconds(), "node-cores")
			b.ReportMetric(ms(before.Commit.P50+after.Commit.P50)/2, "calm-p50-ms")
			b.ReportMetric(ms(during.Commit.P50), "p50-ms")
			b.ReportMetric(base, "calm-p99-ms")
			b.ReportMetric(ms(during.Commit.P99), "p99-ms")
			b.ReportMetric(ms(during.Commit.P99)/base, "x-p99")
			b.ReportMetric(0, "ns/op") // the length of the windows: it says nothing
		}
	})
}

// nodeTime is the processor time that the node has used so far.
func (c *busyNode) nodeTime(b *testing.B) (used time.Duration) {
	b.Helper()
	info, err := c.node.InfoMap(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		d, err := time.ParseDuration(info["CPU"][name] + "s")
		require.NoError(b, err)
		used += d
	}
	return used
}
