package redisfanout_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/fanout"
)

// BenchmarkPublish compares Publish with the pipeline it could at best be: the channels named and grouped
// by node beforehand, and no account of each message's fate.
func BenchmarkPublish(b *testing.B) {
	client := newClient(b, stacktest.Fanout(b))
	f := open(b, client, nil)
	const size = 2048
	for _, n := range []int{1, 64, 1024} {
		messages := make([]fanout.Message, n)
		for i := range messages {
			messages[i] = fanout.Message{Tile: anyTile(), Data: make([]byte, size)}
		}
		rate := func(b *testing.B, calls int) {
			b.ReportMetric(float64(calls*n)/b.Elapsed().Seconds(), "messages/s")
		}
		b.Run(fmt.Sprintf("raw/%d", n), func(b *testing.B) {
			byNode := map[*redis.Client][]string{}
			for i := range messages {
				channel := fence.World{}.Channel(messages[i].Tile)
				node, err := client.MasterForKey(b.Context(), channel)
				require.NoError(b, err)
				byNode[node] = append(byNode[node], channel)
			}
			calls := 0
			for b.Loop() {
				done := make(chan error, len(byNode))
				for node, channels := range byNode {
					go func() {
						pipe := node.Pipeline()
						for _, channel := range channels {
							pipe.SPublish(b.Context(), channel, messages[0].Data)
						}
						_, err := pipe.Exec(b.Context())
						done <- err
					}()
				}
				for range byNode {
					require.NoError(b, <-done)
				}
				calls++
			}
			rate(b, calls)
		})
		b.Run(fmt.Sprintf("Publish/%d", n), func(b *testing.B) {
			calls := 0
			for b.Loop() {
				_, err := f.Publish(b.Context(), messages)
				require.NoError(b, err)
				calls++
			}
			rate(b, calls)
		})
	}
}

// BenchmarkDeliver measures the whole way: published, through Redis, delivered.
func BenchmarkDeliver(b *testing.B) {
	client := newClient(b, stacktest.Fanout(b))
	f := open(b, client, nil)
	tile := anyTile()
	arrived := make(chan struct{}, 256)
	stop, err := f.Subscribe(b.Context(), tile, func([]byte) { arrived <- struct{}{} })
	require.NoError(b, err)
	defer stop()
	messages := make([]fanout.Message, 64)
	for i := range messages {
		messages[i] = fanout.Message{Tile: tile, Data: make([]byte, 2048)}
	}
	n := 0
	for b.Loop() {
		_, err := f.Publish(b.Context(), messages)
		require.NoError(b, err)
		for range messages {
			<-arrived
		}
		n += len(messages)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkNode sends frames of one tile through its node to so many processes; an iteration ends when each has it. It
// is natsfanout's BenchmarkBrokerNode on Redis; the CPU is that of the node.
func BenchmarkNode(b *testing.B) {
	addrs := stacktest.Fanout(b)
	client := newClient(b, addrs)
	pub := open(b, client, nil)
	for _, size := range []int{600, 16 << 10} {
		for _, relays := range []int{4, 20, 100} {
			b.Run(fmt.Sprintf("bytes=%d/relays=%d", size, relays), func(b *testing.B) {
				tile := anyTile()
				var got atomic.Int64
				for range relays {
					relay := open(b, newClient(b, addrs), nil)
					stop, err := relay.Subscribe(b.Context(), tile, func([]byte) { got.Add(1) })
					require.NoError(b, err)
					defer stop()
				}
				node, err := client.MasterForKey(b.Context(), fence.World{}.Channel(tile))
				require.NoError(b, err)
				data := make([]byte, size)
				used := nodeCPU(b, node)
				b.ResetTimer()
				for i := range b.N {
					_, err := pub.Publish(b.Context(), []fanout.Message{{Tile: tile, Data: data}})
					require.NoError(b, err)
					for got.Load() < int64((i+1)*relays) {
						time.Sleep(20 * time.Microsecond)
					}
				}
				b.StopTimer()
				cpu, messages := nodeCPU(b, node)-used, float64(relays*b.N)
				b.ReportMetric(cpu*1e9/messages, "cpu-ns/message")
				b.ReportMetric(messages/b.Elapsed().Seconds(), "messages/s")
				b.ReportMetric(messages*float64(size)/b.Elapsed().Seconds()/1e6, "MB/s")
			})
		}
	}
}

// nodeCPU is what a node has used, in seconds.
func nodeCPU(b *testing.B, node *redis.Client) (seconds float64) {
	info, err := node.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(b, err)
			seconds += v
		}
	}
	return seconds
}
