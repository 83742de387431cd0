package redisfence_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/cputime"
)

// tickPayload is the size of an ordinary tile's batch.
const tickPayload = 700

// BenchmarkTiles is many tiles in one process, each with a goroutine that commits one batch after the
// other through one store: with calls sharing pipelines, and with each by itself. raw-fcall and raw-xadd are
// one client that fills pipelines of 256 with the same function calls, and with XADDs of the same
// payloads, in turns with the tiles; fcall-ratio and xadd-ratio are commits over theirs. go-cpu-us is the
// processor time of this process for one commit.
func BenchmarkTiles(b *testing.B) {
	for _, tiles := range []int{1, 100, 1_000, 10_000} {
		for _, mode := range []struct {
			name string
			cfg  redisfence.Config
		}{{"pipelined", redisfence.Config{}}, {"one-by-one", redisfence.Config{Unpipelined: true}}} {
			b.Run(fmt.Sprintf("%d/%s", tiles, mode.name), func(b *testing.B) {
				benchmarkTiles(b, tiles, &mode.cfg)
			})
		}
	}
}

func benchmarkTiles(b *testing.B, tiles int, cfg *redisfence.Config) {
	l := newLanes(b, tiles, tickPayload, cfg)
	const round = 20_000 // commits between two turns of the others
	var commits, others int
	var took, cpu, fcalls, xadds time.Duration
	for b.Loop() {
		began, used := time.Now(), cputime.Used()
		l.commitAll(b, round)
		cpu += cputime.Used() - used
		took += time.Since(began)
		commits += round
		width := min(256, tiles)
		n := min(round, 20*width)
		others += n
		fcalls += l.pipelines(b, n, width, func(pipe redis.Pipeliner, i int) {
			l.store.PipelineCommit(b.Context(), pipe, &l.tiles[i])
			l.advance(i, l.tiles[i].Next())
		})
		xadds += l.pipelines(b, n, width, func(pipe redis.Pipeliner, i int) {
			pipe.XAdd(b.Context(), &redis.XAddArgs{Stream: plain(&l.tiles[i]),
				Values: []any{"payload", l.tiles[i].Payload}})
		})
	}
	rate := float64(commits) / took.Seconds()
	b.ReportMetric(rate, "commits/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(commits), "go-cpu-us")
	b.ReportMetric(rate*fcalls.Seconds()/float64(others), "fcall-ratio")
	b.ReportMetric(rate*xadds.Seconds()/float64(others), "xadd-ratio")
	b.ReportMetric(0, "ns/op")
}

// commitAll commits so many batches, each tile on a goroutine of its own.
func (l *lanes) commitAll(b *testing.B, commits int) {
	var left atomic.Int64
	left.Store(int64(commits))
	var wg sync.WaitGroup
	for i := range l.tiles {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				r, err := l.store.Commit(b.Context(), l.tiles[i])
				if err != nil {
					b.Error(err)
					return
				}
				l.advance(i, r.Position)
			}
		})
	}
	wg.Wait()
}

// pipelines sends n commands, width at a time, one tile after the other.
func (l *lanes) pipelines(b *testing.B, n, width int, add func(pipe redis.Pipeliner, i int)) (took time.Duration) {
	for sent := 0; sent < n; sent += width {
		pipe := l.client.Pipeline()
		began := time.Now()
		for j := range width {
			add(pipe, (l.next+j)%len(l.tiles))
		}
		l.next += width
		_, err := pipe.Exec(b.Context())
		took += time.Since(began)
		require.NoError(b, err)
	}
	return took
}

// BenchmarkConfirmed is the same for commits that all replicas confirm.
func BenchmarkConfirmed(b *testing.B) {
	for _, tiles := range []int{1, 1_000} {
		for _, mode := range []struct {
			name string
			cfg  redisfence.Config
		}{{"pipelined", redisfence.Config{}}, {"one-by-one", redisfence.Config{Unpipelined: true}}} {
			b.Run(fmt.Sprintf("%d/%s", tiles, mode.name), func(b *testing.B) {
				l := newLanes(b, tiles, tickPayload, &mode.cfg)
				for i := range l.tiles {
					l.tiles[i].Replicas = fence.AllReplicas
				}
				const round = 2_000
				var took, cpu time.Duration
				for b.Loop() {
					began, used := time.Now(), cputime.Used()
					l.commitAll(b, round)
					cpu += cputime.Used() - used
					took += time.Since(began)
				}
				b.ReportMetric(float64(b.N*round)/took.Seconds(), "commits/s")
				b.ReportMetric(float64(cpu.Microseconds())/float64(b.N*round), "go-cpu-us")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
