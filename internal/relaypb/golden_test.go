package relaypb_test

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

var update = flag.Bool("update", false, "write relay/testdata/messages.json anew: a new version of the protocol")

const goldenFile = "../../relay/testdata/messages.json"

// golden is one message of relay/testdata/messages.json, as it is on the wire. Clients in other languages are written
// against these bytes: a change is a new version of the protocol.
type golden struct {
	Name   string          `json:"name"`
	From   string          `json:"from"`             // "client" or "relay"
	Stored string          `json:"stored,omitempty"` // of a Frame: the entry in the stream, in hexadecimal
	Binary string          `json:"binary"`           // in hexadecimal
	JSON   json.RawMessage `json:"json"`
}

// The history in the messages is a true one: an install, then a batch with two events and the outcome of an action.
var (
	install = fence.NewEntry(fence.Entry{Tile: 0x85283473fffffff, Kind: fence.KindBatch,
		At:       fence.FromMillis(1_700_000_000_000),
		Position: fence.Position{Epoch: 3, Seq: 1}, Private: append([]byte{2, 16}, "0123456789abcdef"...)})
	batch = fence.NewEntry(fence.Entry{Tile: 0x85283473fffffff, Kind: fence.KindBatch,
		At:       fence.FromMillis(1_700_000_000_500),
		Position: fence.Position{Epoch: 3, Seq: 2}, Prev: install.Position, Tick: 130,
		Payload: []byte("\x00\x0a\x04move\x04stop"), Private: []byte("\x01\x06\x01\x040b54")})
	divided = fence.NewEntry(fence.Entry{Tile: 0x85283473fffffff, Kind: fence.KindBatch,
		At:       fence.FromMillis(1_700_000_001_000),
		Position: fence.Position{Epoch: 3, Seq: 3}, Prev: batch.Position, Tick: 131,
		Payload: []byte("\x00\x05\x04bell\x02\x05\x04move\x09\x05\x04stop")})
)

func frame(e fence.Entry) *relaypb.Frame {
	w := e.Watched(fence.AreaSet{})
	return relaypb.FromEntry(&w)
}

// part is a frame as a client is sent it that watches area 9.
func part(e fence.Entry) *relaypb.Frame {
	w := e.Watched(fence.Areas(9))
	return relaypb.FromEntry(&w)
}

func fromClient(m *relaypb.ClientMessage) proto.Message { return m }

func fromRelay(tile string, m *relaypb.ServerMessage) proto.Message {
	m.Tile = tile
	return m
}

// goldens are the messages, in the order of the file.
func goldens() (all []golden, messages []proto.Message) {
	tile := install.Tile.String()
	add := func(name, from, stored string, m proto.Message) {
		all, messages = append(all, golden{Name: name, From: from, Stored: stored}), append(messages, m)
	}
	add("subscribe", "client", "", fromClient(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{
		Subscribe: &relaypb.Subscribe{
			Tiles: []string{"85283447fffffff"},
			Held:  []*relaypb.Held{{Tile: tile, Position: relaypb.FromPosition(install.Position), EpochFloor: 3}},
		}}}))
	add("subscribe with a floor and no state", "client", "", fromClient(&relaypb.ClientMessage{
		Body: &relaypb.ClientMessage_Subscribe{
			Subscribe: &relaypb.Subscribe{Held: []*relaypb.Held{{Tile: tile, EpochFloor: 3}}},
		}}))
	add("unsubscribe", "client", "", fromClient(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Unsubscribe{
		Unsubscribe: &relaypb.Unsubscribe{Tiles: []string{tile}},
	}}))
	add("resync", "client", "", fromClient(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Resync{
		Resync: &relaypb.Resync{Tile: tile, Position: relaypb.FromPosition(install.Position), EpochFloor: 3},
	}}))
	add("subscribe to areas", "client", "", fromClient(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{
		Subscribe: &relaypb.Subscribe{Held: []*relaypb.Held{{Tile: tile, Areas: []uint32{9}}}},
	}}))
	add("watch other areas", "client", "", fromClient(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Watch{
		Watch: &relaypb.Watch{Tile: tile, Areas: []uint32{2, 9}, Number: 1},
	}}))
	add("refresh", "client", "", fromClient(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Refresh{
		Refresh: &relaypb.Refresh{Token: "a new token"},
	}}))
	add("session", "relay", "", fromRelay("", &relaypb.ServerMessage{
		Body: &relaypb.ServerMessage_Session{Session: &relaypb.Session{ExpiresInMs: 600_000}},
	}))
	add("heartbeat", "relay", "", fromRelay("", &relaypb.ServerMessage{
		Body: &relaypb.ServerMessage_Heartbeat{Heartbeat: &relaypb.Heartbeat{IntervalMs: 10_000}},
	}))
	add("sync from scratch, of a tile with a snapshot", "relay", "", fromRelay(tile, &relaypb.ServerMessage{
		Body: &relaypb.ServerMessage_Sync{Sync: &relaypb.Sync{
			Replace: true, From: relaypb.FromPosition(install.Position), Tick: 7, Blob: []byte("state"),
			Sum: fence.Checksum([]byte("state")), TakenMs: 1_700_000_000_100, Tail: []*relaypb.Frame{frame(batch)},
			Position: relaypb.FromPosition(batch.Position), OwnerEpoch: 3, OwnerContact: "owner:9000",
		}}}))
	add("sync from scratch, of a tile without a history", "relay", "", fromRelay(tile, &relaypb.ServerMessage{
		Body: &relaypb.ServerMessage_Sync{Sync: &relaypb.Sync{Replace: true}},
	}))
	add("sync of what was missed", "relay", "", fromRelay(tile, &relaypb.ServerMessage{
		Body: &relaypb.ServerMessage_Sync{Sync: &relaypb.Sync{
			From: relaypb.FromPosition(install.Position), Tail: []*relaypb.Frame{frame(batch)},
			Position: relaypb.FromPosition(batch.Position), OwnerEpoch: 3, OwnerContact: "owner:9000",
		}}}))
	nine := fence.AppendPart(nil, 9, []byte("state of 9"))
	add("sync that opens area 9", "relay", "", fromRelay(tile, &relaypb.ServerMessage{
		Body: &relaypb.ServerMessage_Sync{Sync: &relaypb.Sync{
			Opens: true, Areas: []uint32{9}, Divided: true, Watch: 1,
			From: relaypb.FromPosition(batch.Position), Tick: 130,
			Blob: nine, Sum: fence.Checksum(nine), TakenMs: 1_700_000_000_600, Tail: []*relaypb.Frame{part(divided)},
			Position: relaypb.FromPosition(divided.Position), OwnerEpoch: 3, OwnerContact: "owner:9000",
		}}}))
	add("frame of a batch, without area 2", "relay", hex.EncodeToString(divided.Frame),
		fromRelay(tile, &relaypb.ServerMessage{Body: &relaypb.ServerMessage_Frame{Frame: part(divided)}}))
	for _, e := range []struct {
		name  string
		entry fence.Entry
	}{{"frame of an install", install}, {"frame of a batch", batch}, {"frame of a batch in areas", divided}} {
		add(e.name, "relay", hex.EncodeToString(e.entry.Frame), fromRelay(tile, &relaypb.ServerMessage{
			Body: &relaypb.ServerMessage_Frame{Frame: frame(e.entry)},
		}))
	}
	for code := relaypb.Code_CODE_MALFORMED; relaypb.Code_name[int32(code)] != ""; code++ {
		about := tile
		switch code {
		case relaypb.Code_CODE_MALFORMED, relaypb.Code_CODE_RATE_LIMITED, relaypb.Code_CODE_UNAUTHENTICATED:
			about = "" // the connection
		}
		add("error "+code.String(), "relay", "", fromRelay(about, &relaypb.ServerMessage{
			Body: &relaypb.ServerMessage_Error{Error: &relaypb.Error{Code: code, Message: "for a log"}},
		}))
	}
	add("go away", "relay", "", fromRelay("", &relaypb.ServerMessage{
		Body: &relaypb.ServerMessage_GoAway{GoAway: &relaypb.GoAway{Message: "for a log", WithinMs: 5000}},
	}))
	return all, messages
}

