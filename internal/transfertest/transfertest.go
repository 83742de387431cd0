// Package transfertest makes the history of a tile whose border is crossed all the time, and reads it back. The
// conformance suites of what keeps histories use it: what crosses a border is in the private parts of batches and
// snapshots, which stores keep and do not understand.
package transfertest

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

// neighbour is the tile that entities are exchanged with, and later a section of the private part that a later release
// may have. Readers of this one leave it alone.
const (
	neighbour fence.TileID = 7
	later     fence.Area   = 200
)

// Tile is a tile as its owner has it. The zero value is a new one.
type Tile struct {
	State transfer.State
	ticks int
}

// Next is the batch of the next tick, which is committed at a position, as the parts of its entry. Of four ticks the
// first sends two entities away, the second takes one and refuses one, the third takes back the first of those sent and
// cannot, and the fourth settles the other, takes back what is parked and forgets the refusal.
func (h *Tile) Next(t require.TestingT, at fence.Position) (payload, private []byte) {
	round := fence.Seq(h.ticks/4 + 1)
	their := func(i int) stream.TransferID { return stream.TransferID{Epoch: 3, Seq: round, Index: i} }
	c := h.State.With(neighbour)
	b := stream.Batch{Events: [][]byte{fmt.Appendf(nil, "tick %d\x00\xff", h.ticks)}}
	switch h.ticks % 4 {
	case 0:
		for i := range 2 {
			b.Departures = append(b.Departures, stream.Departure{To: neighbour, Entity: fmt.Sprint(h.ticks, ".", i),
				Actor: "ada", Payload: bytes.Repeat([]byte{0, byte(h.ticks), 0xff, '\n'}, h.ticks)})
		}
	case 1:
		b.Decisions = []stream.Decision{{From: neighbour, Mark: their(2),
			Refused: []stream.Refusal{{ID: their(1), Reason: "the port is full"}}}}
	case 2:
		id := c.Outbox[0].ID
		b.Settlements = []stream.Settlement{{To: neighbour, UpTo: id,
			Parked: []stream.Refusal{{ID: id, Reason: "the rules fail with it"}}}}
	case 3:
		b.Settlements = []stream.Settlement{{To: neighbour, UpTo: c.Outbox[0].ID,
			Retaken: []stream.TransferID{c.Parked[0].ID}}}
		b.Decisions = []stream.Decision{{From: neighbour, Forget: their(1)}}
	}
	h.ticks++
	payload, private, err := b.Encode()
	require.NoError(t, err)
	h.State, err = h.State.Fold(at, 0, &b)
	require.NoError(t, err)
	return payload, fence.AppendPart(private, later, []byte{0xff, 0, byte(h.ticks)})
}

// Blob is a snapshot of the tile.
func (h *Tile) Blob() []byte {
	return stream.AppendSnapshot(nil, []byte("the game's\x00\xff"), h.State.Append(nil))
}

// Read is what a snapshot and the entries after it say of what crosses the tile's border.
func Read(t require.TestingT, blob []byte, tail []fence.Entry) transfer.State {
	_, private, err := stream.OpenSnapshot(blob)
	require.NoError(t, err)
	s, err := transfer.Decode(private)
	require.NoError(t, err)
	for i := range tail {
		b, err := stream.DecodeBatch(&tail[i])
		require.NoError(t, err)
		s, err = s.Fold(tail[i].Position, 0, b)
		require.NoError(t, err, "at %s", tail[i].Position)
	}
	return s
}

// RequireEqual requires that two states are the same.
func RequireEqual(t require.TestingT, want, got transfer.State) {
	require.Equal(t, want.Append(nil), got.Append(nil))
	require.NotZero(t, want.Bytes())
}
