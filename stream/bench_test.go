package stream_test

import (
	"fmt"
	"testing"
	"time"

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
		b.Resolutions = append(b.Resolutions,
			stream.Resolution{ActionID: fmt.Sprintf("%032d", i), Outcome: stream.Applied})
	}
	return b
}

func BenchmarkBatch(b *testing.B) {
	batch := busy()
	payload, private, err := batch.Encode()
	require.NoError(b, err)
	e := entryOf(payload, private)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(payload) + len(private)))
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = batch.Encode()
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(payload) + len(private)))
		b.ReportAllocs()
		for b.Loop() {
			_, _ = stream.DecodeBatch(e)
		}
	})
}

func BenchmarkEntry(b *testing.B) {
	payload, private, err := busy().Encode()
	require.NoError(b, err)
	c := fence.Commit{Tile: 0x85283473fffffff, Epoch: 3, Contact: "10.0.0.7:7000",
		Prev: fence.Position{Epoch: 3, Seq: 12_344, Chain: 6}, Tick: 23_456, At: time.UnixMilli(1_795_226_280_753),
		Payload: payload, Private: private}
	e := c.Entry()
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(e.Frame)))
		b.ReportAllocs()
		for b.Loop() {
			c.Entry()
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(e.Frame)))
		b.ReportAllocs()
		for b.Loop() {
			_, _ = fence.DecodeEntry(e.Frame)
		}
	})
	b.Run("verify", func(b *testing.B) {
		b.SetBytes(int64(len(e.Frame)))
		b.ReportAllocs()
		for b.Loop() {
			_ = e.Verify()
		}
	})
}
