package tilehttp_test

import (
	"context"
	"testing"

	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// BenchmarkForward is a round trip over loopback to a tile that answers at once.
func BenchmarkForward(b *testing.B) {
	contact, client := serve(b, func(context.Context, tile.Intent) (stream.Outcome, error) {
		return stream.Applied, nil
	})
	b.SetParallelism(16)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := client.Forward(b.Context(), contact,
				tile.Intent{Tile: here, ActionID: "0b54", Actor: "ann", Body: make([]byte, 200)}); err != nil {
				b.Error(err)
			}
		}
	})
}
