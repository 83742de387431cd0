package stream

import (
	"encoding/binary"
	"math"

	"github.com/tilefence/tilefence/fence"
)

// snapshotVersion is the first byte of every snapshot blob.
const snapshotVersion = 1

// AppendSnapshot appends a snapshot blob: the game's state, which watchers are sent, and what only owners read.
//
//	version  1 byte, 1
//	game     varint length, bytes
//	private  the rest
func AppendSnapshot(dst, game, private []byte) []byte {
	dst = binary.AppendUvarint(append(dst, snapshotVersion), uint64(len(game)))
	return append(append(dst, game...), private...)
}

// OpenSnapshot takes a snapshot blob apart; both parts alias it. An empty blob is a new tile and has neither. A
// *fence.FormatError says what is wrong.
func OpenSnapshot(blob []byte) (game, private []byte, err error) {
	if len(blob) == 0 {
		return nil, nil, nil
	}
	if blob[0] != snapshotVersion {
		return nil, nil, &fence.FormatError{What: "snapshot", Detail: "unknown version"}
	}
	d := decoder{p: blob[1:]}
	game = d.bytes(math.MaxInt32)
	if d.err != nil {
		return nil, nil, &fence.FormatError{What: "snapshot", Detail: d.err.Error()}
	}
	return game, d.p, nil
}
