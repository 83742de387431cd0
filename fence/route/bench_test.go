package route_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

// galaxy is a map of 100,000 tiles of 40 hosts.
func galaxy() []route.Entry {
	entries := make([]route.Entry, 100_000)
	for i := range entries {
		entries[i] = route.Entry{Tile: 0x8500000fffffff | fence.TileID(i)<<28, Epoch: fence.Epoch(1 + i%300),
			Contact: fmt.Sprintf("10.0.0.%d:7000", i%40)}
	}
	return entries
}

// reading runs look-ups on all processors, beside a writer that learns without a pause.
func reading(b *testing.B, writer bool, table *route.Table, look func(fence.TileID) bool) {
	entries := galaxy()
	table.Learn(entries...)
	done := make(chan struct{})
	var writing sync.WaitGroup
	if writer {
		writing.Go(func() {
			for epoch := fence.Epoch(1000); ; epoch++ {
				for _, e := range entries {
					select {
					case <-done:
						return
					default:
					}
					e.Epoch = epoch
					table.Learn(e)
				}
			}
		})
	}
	if !writer {
		b.ReportAllocs() // the writer's would be counted with the readers'
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i += 7919 {
			if !look(entries[i%len(entries)].Tile) {
				b.Error("a tile is not known")
			}
		}
	})
	b.StopTimer()
	close(done)
	writing.Wait()
}

// BenchmarkLookup is of 100,000 tiles.
func BenchmarkLookup(b *testing.B) {
	for _, writer := range []bool{false, true} {
		b.Run(fmt.Sprintf("Writer=%v", writer), func(b *testing.B) {
			table := new(route.Table)
			reading(b, writer, table, func(id fence.TileID) bool {
				_, known := table.Lookup(id)
				return known
			})
		})
	}
}

// BenchmarkRoute is an answer by gossip, through the router.
func BenchmarkRoute(b *testing.B) {
	for _, writer := range []bool{false, true} {
		b.Run(fmt.Sprintf("Writer=%v", writer), func(b *testing.B) {
			table := new(route.Table)
			router := newRouter(b, table, &owners{}, nil)
			ctx := b.Context()
			reading(b, writer, table, func(id fence.TileID) bool {
				_, err := router.Route(ctx, id)
				return err == nil
			})
		})
	}
}

// BenchmarkLearn is one entry that is news, of a tile that is known.
func BenchmarkLearn(b *testing.B) {
	entries := galaxy()
	table := new(route.Table)
	table.Learn(entries...)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e := entries[i%len(entries)]
		e.Epoch = fence.Epoch(1000 + i/len(entries))
		table.Learn(e)
		i++
	}
}
