package redisstream_test

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// FuzzParseEntry: an entry of the stream is read, and is then what its checksums say, or it is poison that names its
// place.
func FuzzParseEntry(f *testing.F) {
	f.Add("7-0", "f", []byte("frame"))
	f.Add("18446744073709551615-1", "f", []byte{})
	f.Add("", "x", []byte(nil))
	f.Fuzz(func(t *testing.T, id, field string, frame []byte) {
		m := &redis.XMessage{ID: id, Values: map[string]any{field: string(frame)}}
		e, poison := redisstream.ParseEntry(testTile, m)
		if poison != nil {
			require.Equal(t, testTile, poison.Tile)
			require.NotEmpty(t, poison.Reason)
			require.Equal(t, fence.Entry{}, e)
			require.Equal(t, string(frame), poison.Fields[field])
			return
		}
		require.NoError(t, e.Verify())
		require.Equal(t, strconv.FormatUint(uint64(e.Seq), 10)+"-0", id)
		require.Equal(t, stream.FrameField, field)
	})
}

// FuzzParseSnapshot: a snapshot's hash is read, and its blob is then what its sum says, or it is corrupt.
func FuzzParseSnapshot(f *testing.F) {
	blob := []byte("state")
	chain := "0000000000000000"
	f.Add("3", "7", chain, "9", "1700000000000", "a:1", fence.Checksum(blob), blob)
	f.Add("-1", "9007199254740992", "x", "", "1e3", "\xff", "", []byte(nil))
	f.Fuzz(func(t *testing.T, epoch, seq, chain, tick, at, contact, sum string, blob []byte) {
		s, err := redisstream.ParseSnapshot(testTile, map[string]string{"epoch": epoch, "seq": seq, "chain": chain,
			"tick": tick, "at": at, "contact": contact, "sum": sum, "blob": string(blob)})
		if err != nil {
			require.ErrorIs(t, err, fence.ErrCorrupt)
			return
		}
		require.Equal(t, fence.Checksum(blob), s.Sum)
		require.LessOrEqual(t, uint64(s.Epoch), uint64(fence.MaxNumber))
		require.LessOrEqual(t, uint64(s.Seq), uint64(fence.MaxNumber))
	})
}

const testTile fence.TileID = 0x85283473fffffff
