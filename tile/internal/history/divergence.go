package history

import (
	"bytes"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Divergence is a state that was found not to be the owner's.
type Divergence struct {
	At    fence.Position // where both had folded the same batches
	Tick  fence.Tick
	Owner fence.Epoch
	Own   []byte // the game's state here

	// Stored is the owner's state, and Again what this game makes of it, restored and encoded again. Both are nil
	// unless the history was then replayed from a snapshot at this position.
	Stored, Again []byte
}

// Recoded reports whether only the bytes differ: restored here, the owner's state is encoded as the own one.
func (d *Divergence) Recoded() bool { return d.Stored != nil && bytes.Equal(d.Own, d.Again) }

// StateSum is the sum of the game's state as it is at the end of the history, if a snapshot was encoded there; else
// zero.
func (h *History) StateSum() uint32 {
	if h.snapped != h.Position {
		return 0
	}
	return h.sum
}

// compare compares the state with what an owner says of its own at the same position. It costs a Snapshot.
func (h *History) compare(sum uint32, owner fence.Epoch) {
	if sum == 0 || owner == h.Recoded {
		return
	}
	own, err := h.game.Snapshot()
	switch {
	case err != nil: // no answer; where it matters it is reported
	case stream.SumState(own) == sum && h.Position != h.restored:
		h.Agreed++
	case stream.SumState(own) == sum: // it is the owner's, not folded here
	default:
		h.Divergence = &Divergence{At: h.Position, Tick: h.Tick, Owner: owner, Own: bytes.Clone(own)}
	}
}

// explain completes a divergence by a snapshot that has just been restored.
func (h *History) explain(s *fence.Snapshot) {
	h.restored = s.Position
	d := h.Divergence
	if d == nil || d.At != s.Position {
		return
	}
	game, _, err := stream.OpenSnapshot(s.Blob)
	if err != nil {
		return
	}
	if d.Again, err = h.game.Snapshot(); err == nil {
		d.Stored, d.Again = bytes.Clone(game), bytes.Clone(d.Again)
	}
}
