package stream

import (
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// FrameField is the name of a stream entry's one field: the frame.
const FrameField = "f"

// ParseEntry reads a stored entry, which must be the tile's and of this sequence. The error is a
// *fence.FormatError. It does not compare the chain with the content: fence.Entry.Verify does. For back ends.
func ParseEntry(tile fence.TileID, seq fence.Seq, frame []byte) (fence.Entry, error) {
	e, err := fence.DecodeEntry(frame)
	if err == nil && (e.Tile != tile || e.Seq != seq) {
		err = &fence.FormatError{What: "entry", Detail: fmt.Sprintf("it is tile %s, sequence %d", e.Tile, e.Seq)}
	}
	return e, err
}

// EntryOf reads an entry that was once set aside as unreadable: this version may understand what an older one did
// not, or an operator may have repaired the frame. It must be what it says, and hold a readable batch. Errors: a
// *fence.CorruptError, which says what is still wrong.
func EntryOf(p *Poison) (fence.Entry, error) {
	e, err := ParseEntry(p.Tile, p.Seq, []byte(p.Fields[FrameField]))
	if err == nil {
		if err = e.Verify(); err != nil {
			return fence.Entry{}, err
		}
		_, err = DecodeBatch(&e)
	}
	if err != nil {
		return fence.Entry{}, &fence.CorruptError{Tile: p.Tile, What: "dead letter",
			At: fence.Position{Epoch: p.Epoch, Seq: p.Seq}, Detail: err.Error()}
	}
	return e, nil
}
