package transfer

import (
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Speech is what a tile may say to others: its channels as of the last batch that cannot be undone. That is what every
// replica has confirmed; of a tile with a journal, what the journal has.
type Speech struct {
	Stable State

	journal, through bool
	waits            []waiting // committed since, oldest first; see mostWaits
}

// mostWaits bounds the states that wait to be stable. Each may have an outbox of its own, of which a full one has
// Window entries. Of more states some in between are forgotten: the tile says the same, in larger steps.
const mostWaits = 32

// waiting is the state after a batch that may still be lost.
type waiting struct {
	at fence.Position
	State
}

// Begin begins with an owner's state, which is stable: every replica has confirmed it, and it is the journal's base.
// journal says that the tile has a journal, through that a batch is committed when the journal has it.
func (s *Speech) Begin(now State, journal, through bool) {
	*s = Speech{Stable: now, journal: journal, through: through}
}

// Committed notes the state after a batch, and whether every replica has confirmed it. It reports whether that is what
// may be said now.
func (s *Speech) Committed(b *stream.Batch, at fence.Position, now State, confirmed bool) bool {
	crosses := len(b.Departures)+len(b.Decisions)+len(b.Settlements) > 0
	switch {
	case confirmed && !s.journal, s.through && crosses:
		s.Stable, s.waits = now, nil
		return true
	case crosses:
		s.waits = append(slices.Clip(s.waits), waiting{at, now})
		if len(s.waits) > mostWaits {
			s.thin()
		}
	}
	return false
}

// thin forgets every other state that waits, but the last.
func (s *Speech) thin() {
	left := make([]waiting, 0, mostWaits)
	for i := (len(s.waits) - 1) % 2; i < len(s.waits); i += 2 {
		left = append(left, s.waits[i])
	}
	s.waits = left
}

// Confirmed notes that every replica has the history up to a position. It reports whether there is more to say.
func (s *Speech) Confirmed(at fence.Position) bool { return !s.journal && s.reached(at) }

// Journaled notes that the journal has the history up to a position. It reports whether there is more to say.
func (s *Speech) Journaled(at fence.Position) bool { return s.journal && s.reached(at) }

func (s *Speech) reached(at fence.Position) bool {
	n := 0
	for n < len(s.waits) && s.waits[n].at.Epoch == at.Epoch && s.waits[n].at.Seq <= at.Seq {
		n++
	}
	if n > 0 {
		s.Stable, s.waits = s.waits[n-1].State, slices.Clone(s.waits[n:])
	}
	return n > 0
}

// Asks is where the replicas have to be asked up to, for the tile to say all; false: nothing waits for them.
func (s *Speech) Asks() (at fence.Position, ok bool) {
	if len(s.waits) == 0 || s.journal {
		return at, false
	}
	return s.waits[len(s.waits)-1].at, true
}

// Waits reports whether there is more to say than may be said.
func (s *Speech) Waits() bool { return len(s.waits) > 0 }

// Latest is the state after the last batch.
func (s *Speech) Latest() *State {
	if n := len(s.waits); n > 0 {
		return &s.waits[n-1].State
	}
	return &s.Stable
}

// Presented is what a tile tells another: what has departed for it after a transfer, in order and without a gap.
type Presented struct {
	After     stream.TransferID // zero: from the first on
	Settled   stream.TransferID // the last that is settled
	Transfers []stream.Transfer
}

// last is the one up to which it goes.
func (p *Presented) last() stream.TransferID {
	if n := len(p.Transfers); n > 0 {
		return p.Transfers[n-1].ID
	}
	return stream.TransferID{}
}

// Size is what its transfers have in bytes.
func (p *Presented) Size() (n int) {
	for i := range p.Transfers {
		n += p.Transfers[i].Size()
	}
	return n
}

// Over is what counts of two presentations of one tile: the transfers of the one that goes further, and the later word
// on what is settled.
func (p *Presented) Over(old *Presented) Presented {
	both, settled := *old, p.Settled
	if by := p.last().Compare(old.last()); by > 0 || by == 0 && settled.Compare(old.Settled) >= 0 {
		both = *p
	}
	if both.Settled = settled; old.Settled.Compare(settled) > 0 {
		both.Settled = old.Settled
	}
	return both
}

// Peer is what an owner knows of a tile that it presents departures to.
type Peer struct {
	Answered bool              // Mark and Refused are the latest answer
	Mark     stream.TransferID // up to which the tile has decided
	Refused  []stream.Refusal
	behind   int // answers in a row that had less decided than what is settled
}

// After is up to where the tile has decided, as far as it is known.
func (p *Peer) After(c *Channel) stream.TransferID {
	if !p.Answered {
		return c.Settled
	}
	return p.Mark
}

// Owes reports whether there is something to say to the tile.
func (p *Peer) Owes(c *Channel) bool {
	unsettled := p.Answered && len(p.Refused) > 0 && p.Refused[0].ID.Compare(c.Settled) <= 0
	return unsettled || len(c.Waiting(p.After(c), 0)) > 0
}

// Presents is what is said to the tile, of so many bytes at most, but for one transfer.
func (p *Peer) Presents(c *Channel, bytes int) Presented {
	after := p.After(c)
	return Presented{After: after, Settled: c.Settled, Transfers: c.Waiting(after, bytes)}
}

// Hears notes an answer of the tile. forgot is true once, when it has so often had less decided than this tile has
// settled that no earlier owner can have answered.
func (p *Peer) Hears(mark stream.TransferID, refused []stream.Refusal, c *Channel) (forgot bool) {
	p.Answered, p.Mark, p.Refused = true, mark, refused
	if mark.Compare(c.Settled) >= 0 {
		p.behind = 0
		return false
	}
	p.behind++
	return p.behind == behindBefore
}

// behindBefore is how many answers in a row must have forgotten something before that is reported: an earlier owner may
// have answered.
const behindBefore = 3

// Admits reports whether a tile with or without a journal takes what a tile with or without one presents: if the two
// promise the same, or mixed says that they need not.
func Admits(theirs, ours, mixed bool) bool { return theirs == ours || mixed }
