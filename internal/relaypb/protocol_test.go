package relaypb_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
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

var subscription = &relaypb.Subscribe{Tiles: []string{"85283473fffffff"}, Held: []*relaypb.Held{
	{Tile: "85283447fffffff", Position: &relaypb.Position{Epoch: 3, Seq: 1, Chain: 7}, Areas: []uint32{0, 255}}}}

// subscribeValue is subscription as the parameter's value.
const subscribeValue = "Cg84NTI4MzQ3M2ZmZmZmZmYSJQoPODUyODM0NDdmZmZmZmZmEg0IAxABGQcAAAAAAAAAIgMA_wE"

func TestSubscribeURL(t *testing.T) {
	for raw, want := range map[string]string{
		"ws://relay.test/view":              "ws://relay.test/view?subscribe=" + subscribeValue,
		"wss://relay.test/?room=a%20b#here": "wss://relay.test/?room=a%20b&subscribe=" + subscribeValue + "#here",
	} {
		full, ok := relaypb.SubscribeURL(raw, subscription)
		require.True(t, ok)
		require.Equal(t, want, full)
		u, err := url.Parse(full)
		require.NoError(t, err)
		got, err := relaypb.ParseSubscribe(u.Query().Get(relaypb.SubscribeParam))
		require.NoError(t, err)
		require.True(t, proto.Equal(subscription, got))
	}
}

func TestSubscribeURLThatCannotBe(t *testing.T) {
	long := &relaypb.Subscribe{}
	for range 200 {
		long.Tiles = append(long.Tiles, "85283473fffffff")
	}
	for raw, s := range map[string]*relaypb.Subscribe{
		"ws://relay.test": long, "ws://[": subscription, "ws://relay.test/": {Tiles: []string{"\xff"}}} {
		full, ok := relaypb.SubscribeURL(raw, s)
		require.False(t, ok)
		require.Equal(t, raw, full)
	}
}

func TestParseSubscribeRefuses(t *testing.T) {
	for _, value := range []string{"!", subscribeValue + "=", "Cg8", "CgEF_w", strings.Repeat("A", 5000)} {
		_, err := relaypb.ParseSubscribe(value)
		var wrong *fence.ArgumentError
		require.ErrorAs(t, err, &wrong, value)
		require.Equal(t, relaypb.SubscribeParam, wrong.Field)
		require.Less(t, len(err.Error()), 200)
	}
}

// TestTheWireContractShowsASubscription as it is written.
func TestTheWireContractShowsASubscription(t *testing.T) {
	contract, err := os.ReadFile("../../docs/wire.md")
	require.NoError(t, err)
	path, ok := relaypb.SubscribeURL("/view", &relaypb.Subscribe{Tiles: []string{"85283473fffffff"}})
	require.True(t, ok)
	require.Contains(t, string(contract), "GET "+path+" HTTP/1.1")
}

// FuzzParseSubscribe: whatever comes is refused, or is a message that can be written again.
func FuzzParseSubscribe(f *testing.F) {
	for _, seed := range []string{"", subscribeValue, "Cg8", "!"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		s, err := relaypb.ParseSubscribe(value)
		if err != nil {
			return
		}
		data, err := proto.Marshal(s)
		require.NoError(t, err)
		again := &relaypb.Subscribe{}
		require.NoError(t, proto.Unmarshal(data, again))
		require.True(t, proto.Equal(s, again))
	})
}
