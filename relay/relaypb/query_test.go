package relaypb_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

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
