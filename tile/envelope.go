package tile

import (
	"encoding/binary"
	"math"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// envelopeVersion is the first byte of every snapshot blob.
const envelopeVersion = 1

// appendEnvelope encodes a snapshot blob: the game's state and the remembered actions.
//
//	version    1 byte, 1
//	game       varint length, bytes: what Rules.Snapshot gave
//	actions    varint count, then per action: varint tick, outcome (1 byte), varint length, action ID
//
// Varints are unsigned LEB128.
func appendEnvelope(dst, game []byte, m *actionMemory) []byte {
	dst = append(dst, envelopeVersion)
	dst = binary.AppendUvarint(dst, uint64(len(game)))
	dst = append(dst, game...)
	dst = binary.AppendUvarint(dst, uint64(len(m.order)))
	for _, r := range m.order {
		dst = binary.AppendUvarint(dst, uint64(r.tick))
		dst = append(dst, byte(r.outcome))
		dst = binary.AppendUvarint(dst, uint64(len(r.id)))
		dst = append(dst, r.id...)
	}
	return dst
}

// OpenSnapshot returns the game's part of a snapshot blob, which aliases blob: what Rules.Restore takes.
// An empty blob is a new tile and gives nil. A *stream.FormatError says what is wrong.
func OpenSnapshot(blob []byte) (game []byte, err error) {
	if len(blob) == 0 {
		return nil, nil
	}
	game, _, err = openEnvelope(blob)
	return game, err
}

func openEnvelope(blob []byte) (game []byte, actions []remembered, err error) {
	bad := func(why string) ([]byte, []remembered, error) {
		return nil, nil, &stream.FormatError{What: "snapshot", Detail: why}
	}
	if blob[0] != envelopeVersion {
		return bad("unknown version")
	}
	r := reader{p: blob[1:]}
	game = r.take(math.MaxInt32)
	n := r.number()
	if n > uint64(len(r.p)/3) {
		return bad("more actions than bytes")
	}
	actions = make([]remembered, 0, n)
	for range n {
		a := remembered{tick: fence.Tick(r.number())}
		a.outcome = stream.Outcome(r.byte())
		a.id = string(r.take(stream.MaxActionID))
		if r.short || !a.outcome.Valid() || a.id == "" {
			return bad("unreadable action")
		}
		actions = append(actions, a)
	}
	if r.short || len(r.p) > 0 {
		return bad("cut short, or bytes after the end")
	}
	return game, actions, nil
}

// reader takes an envelope apart; once short it gives zeros.
type reader struct {
	p     []byte
	short bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.p)
	if n <= 0 {
		r.short, r.p = true, nil
		return 0
	}
	r.p = r.p[n:]
	return v
}

func (r *reader) byte() byte {
	if len(r.p) == 0 {
		r.short = true
		return 0
	}
	b := r.p[0]
	r.p = r.p[1:]
	return b
}

func (r *reader) take(limit uint64) []byte {
	n := r.number()
	if n > limit || n > uint64(len(r.p)) {
		r.short, r.p = true, nil
		return nil
	}
	b := r.p[:n:n]
	r.p = r.p[n:]
	return b
}
