package relayclient_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// FuzzReceive: whatever a relay sends, the application is never given anything below what it was shown, and a batch
// only where it follows what was given before.
func FuzzReceive(f *testing.F) {
	const id fence.TileID = 0x85283473fffffff
	c := fence.Commit{Tile: id, Epoch: 3, Contact: "a:1", Prev: fence.Position{Epoch: 3, Seq: 6}, Tick: 9,
		Payload: []byte{0}}
	e := c.Entry()
	encode := func(m *relaypb.ServerMessage) []byte {
		b, err := relaypb.Binary.Append(nil, m)
		require.NoError(f, err)
		return b
	}
	tail := &relaypb.Sync{Replace: true, From: relaypb.FromPosition(c.Prev), Position: relaypb.FromPosition(e.Position),
		Sum: fence.Checksum([]byte("x")), Blob: []byte("x"), Tail: []*relaypb.Frame{relaypb.FromEntry(&e)}}
	sync := &relaypb.ServerMessage{Tile: id.String(), Body: &relaypb.ServerMessage_Sync{Sync: tail}}
	frame := &relaypb.ServerMessage{Tile: id.String(),
		Body: &relaypb.ServerMessage_Frame{Frame: relaypb.FromEntry(&e)}}
	f.Add(encode(sync), encode(frame), encode(frame))
	f.Add(encode(frame), encode(sync), []byte{})
	f.Add([]byte("\x0a\x00"), []byte{0xff}, encode(sync))
	conn := relayclient.Lost(f)
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var messages []*relaypb.ServerMessage
		for _, raw := range [][]byte{a, b, c} {
			m := new(relaypb.ServerMessage)
			if relaypb.Binary.Decode(raw, m) == nil {
				messages = append(messages, m)
			}
		}
		var at fence.Position
		synced := false
		relayclient.Feed(t, conn, &relayclient.Config{
			Sync: func(s relayclient.Sync) {
				require.GreaterOrEqual(t, s.Position.Epoch, at.Epoch)
				if !s.Opens {
					at, synced = s.Snapshot.Position, true
				}
			},
			Frame: func(e fence.Entry) {
				require.True(t, synced)
				if e.Prev == at {
					at = e.Position
				}
			},
		}, id, messages)
	})
}
