package relaypb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

var (
	first  = fence.Position{Epoch: 1, Seq: 119, Chain: 0x0102030405060708}
	second = fence.Position{Epoch: 3, Seq: 120, Chain: 0xf0debc9a78563412}
	entry  = fence.Entry{Tile: 1, Kind: fence.KindBatch, Position: second, Prev: first, Tick: 130,
		At: fence.FromMillis(1_700_000_000_000), Payload: []byte("move"), Hidden: 0x1122334455667788}
)

func TestConversions(t *testing.T) {
	require.Nil(t, relaypb.FromPosition(fence.Position{}))
	require.Equal(t, fence.Position{}, (*relaypb.Position)(nil).Fence())
	require.Equal(t, first, relaypb.FromPosition(first).Fence())
	require.Equal(t, entry, relaypb.FromEntry(&entry).Entry(1))
	marker := fence.Entry{Tile: 2, Kind: fence.KindRebase, Position: second}
	require.Equal(t, marker, relaypb.FromEntry(&marker).Entry(2))
}

func TestEncodings(t *testing.T) {
	for _, e := range []relaypb.Encoding{relaypb.Binary, relaypb.JSON} {
		got, ok := relaypb.EncodingOf(e.Subprotocol())
		require.True(t, ok)
		require.Equal(t, e, got)
	}
	_, ok := relaypb.EncodingOf("tilefence.view.v2")
	require.False(t, ok)
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	m := &relaypb.ClientMessage{}
	require.NoError(t, relaypb.Binary.Decode([]byte{0xf8, 0x07, 0x01}, m))
	require.Nil(t, m.GetBody())
	require.NoError(t, relaypb.JSON.Decode([]byte(`{"dance":{"with":"me"}}`), m))
	require.Nil(t, m.GetBody())
}
