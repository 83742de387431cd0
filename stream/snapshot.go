package stream

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tilefence/tilefence/fence"
)

// The first byte of a snapshot blob.
const (
	snapshotWhole   = 1
	snapshotDivided = 2
)

// AppendSnapshot appends a snapshot blob: the game's state, which watchers are sent, and what only owners read.
//
//	version  1 byte: 1, or 2 if the game's part is a list of parts
//	game     varint length, bytes
//	private  the rest
func AppendSnapshot(dst, game, private []byte) []byte {
	return appendSnapshot(dst, snapshotWhole, game, private)
}

// AppendDivided is AppendSnapshot for a game that is divided into areas: the state is a list with a part for each area
// (see fence.Part), so that watchers can be sent some of them.
func AppendDivided(dst, game, private []byte) []byte {
	return appendSnapshot(dst, snapshotDivided, game, private)
}

func appendSnapshot(dst []byte, version byte, game, private []byte) []byte {
	dst = binary.AppendUvarint(append(dst, version), uint64(len(game)))
	return append(append(dst, game...), private...)
}

// Divided reports whether the game's part of a snapshot blob is a list of parts.
func Divided(blob []byte) bool { return len(blob) > 0 && blob[0] == snapshotDivided }

// OpenSnapshot takes a snapshot blob apart; both parts alias it. An empty blob is a new tile and has neither. A
// *fence.FormatError says what is wrong.
func OpenSnapshot(blob []byte) (game, private []byte, err error) {
	if len(blob) == 0 {
		return nil, nil, nil
	}
	if blob[0] != snapshotWhole && blob[0] != snapshotDivided {
		return nil, nil, &fence.FormatError{What: "snapshot",
			Detail: fmt.Sprintf("version %d, this reader knows 1 and 2", blob[0])}
	}
	d := decoder{p: blob[1:]}
	game = d.bytes(math.MaxInt32)
	if d.err != nil {
		return nil, nil, &fence.FormatError{What: "snapshot", Detail: d.err.Error()}
	}
	if Divided(blob) {
		if err := fence.CheckParts(game); err != nil {
			return nil, nil, err
		}
	}
	return game, d.p, nil
}

// WatchedSnapshot leaves of a snapshot what watchers are sent: the blob without its private part, and in Sum the
// checksum of the game's part. The error is a *fence.CorruptError.
func WatchedSnapshot(tile fence.TileID, s *fence.Snapshot) error {
	game, private, err := OpenSnapshot(s.Blob)
	if err != nil {
		return &fence.CorruptError{Tile: tile, What: "snapshot", At: s.Position, Detail: err.Error()}
	}
	s.Blob, s.Sum = s.Blob[:len(s.Blob)-len(private)], fence.Checksum(game)
	return nil
}