func TestGolden(t *testing.T) {
	all, messages := goldens()
	if *update {
		for i := range all {
			data, err := relaypb.Binary.Append(nil, messages[i])
			require.NoError(t, err)
			all[i].Binary = hex.EncodeToString(data)
			all[i].JSON, err = relaypb.JSON.Append(nil, messages[i])
			require.NoError(t, err)
		}
		file, err := json.MarshalIndent(all, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(goldenFile, append(file, '\n'), 0o644))
	}
	file, err := os.ReadFile(goldenFile)
	require.NoError(t, err)
	var want []golden
	require.NoError(t, json.Unmarshal(file, &want))
	require.Len(t, want, len(all))
	for i, g := range want {
		require.Equal(t, all[i].Name, g.Name)
		require.Equal(t, all[i].Stored, g.Stored, g.Name)
		data, err := relaypb.Binary.Append(nil, messages[i])
		require.NoError(t, err)
		require.Equal(t, g.Binary, hex.EncodeToString(data), g.Name)
		text, err := relaypb.JSON.Append(nil, messages[i])
		require.NoError(t, err)
		require.JSONEq(t, string(g.JSON), string(text), g.Name)
		for e, in := range map[relaypb.Encoding][]byte{relaypb.Binary: data, relaypb.JSON: g.JSON} {
			got := messages[i].ProtoReflect().New().Interface()
			require.NoError(t, e.Decode(in, got))
			require.True(t, proto.Equal(messages[i], got), g.Name)
		}
	}
}

// TestGoldenIsComplete: every field of every message is set in some golden message, and every code is sent.
func TestGoldenIsComplete(t *testing.T) {
	set := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			set[f.FullName()] = true
			switch {
			case f.IsList() && f.Message() != nil:
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			case f.Message() != nil:
				walk(v.Message())
			case f.Enum() != nil:
				set[f.Enum().Values().ByNumber(v.Enum()).FullName()] = true
			}
			return true
		})
	}
	_, messages := goldens()
	for _, m := range messages {
		walk(m.ProtoReflect())
	}
	types := relaypb.File_relay_view_proto.Messages()
	for i := range types.Len() {
		for j := range types.Get(i).Fields().Len() {
			name := types.Get(i).Fields().Get(j).FullName()
			require.True(t, set[name], "no golden message has %s", name)
		}
	}
	for number, name := range relaypb.Code_name {
		full := protoreflect.FullName("tilefence.view.v1." + name)
		require.True(t, number == 0 || set[full], "no golden message has %s", full)
	}
}

// TestGoldenFramesVerify: a client can check each frame's chain from what it is sent, without the private part.
func TestGoldenFramesVerify(t *testing.T) {
	for _, whole := range []fence.Entry{install, batch} {
		sent := frame(whole).Entry(whole.Tile)
		require.Empty(t, sent.Private)
		require.NoError(t, sent.Verify())
		sent.Hidden++
		require.Error(t, sent.Verify())
	}
}
