package redisfence_test

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// benchPayload is the size of a busy tile's batch.
const benchPayload = 2 << 10

// lanes are tiles that are committed to side by side, and their plain streams to compare with.
type lanes struct {
	store  *redisfence.Store
	client *redis.ClusterClient
	tiles  []fence.Commit // the next batch of each
	next   int
}

func newLanes(b *testing.B, n, size int, cfg *redisfence.Config) *lanes {
	store, client := newStore(b, cfg)
	l := &lanes{store: store, client: client, tiles: make([]fence.Commit, n)}
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	for i := range l.tiles {
		l.tiles[i] = fence.Commit{Tile: newTile(), Epoch: 1, Contact: "owner-1.tiles.example:7000", Tick: 1,
			Payload: payload, Install: true}
	}
	var wg errgroup.Group
	wg.SetLimit(100)
	for i := range l.tiles {
		wg.Go(func() error {
			r, err := store.Commit(b.Context(), l.tiles[i])
			l.advance(i, r.Position)
			l.tiles[i].Install = false
			return err
		})
	}
	require.NoError(b, wg.Wait())
	b.Cleanup(func() {
		pipe := client.Pipeline()
		for i := range l.tiles {
			k := fence.KeysOf(l.tiles[i].Tile)
			pipe.Del(hands{t: b}.ctx(), k.Owner, k.Stream, k.Snapshot, plain(&l.tiles[i]))
		}
		_, _ = pipe.Exec(hands{t: b}.ctx())
	})
	return l
}

func (l *lanes) advance(i int, at fence.Position) {
	l.tiles[i].Prev = at
	l.tiles[i].Tick++
}

// plain is the stream of a lane that has no fence.
func plain(c *fence.Commit) string { return "{tile:" + c.Tile.String() + "}:plain" }

func addPlain(b *testing.B, pipe redis.Cmdable, c *fence.Commit) *redis.StringCmd {
	return pipe.XAdd(b.Context(), &redis.XAddArgs{Stream: plain(c), ID: fmt.Sprintf("%d-0", c.Prev.Seq+1),
		Values: []any{"payload", c.Payload}})
}

// serverTime is the processor time that the masters have used so far.
func (l *lanes) serverTime(b *testing.B) (used time.Duration) {
	var mu sync.Mutex
	require.NoError(b, l.client.ForEachMaster(b.Context(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "cpu").Result()
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
				seconds, _ := strconv.ParseFloat(value, 64)
				used += time.Duration(seconds * float64(time.Second))
			}
		}
		return err
	}))
	return used
}

//go:embed testdata/revision7.lua
var revision7 string

//go:embed testdata/bare.lua
var bareLibrary string

// rival commits to the same tiles through another library, in keys beside the tiles' own.
type rival struct {
	*lanes
	name string
	seq  []int
}

// newRival loads a library under the name that its first line gives it.
func newRival(b *testing.B, l *lanes, name, library string) *rival {
	r := &rival{lanes: l, name: name, seq: make([]int, len(l.tiles))}
	require.NoError(b, l.client.ForEachMaster(b.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.FunctionLoadReplace(ctx, library).Err()
	}))
	b.Cleanup(func() {
		ctx := hands{t: b}.ctx()
		_ = l.client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.FunctionDelete(ctx, name).Err()
		})
		for i := range l.tiles {
			_ = l.client.Del(ctx, r.keys(i)...).Err()
		}
	})
	return r
}

func (r *rival) keys(i int) []string {
	p := "{tile:" + r.tiles[i].Tile.String() + "}:" + r.name + "-"
	return []string{p + "owner", p + "stream", p + "snapshot"}
}

// addFormer commits with the library of revision 7, which kept a field for each part of an entry: the layout that the
// present one is compared with.
func (r *rival) addFormer(ctx context.Context, pipe redis.Pipeliner, i int) *redis.Cmd {
	const chain = "0123456789abcdef"
	prev, install := "0/0/0000000000000000", "1"
	if r.seq[i] > 0 {
		prev, install = fmt.Sprintf("1/%d/%s", r.seq[i], chain), "0"
	}
	r.seq[i]++
	return pipe.FCall(ctx, "tilefence_r7_commit_v1", r.keys(i), "1", r.tiles[i].Contact, install, prev, r.seq[i], chain,
		r.seq[i], 1, r.tiles[i].Payload, 30000)
}

// addBare commits with the least that a fence in a function can be.
func (r *rival) addBare(ctx context.Context, pipe redis.Pipeliner, i int) *redis.Cmd {
	r.seq[i]++
	at := func(seq int) string { return fmt.Sprintf("1/%d/0123456789abcdef", seq) }
	return pipe.FCall(ctx, "tilefence_bare_commit", r.keys(i)[:2], at(r.seq[i]-1), at(r.seq[i]), r.seq[i], r.seq[i],
		r.tiles[i].Payload, 30000)
}

