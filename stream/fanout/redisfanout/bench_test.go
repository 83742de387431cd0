package redisfanout_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
				channel := fanout.Channel(messages[i].Tile)
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
