package memfence

import (
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// State is one tile in the coordination store. The zero State is a tile that was never written. Its methods
// are the specification of the store's functions: given the same state they give the same answer, and a
// refusal (a fence refusal sentinel) changes nothing. Arguments must have been validated.
type State struct {
	Owner    fence.Owner     // Epoch zero: no owner hash
	Entries  []fence.Entry   // the stream, in order
	Snapshot *fence.Snapshot // nil: none

	Expires   time.Time // when all of it goes away, unless an owner comes back; zero: never
	Collected int       // how often it has gone away
}

// Last is where the tile's history ends: what the owner hash vouches for or, when that has expired, the
// later of the stream's last entry and the snapshot.
func (s *State) Last() fence.Position {
	if s.Owner.Present() {
		return s.Owner.Position
	}
	var last fence.Position
	if n := len(s.Entries); n > 0 {
		last = s.Entries[n-1].Position
	}
	if s.Snapshot != nil && s.Snapshot.Seq > last.Seq {
		last = s.Snapshot.Position
	}
	return last
}

// Commit is the commit table of docs/wire.md.
func (s *State) Commit(c *fence.Commit) (fence.Receipt, error) {
	last := s.Last()
	current := s.Owner.Epoch
	if !s.Owner.Present() {
		// Absent is not epoch zero: the stream remembers the last writer.
		if !c.Install {
			return fence.Receipt{}, fence.ErrNoOwner
		}
		current = last.Epoch
	}
	var entry fence.Entry
	next := c.Prev
	if !c.Refresh() {
		entry = c.Entry()
		next = entry.Position
	}
	tick := c.Tick
	if c.Epoch == s.Owner.Epoch && (c.Refresh() || last == next) {
		// A refresh, or a batch that is recognised, may have been delayed on its way, after later ticks.
		tick = max(tick, s.Owner.Tick)
	}
	switch {
	case c.Epoch < current:
		return fence.Receipt{}, fence.ErrStale
	case c.Epoch == s.Owner.Epoch && c.Contact != s.Owner.Contact:
		// An authority that was restored has granted the epoch twice. Their installs would be the same batch.
		return fence.Receipt{}, fence.ErrForked
	case !c.Refresh() && last == next:
		s.own(c.Tile, c.Epoch, c.Contact, last, tick)
		return fence.Receipt{Position: last, Duplicate: true}, nil
	}
	if err := follows(c, last, current); err != nil {
		return fence.Receipt{}, err
	}
	if !c.Refresh() {
		s.Entries = append(s.Entries, entry)
	}
	s.own(c.Tile, c.Epoch, c.Contact, next, tick)
	return fence.Receipt{Position: next}, nil
}

// follows refuses a commit that does not continue the tile's history from where it ends.
func follows(c *fence.Commit, last fence.Position, current fence.Epoch) error {
	switch {
	case last.Seq < c.Prev.Seq:
		return fence.ErrBehind
	case c.Epoch > current && !c.Install:
		// The store has never heard of this owner's epoch, and the owner does not claim to be new.
		return fence.ErrNoOwner
	case last != c.Prev && last.Epoch < c.Epoch:
		return fence.ErrReplay
	case last != c.Prev:
		return fence.ErrForked
	}
	return nil
}

// Rebase installs an owner from state. now is the store's clock.
func (s *State) Rebase(r *fence.Rebase, now time.Time) (fence.Receipt, error) {
	last := s.Last()
	marker := r.Entry()
	next := marker.Position
	twin := s.Owner.Present() && s.Owner.Contact != r.Contact // see Commit
	if last.Epoch == r.Epoch && last.Chain == next.Chain && !twin {
		s.own(r.Tile, r.Epoch, r.Contact, last, max(r.Tick, s.Owner.Tick))
		return fence.Receipt{Position: last, Duplicate: true}, nil
	}
	highest := max(s.Owner.Epoch, last.Epoch)
	if s.Snapshot != nil {
		highest = max(highest, s.Snapshot.Epoch)
	}
	switch {
	case r.Epoch <= highest:
		return fence.Receipt{}, fence.ErrStale
	case r.Seq <= last.Seq, r.Replaces != nil && *r.Replaces != last:
		return fence.Receipt{}, fence.ErrBehind
	}
	s.Snapshot = &fence.Snapshot{Position: next, Tick: r.Tick, Contact: r.Contact, Sum: fence.Checksum(r.Blob),
		Taken: now, Blob: slices.Clone(r.Blob)}
	s.Entries = append(s.Entries, marker)
	s.own(r.Tile, r.Epoch, r.Contact, next, r.Tick)
	return fence.Receipt{Position: next}, nil
}

// SaveSnapshot replaces the snapshot.
func (s *State) SaveSnapshot(w *fence.SnapshotWrite, now time.Time) error {
	epoch := w.Position.Epoch
	switch {
	case !s.Owner.Present() || epoch > s.Owner.Epoch:
		return fence.ErrNoOwner
	case epoch < s.Owner.Epoch:
		return fence.ErrStale
	case s.Snapshot != nil && (s.Snapshot.Seq > w.Position.Seq || s.Snapshot.Seq == w.Position.Seq &&
		s.Snapshot.Tick > w.Tick):
		return fence.ErrRegress
	case w.Tick > s.Owner.Tick || !s.holds(w.Position):
		return fence.ErrUncommitted
	}
	s.Snapshot = &fence.Snapshot{Position: w.Position, Tick: w.Tick, Contact: s.Owner.Contact,
		Sum: fence.Checksum(w.Blob), Taken: now, Blob: slices.Clone(w.Blob)}
	return nil
}

func (s *State) holds(p fence.Position) bool { return s.Owner.Position == p || s.Holds(p) }

// Holds reports whether the stream has the entry at a position.
func (s *State) Holds(p fence.Position) bool {
	i, found := s.search(p.Seq)
	return found && s.Entries[i].Position == p
}

// search finds the first entry at or after seq.
func (s *State) search(seq fence.Seq) (int, bool) {
	return slices.BinarySearchFunc(s.Entries, seq, func(e fence.Entry, seq fence.Seq) int {
		switch {
		case e.Seq < seq:
			return -1
		case e.Seq > seq:
			return 1
		}
		return 0
	})
}

// After returns up to limit entries after seq. The entries share the state's memory: do not change them.
func (s *State) After(seq fence.Seq, limit int) []fence.Entry {
	i, found := s.search(seq)
	if found {
		i++
	}
	return slices.Clone(s.Entries[i : i+min(len(s.Entries)-i, limit)])
}

// TrimBelow removes the entries below seq and says how many.
func (s *State) TrimBelow(seq fence.Seq) int {
	i, _ := s.search(seq)
	s.Entries = slices.Delete(s.Entries, 0, i)
	return i
}

func (s *State) own(tile fence.TileID, epoch fence.Epoch, contact string, at fence.Position, tick fence.Tick) {
	s.Expires = time.Time{}
	s.Owner = fence.Owner{Tile: tile, Epoch: epoch, Contact: contact, Position: at, Tick: tick}
}
