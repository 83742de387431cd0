package relaypb_test

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

var (
	first  = fence.Position{Epoch: 1, Seq: 119, Chain: 0x0102030405060708}
	second = fence.Position{Epoch: 3, Seq: 120, Chain: 0xf0debc9a78563412}
	entry  = fence.Entry{Tile: 1, Kind: fence.KindBatch, Position: second, Prev: first, Tick: 130,
		At: fence.FromMillis(1_700_000_000_000), Payload: []byte("move"), Hidden: 0x1122334455667788}
)

// golden are messages as they are on the wire. Clients in other languages are written against them: a
// change here is a new protocol version.
var golden = []struct {
	name   string
	m      proto.Message
	binary string
	json   string
}{
	{
		"subscribe",
		&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Tiles: []string{"85283473fffffff"},
			Held:  []*relaypb.Held{{Tile: "85283447fffffff", Position: relaypb.FromPosition(first)}},
		}}},
		"0a33" + "0a0f383532383334373366666666666666" + "1220" + "0a0f383532383334343766666666666666" + "120d" + "08011077190807060504030201",
		`{"subscribe":{"tiles":["85283473fffffff"],"held":[{"tile":"85283447fffffff","position":{"epoch":"1","seq":"119","chain":"72623859790382856"}}]}}`,
	},
	{
		"subscribe with a floor",
		&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: "1", EpochFloor: 3}},
		}}},
		"0a07" + "1205" + "0a0131" + "1803",
		`{"subscribe":{"held":[{"tile":"1","epochFloor":"3"}]}}`,
	},
	{
		"unsubscribe",
		&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Unsubscribe{Unsubscribe: &relaypb.Unsubscribe{Tiles: []string{"1"}}}},
		"1203" + "0a0131",
		`{"unsubscribe":{"tiles":["1"]}}`,
	},
	{
		"resync",
		&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Resync{Resync: &relaypb.Resync{Tile: "1", Position: relaypb.FromPosition(first), EpochFloor: 3}}},
		"1a14" + "0a0131" + "120d" + "08011077190807060504030201" + "1803",
		`{"resync":{"tile":"1","position":{"epoch":"1","seq":"119","chain":"72623859790382856"},"epochFloor":"3"}}`,
	},
	{
		"frame",
		&relaypb.ServerMessage{Tile: "1", Body: &relaypb.ServerMessage_Frame{Frame: relaypb.FromEntry(&entry)}},
		"0a0131" + "1a39" + "0a0d" + "0803107819123456789abcdef0" + "120d" + "08011077190807060504030201" +
			"188201" + "2080d095ffbc31" + "2801" + "318877665544332211" + "3a046d6f7665",
		`{"tile":"1","frame":{"position":{"epoch":"3","seq":"120","chain":"17356517385562371090"},"prev":{"epoch":"1","seq":"119","chain":"72623859790382856"},"tick":"130","atMs":"1700000000000","kind":1,"hidden":"1234605616436508552","payload":"bW92ZQ=="}}`,
	},
	{
		"sync from scratch",
		&relaypb.ServerMessage{Tile: "1", Body: &relaypb.ServerMessage_Sync{Sync: &relaypb.Sync{
			Replace: true, From: relaypb.FromPosition(first), Tick: 7, Blob: []byte("state"), Sum: "ab", TakenMs: 9,
			Tail: []*relaypb.Frame{{Kind: 1}}, Position: relaypb.FromPosition(second), OwnerEpoch: 3, OwnerContact: "a:1",
		}}},
		"0a0131" + "123a" + "0801" + "120d" + "08011077190807060504030201" + "1807" + "22057374617465" + "2a026162" + "3009" +
			"3a022801" + "420d" + "0803107819123456789abcdef0" + "4803" + "5203613a31",
		`{"tile":"1","sync":{"replace":true,"from":{"epoch":"1","seq":"119","chain":"72623859790382856"},"tick":"7","blob":"c3RhdGU=","sum":"ab","takenMs":"9","tail":[{"kind":1}],"position":{"epoch":"3","seq":"120","chain":"17356517385562371090"},"ownerEpoch":"3","ownerContact":"a:1"}}`,
	},
	{
		"error",
		&relaypb.ServerMessage{Tile: "1", Body: &relaypb.ServerMessage_Error{Error: &relaypb.Error{Code: relaypb.Code_CODE_FORBIDDEN, Message: "no"}}},
		"0a0131" + "2206" + "0804" + "12026e6f",
		`{"tile":"1","error":{"code":"CODE_FORBIDDEN","message":"no"}}`,
	},
	{
		"stale",
		&relaypb.ServerMessage{Tile: "1", Body: &relaypb.ServerMessage_Error{Error: &relaypb.Error{Code: relaypb.Code_CODE_STALE, Message: "x"}}},
		"0a0131" + "2205" + "0809" + "120178",
		`{"tile":"1","error":{"code":"CODE_STALE","message":"x"}}`,
	},
	{
		"go away",
		&relaypb.ServerMessage{Body: &relaypb.ServerMessage_GoAway{GoAway: &relaypb.GoAway{Message: "x", WithinMs: 5000}}},
		"2a06" + "0a0178" + "108827",
		`{"goAway":{"message":"x","withinMs":5000}}`,
	},
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			data, err := relaypb.Binary.Append(nil, g.m)
			require.NoError(t, err)
			require.Equal(t, g.binary, hex.EncodeToString(data))
			text, err := relaypb.JSON.Append(nil, g.m)
			require.NoError(t, err)
			require.JSONEq(t, g.json, string(text))
			for e, in := range map[relaypb.Encoding][]byte{relaypb.Binary: data, relaypb.JSON: []byte(g.json)} {
				got := g.m.ProtoReflect().New().Interface()
				require.NoError(t, e.Decode(in, got))
				require.True(t, proto.Equal(g.m, got))
			}
		})
	}
}

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
