package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// allocated is how many bytes the slices of a decoded batch take, apart from what they share with the
// input.
func allocated(b *stream.Batch) int {
	n := 24*cap(b.Events) + 24*cap(b.Resolutions)
	for _, r := range b.Resolutions {
		n += len(r.ActionID)
	}
	return n
}

// FuzzDecodeBatch: what is decoded encodes to the same bytes, and no input makes the decoder take more
// memory than a fixed multiple of its own size.
func FuzzDecodeBatch(f *testing.F) {
	for _, g := range golden[goldenBatch](f, "batches.json") {
		f.Add([]byte(g.Bytes))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		b, err := stream.DecodeBatch(p)
		if err != nil {
			require.Nil(t, b)
			return
		}
		require.LessOrEqual(t, allocated(b), 25*len(p))
		require.LessOrEqual(t, b.Len(), fence.MaxEvents)
		if len(p) == 0 {
			return // nothing at all is an empty batch, which is written otherwise
		}
		again, err := stream.AppendBatch(nil, b)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

// FuzzDecodeFrame: the same for frames, whose payload is not copied.
func FuzzDecodeFrame(f *testing.F) {
	for _, g := range golden[goldenFrame](f, "frames.json") {
		f.Add([]byte(g.Bytes))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		frame, err := stream.DecodeFrame(p)
		if err != nil {
			require.Nil(t, frame)
			return
		}
		require.LessOrEqual(t, len(frame.Payload), fence.MaxPayload)
		require.Equal(t, p, stream.AppendFrame(nil, frame))
		_ = frame.Verify(frame.Tile) // a chain may be wrong, but never a panic
	})
}
