package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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

// FuzzDecodeBatch: what is decoded, and was written by this release, encodes to the same bytes, and no input makes
// the decoder take more memory than a fixed multiple of its own size.
func FuzzDecodeBatch(f *testing.F) {
	for _, g := range golden[goldenBatch](f, "batches.json") {
		f.Add([]byte(g.Payload), []byte(g.Private))
	}
	f.Fuzz(func(t *testing.T, payload, private []byte) {
		b, err := stream.DecodeBatch(entryOf(payload, private))
		if err != nil {
			require.Nil(t, b)
			return
		}
		require.LessOrEqual(t, allocated(b), 50*(len(payload)+len(private)+1))
		again, private2, err := b.Encode()
		require.NoError(t, err)
		back, err := stream.DecodeBatch(entryOf(again, private2))
		require.NoError(t, err)
		require.Equal(t, b, back)
		if len(payload) > 0 && payload[0] == 0 && len(again) == len(payload) {
			require.Equal(t, payload, again)
		}
	})
}

// FuzzOpenSnapshot: what can be opened is what AppendSnapshot writes.
func FuzzOpenSnapshot(f *testing.F) {
	f.Add([]byte("\x01\x04gameowners"))
	f.Fuzz(func(t *testing.T, blob []byte) {
		game, private, err := stream.OpenSnapshot(blob)
		switch {
		case err != nil || len(blob) == 0:
		case stream.Divided(blob):
			require.Equal(t, blob, stream.AppendDivided(nil, game, private))
		default:
			require.Equal(t, blob, stream.AppendSnapshot(nil, game, private))
		}
	})
}
