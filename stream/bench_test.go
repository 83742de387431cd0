package stream_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// busy is a busy tile's batch: 20 events of 96 bytes and 4 outcomes, about 2 KiB.
func busy() *stream.Batch {
	b := &stream.Batch{}
	for i := range 20 {
		b.Events = append(b.Events, fmt.Appendf(nil, "%096d", i))
	}
	for i := range 4 {
		b.Resolutions = append(b.Resolutions, stream.Resolution{ActionID: fmt.Sprintf("%032d", i), Outcome: stream.Applied})
	}
	return b
}

func BenchmarkBatch(b *testing.B) {
	batch := busy()
	encoded, err := stream.AppendBatch(nil, batch)
	require.NoError(b, err)
	b.Run("append", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		b.ReportAllocs()
		buf := make([]byte, 0, 4096)
		for b.Loop() {
			_, _ = stream.AppendBatch(buf, batch)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		b.ReportAllocs()
		for b.Loop() {
			_, _ = stream.DecodeBatch(encoded)
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	payload, err := stream.AppendBatch(nil, busy())
	require.NoError(b, err)
	frame := &stream.Frame{Tile: 0x85283473fffffff, Entry: fence.Entry{Position: fence.Position{Epoch: 3, Seq: 12_345, Chain: 7},
		Prev: fence.Position{Epoch: 3, Seq: 12_344, Chain: 6}, Tick: 23_456, Events: 24, Committed: 1_795_226_280_753, Payload: payload}}
	encoded := stream.AppendFrame(nil, frame)
	b.Run("append", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		b.ReportAllocs()
		buf := make([]byte, 0, 4096)
		for b.Loop() {
			stream.AppendFrame(buf, frame)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		b.ReportAllocs()
		for b.Loop() {
			_, _ = stream.DecodeFrame(encoded)
		}
	})
}
