package dynamocheckpoint_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
)

const fuzzTile fence.TileID = 0x85283473fffffff

// spoiled takes an attribute away from an item, or gives it another type.
func spoiled(item dynamocheckpoint.Item, attribute string, how byte) dynamocheckpoint.Item {
	switch _, has := item[attribute]; {
	case !has:
	case how%4 == 1:
		delete(item, attribute)
	case how%4 == 2:
		item[attribute] = &types.AttributeValueMemberS{Value: "7"}
	case how%4 == 3:
		item[attribute] = &types.AttributeValueMemberNULL{Value: true}
	}
	return item
}

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func number(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

// FuzzManifest: a manifest is read, and written as it was, or it is corrupt.
func FuzzManifest(f *testing.F) {
	f.Add("1", "3", "7", strings.Repeat("0", 16), "9", "5", "1", "0a", []byte("state"), "", byte(0))
	f.Add("2", "-1", "9007199254740992", "", "", "18446744073709551615", "99999", "a/b", []byte(nil), "seq", byte(2))
	f.Fuzz(func(t *testing.T, v, epoch, seq, chain, tick, size, chunks, attempt string, blob []byte, gone string,
		how byte) {
		item := spoiled(dynamocheckpoint.Item{"tile": text(fuzzTile.String()), "part": text("manifest"), "v": number(v),
			"epoch": number(epoch), "seq": number(seq), "chain": text(chain), "tick": number(tick),
			"contact": text("a:1"), "sum": text("s"), "taken": number("1700000000000"), "size": number(size),
			"attempt": text(attempt),
			"chunks":  number(chunks), "blob": &types.AttributeValueMemberB{Value: blob}}, gone, how)
		head, again, err := dynamocheckpoint.ReadManifest(fuzzTile, item)
		if err != nil {
			require.ErrorIs(t, err, fence.ErrCorrupt)
			return
		}
		require.LessOrEqual(t, head.Size, fence.MaxSnapshot)
		require.NotZero(t, head.Epoch)
		require.NotZero(t, head.Seq)
		twice, third, err := dynamocheckpoint.ReadManifest(fuzzTile, again)
		require.NoError(t, err)
		require.Equal(t, head, twice)
		require.Equal(t, again, third)
	})
}

// FuzzChunkPart: a sort key names one attempt, whose prefix it begins with.
func FuzzChunkPart(f *testing.F) {
	f.Add("chunk/0000000000000003/0000000000000007/0a/0001")
	f.Add("chunk////")
	f.Fuzz(func(t *testing.T, part string) {
		prefix, ok := dynamocheckpoint.ReadChunkPart(part)
		if ok && strings.HasPrefix(part, prefix) {
			again, ok := dynamocheckpoint.ReadChunkPart(prefix + "0000")
			require.True(t, ok)
			require.Equal(t, prefix, again)
		}
	})
}

// FuzzJournal: the items of a journal are read as the entries that they hold, whole and verified, or the journal is
// damaged: never an entry that is not there.
func FuzzJournal(f *testing.F) {
	c := fence.Commit{Tile: fuzzTile, Epoch: 3, Contact: "a:1", Prev: fence.Position{Epoch: 3, Seq: 6}, Tick: 9,
		Payload: []byte{0}}
	frame := c.Entry().Frame
	f.Add("1", "3", "3", "7", frame, byte(0), "", byte(0), byte(0))
	f.Add("1", "3", "3", "7", frame, byte(3), "frame", byte(1), byte(2))
	f.Add("2", "x", "-3", "", []byte(nil), byte(200), "size", byte(2), byte(9))
	f.Fuzz(func(t *testing.T, v, sealed, epoch, seq string, frame []byte, chunks byte, gone string, how, at byte) {
		head := spoiled(dynamocheckpoint.Item{"v": number(v), "sealed": number(sealed),
			"end": text(epoch + "/" + seq + "/0000000000000000")}, gone, how/4)
		e := c.Entry()
		e.Frame = frame
		items := dynamocheckpoint.EntryItems(fuzzTile, &e, int(chunks)%8)
		items[0]["v"] = number(v)
		i := int(at) % len(items)
		items[i] = spoiled(items[i], gone, how)
		entries, err := dynamocheckpoint.ReadJournal(fuzzTile, head, items)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(entries), 1)
		for _, e := range entries {
			require.NoError(t, e.Verify())
			require.Equal(t, frame, e.Frame)
		}
	})
}
