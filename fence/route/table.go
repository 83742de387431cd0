package route

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
)

// Table is one process's map from tiles to owners. The zero value is empty and ready. Safe for concurrent
// use: readers take no lock and never wait for a writer, writers wait for each other.
//
// It is a hash table with linear probing in which a slot, once it has a tile, keeps it: nothing is ever
// removed, so a reader can walk the slots while a writer fills them. A larger table replaces a full one
// as a whole.
type Table struct {
	slots atomic.Pointer[slots]

	writing   sync.Mutex
	known     atomic.Int64
	held      atomic.Int64
	news      atomic.Uint64
	conflicts atomic.Uint64
}

// slots is a power of two of them.
type slots struct {
	mask  uint64
	array []slot
}

// slot is empty while its tile is zero. The owner is stored before the tile, so a reader that finds the
// tile finds an owner.
type slot struct {
	tile  atomic.Uint64
	owner atomic.Pointer[owner]
}

// owner is the rest of an Entry. It is never changed.
type owner struct {
	epoch   fence.Epoch
	contact string
}

func (o *owner) entry(id fence.TileID) Entry {
	return Entry{Tile: id, Epoch: o.epoch, Contact: o.contact}
}

// hold is how long a writer keeps others waiting, in entries: a map that arrives as a whole must not
// delay a single announcement.
const hold = 512

// Lookup returns what the table knows of a tile. The entry may be a release, see Entry.Held.
func (t *Table) Lookup(id fence.TileID) (e Entry, known bool) {
	if id == 0 {
		return Entry{}, false
	}
	s := t.slots.Load()
	if s == nil {
		return Entry{}, false
	}
	at, taken := s.find(id)
	if !taken {
		return Entry{}, false
	}
	return at.owner.Load().entry(id), true
}

// find returns the tile's slot, or the empty one where it would go.
func (s *slots) find(id fence.TileID) (at *slot, taken bool) {
	for i := scatter(id) & s.mask; ; i = (i + 1) & s.mask {
		at = &s.array[i]
		switch at.tile.Load() {
		case uint64(id):
			return at, true
		case 0:
			return at, false
		}
	}
}

// scatter is the finalizer of MurmurHash3: H3 indexes of one resolution differ in a few bits in the middle.
func scatter(id fence.TileID) uint64 {
	x := uint64(id)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Learn merges entries into the table and returns those that were news: not known yet, and not superseded
// by what was. Entries that are not valid are left out, see Entry.Validate.
func (t *Table) Learn(entries ...Entry) (news []Entry) {
	for part := range slices.Chunk(entries, hold) {
		t.writing.Lock()
		for _, e := range part {
			if e.Validate() == nil && t.merge(e) {
				news = append(news, e)
			}
		}
		t.writing.Unlock()
	}
	return news
}

// merge needs the writers' lock.
func (t *Table) merge(e Entry) bool {
	s := t.slots.Load()
	if s == nil || t.known.Load() >= int64(len(s.array)/4*3) {
		s = grow(s)
		t.slots.Store(s)
	}
	at, taken := s.find(e.Tile)
	if taken {
		was := at.owner.Load().entry(e.Tile)
		if was.Epoch == e.Epoch && was.Held() && e.Held() && was.Contact != e.Contact {
			t.conflicts.Add(1)
		}
		if !e.Supersedes(was) {
			return false
		}
		t.countHeld(was, -1)
	} else {
		t.known.Add(1)
	}
	at.owner.Store(&owner{epoch: e.Epoch, contact: e.Contact})
	at.tile.Store(uint64(e.Tile))
	t.countHeld(e, 1)
	t.news.Add(1)
	return true
}

func (t *Table) countHeld(e Entry, n int64) {
	if e.Held() {
		t.held.Add(n)
	}
}

// grow returns slots twice as many, with the same content.
func grow(old *slots) *slots {
	size := 64
	if old != nil {
		size = 2 * len(old.array)
	}
	s := &slots{mask: uint64(size - 1), array: make([]slot, size)}
	if old == nil {
		return s
	}
	for i := range old.array {
		id := old.array[i].tile.Load()
		if id == 0 {
			continue
		}
		to, _ := s.find(fence.TileID(id))
		to.owner.Store(old.array[i].owner.Load())
		to.tile.Store(id)
	}
	return s
}

// TableStats describes a table.
type TableStats struct {
	Known     int    // tiles with an entry
	Held      int    // of these, with an owner
	News      uint64 // entries that changed the table since it was made
	Conflicts uint64 // meetings of two holders of one epoch: an authority has minted an epoch twice
}

// Stats returns the table's numbers. They are read one after the other, so they may differ by what is
// going on.
func (t *Table) Stats() TableStats {
	return TableStats{Known: int(t.known.Load()), Held: int(t.held.Load()), News: t.news.Load(), Conflicts: t.conflicts.Load()}
}

// Snapshot returns all entries by ascending tile. An entry that is learned meanwhile may be in it or not.
func (t *Table) Snapshot() []Entry {
	s := t.slots.Load()
	if s == nil {
		return nil
	}
	all := make([]Entry, 0, t.known.Load())
	for i := range s.array {
		if id := fence.TileID(s.array[i].tile.Load()); id != 0 {
			all = append(all, s.array[i].owner.Load().entry(id))
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Tile, b.Tile) })
	return all
}
