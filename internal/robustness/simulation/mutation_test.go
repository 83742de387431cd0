package simulation

import (
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
)

// Mutant is a protocol with one of its rules taken out, to see whether the checks notice.
type Mutant string

// The mutants.
const (
	Intact            Mutant = ""
	NoEpochComparison Mutant = "no epoch comparison"  // a lower epoch is as good as the owner's
	NoPositionCheck   Mutant = "no position check"    // a batch is appended whatever it says it follows
	NoChain           Mutant = "no chain"             // a position is epoch and sequence only
	NoDigest          Mutant = "no digest"            // a batch that is already there is not recognised
	WaitSkipped       Mutant = "wait skipped"         // replicas are said to have confirmed
	ExpiryIsEpochZero Mutant = "expiry is epoch zero" // any commit may follow a missing owner hash
	ReleaseForgets    Mutant = "release forgets"      // a released tile begins at epoch 1 again
)

// commit runs a commit on a state by the mutant's rules: memfence.State's, but for the one that is missing.
func (m Mutant) commit(s *memfence.State, c *fence.Commit) (fence.Receipt, error) {
	last := s.Last()
	switch {
	case m == NoEpochComparison && c.Epoch < max(s.Owner.Epoch, last.Epoch),
		m == ExpiryIsEpochZero && !s.Owner.Present():
		// The rule compares the owner, so present one that it accepts.
		was := s.Owner
		s.Owner = fence.Owner{Tile: c.Tile, Epoch: c.Epoch, Contact: c.Contact, Position: last, Tick: was.Tick}
		r, err := s.Commit(c)
		if err != nil {
			s.Owner = was
		}
		return r, err
	case m == NoDigest && !c.Refresh() && last == c.Next() && s.Owner.Epoch == c.Epoch:
		return fence.Receipt{}, fence.ErrForked
	}
	r, err := s.Commit(c)
	elsewhere := errors.Is(err, fence.ErrReplay) || errors.Is(err, fence.ErrForked) || errors.Is(err, fence.ErrBehind)
	if elsewhere && !c.Refresh() && (m == NoPositionCheck || m == NoChain) {
		return m.misplace(s, c, last, err)
	}
	return r, err
}

// misplace takes a batch that the position check refused, where the mutant does not see why.
func (m Mutant) misplace(
	s *memfence.State, c *fence.Commit, last fence.Position, refusal error,
) (fence.Receipt, error) {
	r := fence.Receipt{Position: c.Next()}
	switch {
	case m == NoPositionCheck, sameButChain(c.Prev, last):
		s.Entries = append(s.Entries, c.Entry())
	case sameButChain(r.Position, last):
		r.Duplicate = true
	default:
		return fence.Receipt{}, refusal
	}
	s.Owner = fence.Owner{Tile: c.Tile, Epoch: c.Epoch, Contact: c.Contact, Position: r.Position, Tick: c.Tick}
	return r, nil
}

func sameButChain(a, b fence.Position) bool { return a.Epoch == b.Epoch && a.Seq == b.Seq }

// rebase is commit's counterpart.
func (m Mutant) rebase(s *memfence.State, r *fence.Rebase, now time.Time) (fence.Receipt, error) {
	receipt, err := s.Rebase(r, now)
	last := s.Last()
	if m != NoEpochComparison || !errors.Is(err, fence.ErrStale) || r.Seq <= last.Seq {
		return receipt, err
	}
	fresh := memfence.State{}
	receipt, err = fresh.Rebase(r, now)
	s.Entries = append(s.Entries, fresh.Entries[0])
	s.Owner, s.Snapshot = fresh.Owner, fresh.Snapshot
	return receipt, err
}
