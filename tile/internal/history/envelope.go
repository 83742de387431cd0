package history

import (
	"encoding/binary"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

// appendEnvelope encodes a snapshot blob: the game's state and, in the part for owners, the remembered actions and what
// crosses the tile's border.
//
//	actions    varint count, then per action: varint tick, outcome (1 byte), varint length, action ID
//	transfers  as transfer.State.Append; nothing if there are none
//
// Varints are unsigned LEB128.
func appendEnvelope(dst, game []byte, divided bool, m *Actions, transfers *transfer.State) []byte {
	actions := binary.AppendUvarint(nil, uint64(len(m.order)))
	for _, r := range m.order {
		actions = binary.AppendUvarint(actions, uint64(r.tick))
		actions = append(actions, byte(r.outcome))
		actions = binary.AppendUvarint(actions, uint64(len(r.id)))
		actions = append(actions, r.id...)
	}
	actions = transfers.Append(actions)
	if divided {
		return stream.AppendDivided(dst, game, actions)
	}
	return stream.AppendSnapshot(dst, game, actions)
}

// envelope is a snapshot blob taken apart. Its bytes alias the blob.
type envelope struct {
	game      []byte
	actions   []remembered
	transfers transfer.State
}

func openEnvelope(blob []byte) (envelope, error) {
	bad := func(why string) (envelope, error) {
		return envelope{}, &fence.FormatError{What: "snapshot", Detail: why}
	}
	var e envelope
	game, private, err := stream.OpenSnapshot(blob)
	if err != nil {
		return e, err
	}
	e.game = game
	r := reader{p: private}
	n := r.number()
	if n > uint64(len(r.p)/3) {
		return bad("more actions than bytes")
	}
	e.actions = make([]remembered, 0, n)
	for range n {
		a := remembered{tick: fence.Tick(r.number())}
		a.outcome = stream.Outcome(r.byte())
		a.id = string(r.take(stream.MaxActionID))
		if r.short || !a.outcome.Valid() || a.id == "" {
			return bad("unreadable action")
		}
		e.actions = append(e.actions, a)
	}
	if r.short {
		return bad("cut short")
	}
	if e.transfers, err = transfer.Decode(r.p); err != nil {
		return envelope{}, err
	}
	return e, nil
}

// Channels is what a snapshot and the entries after it say of what crosses a tile's border. It needs no rules. The
// error is a *fence.FormatError or a *fence.CorruptError.
func Channels(tile fence.TileID, s *fence.Snapshot, tail []fence.Entry) (transfer.State, error) {
	state := transfer.State{}
	if len(s.Blob) > 0 { // else the tile has no snapshot yet
		e, err := openEnvelope(s.Blob)
		if err != nil {
			return state, err
		}
		state = e.transfers
	}
	for i := range tail {
		b, err := stream.DecodeBatch(&tail[i])
		if err == nil {
			state, err = state.Fold(tail[i].Position, tail[i].Tick, b)
		}
		if err != nil {
			return transfer.State{}, &fence.CorruptError{Tile: tile, What: "stream entry", At: tail[i].Position,
				Detail: err.Error()}
		}
	}
	return state, nil
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