// newBare has the owner hashes that the bare function expects.
func newBare(b *testing.B, l *lanes) *rival {
	r := newRival(b, l, "tilefence_bare", bareLibrary)
	for i := range l.tiles {
		require.NoError(b, l.client.HSet(b.Context(), r.keys(i)[0], "head", "1/0/0123456789abcdef").Err())
	}
	return r
}

// timed is what a kind of call has taken so far: of the clock, and of the masters' processors.
type timed struct{ wall, cpu time.Duration }

func (t *timed) exec(b *testing.B, l *lanes, pipe redis.Pipeliner) []redis.Cmder {
	used, began := l.serverTime(b), time.Now()
	replies, err := pipe.Exec(b.Context())
	t.wall += time.Since(began)
	t.cpu += l.serverTime(b) - used
	require.NoError(b, err)
	return replies
}

// BenchmarkPipelined is the server's side of a commit: one pipeline of commits to many tiles, next to pipelines of
// XADDs of the same payloads, of commits in the former layout, and of the least that a function can do, in turn.
// ratio is how much of XADD's throughput a commit has, gain its throughput over the former layout's; cpu-ratio and
// cpu-gain are the same of the masters' processor time, which is steadier on a busy machine. bare-ratio and bare-gain
// are those of the function that checks nothing but one string: no fence can be above them.
func BenchmarkPipelined(b *testing.B) {
	const width = 500
	l := newLanes(b, width, benchPayload, nil)
	former, least := newRival(b, l, "tilefence_r7", revision7), newBare(b, l)
	var fenced, unfenced, before, bare timed
	for b.Loop() {
		commits, adds, formers, bares := l.client.Pipeline(), l.client.Pipeline(), l.client.Pipeline(),
			l.client.Pipeline()
		for i := range l.tiles {
			l.store.PipelineCommit(b.Context(), commits, &l.tiles[i])
			addPlain(b, adds, &l.tiles[i])
			former.addFormer(b.Context(), formers, i)
			least.addBare(b.Context(), bares, i)
			l.advance(i, l.tiles[i].Next())
		}
		for _, r := range fenced.exec(b, l, commits) {
			require.Equal(b, "ok", r.(*redis.Cmd).Val())
		}
		unfenced.exec(b, l, adds)
		for _, r := range before.exec(b, l, formers) {
			require.Equal(b, "ok", r.(*redis.Cmd).Val().([]any)[0])
		}
		for _, r := range bare.exec(b, l, bares) {
			require.Equal(b, "ok", r.(*redis.Cmd).Val())
		}
	}
	total := float64(b.N) * width
	b.ReportMetric(total/fenced.wall.Seconds(), "commits/s")
	b.ReportMetric(total/unfenced.wall.Seconds(), "xadds/s")
	b.ReportMetric(float64(fenced.cpu.Nanoseconds())/total, "cpu-ns/commit")
	b.ReportMetric(float64(unfenced.cpu.Nanoseconds())/total, "cpu-ns/xadd")
	b.ReportMetric(unfenced.wall.Seconds()/fenced.wall.Seconds(), "ratio")
	b.ReportMetric(unfenced.cpu.Seconds()/fenced.cpu.Seconds(), "cpu-ratio")
	b.ReportMetric(before.wall.Seconds()/fenced.wall.Seconds(), "gain")
	b.ReportMetric(before.cpu.Seconds()/fenced.cpu.Seconds(), "cpu-gain")
	b.ReportMetric(unfenced.wall.Seconds()/bare.wall.Seconds(), "bare-ratio")
	b.ReportMetric(before.wall.Seconds()/bare.wall.Seconds(), "bare-gain")
	b.ReportMetric(before.cpu.Seconds()/bare.cpu.Seconds(), "bare-cpu-gain")
	b.ReportMetric(0, "ns/op") // of all together: it says nothing
}

// BenchmarkRoundTrip is one commit after the other, as a single tile sees it.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("commit", func(b *testing.B) {
		l := newLanes(b, 1, benchPayload, nil)
		b.ReportAllocs()
		for b.Loop() {
			r, err := l.store.Commit(b.Context(), l.tiles[0])
			require.NoError(b, err)
			l.advance(0, r.Position)
		}
	})
	b.Run("refresh", func(b *testing.B) {
		l := newLanes(b, 1, benchPayload, nil)
		c := l.tiles[0]
		c.Payload = nil
		for b.Loop() {
			_, err := l.store.Commit(b.Context(), c)
			require.NoError(b, err)
		}
	})
	b.Run("confirmed", func(b *testing.B) {
		l := newLanes(b, 1, benchPayload, nil)
		l.tiles[0].Replicas = fence.AllReplicas
		for b.Loop() {
			r, err := l.store.Commit(b.Context(), l.tiles[0])
			require.NoError(b, err)
			l.advance(0, r.Position)
		}
	})
	b.Run("xadd", func(b *testing.B) {
		l := newLanes(b, 1, benchPayload, nil)
		for b.Loop() {
			require.NoError(b, addPlain(b, l.client, &l.tiles[0]).Err())
			l.tiles[0].Prev.Seq++
		}
	})
}
