package route

import (
	"cmp"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/fence"
)

// Table is one process's map from tiles to owners. The zero value is empty and ready. Safe for concurrent
// use: tiles are spread over parts with a lock each, which is held for one look-up or one change.
type Table struct {
	// MaxTiles bounds the entries: any member can announce as many as it likes. In a table that is full a tile that is
	// new takes the place of a release, or of an owner that is not Known; without one the table does not learn the
	// tile, and a Router asks the store about it. Zero means 262,144. Set it before the table is used.
	MaxTiles int

	// Known says which contacts are those of members that live: their entries stay when the table is full. It must be
	// quick. Nil: all. If it is set, a gossip node also forgets the entries of members that have gone. Set it before
	// the table is used.
	Known func(contact string) bool

	parts [tableParts]part
}

const defaultMaxTiles = 1 << 18

// tableParts is a power of two.
const tableParts = 64

type part struct {
	mu     sync.RWMutex
	owners map[fence.TileID]owner
	counts TableStats

	_ [64]byte // the next part's lock is on another cache line
}

// owner is the rest of an Entry.
type owner struct {
	epoch   fence.Epoch
	contact string
}

func (o owner) entry(id fence.TileID) Entry {
	return Entry{Tile: id, Epoch: o.epoch, Contact: o.contact}
}

func (t *Table) part(id fence.TileID) *part { return &t.parts[scatter(id)%tableParts] }

// scatter is the finalizer of MurmurHash3: H3 indexes of one resolution differ in a few bits in the middle.
func scatter(id fence.TileID) uint64 {
	x := uint64(id)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Lookup returns what the table knows of a tile. The entry may be a release, see Entry.Held.
func (t *Table) Lookup(id fence.TileID) (e Entry, known bool) {
	p := t.part(id)
	p.mu.RLock()
	o, known := p.owners[id]
	p.mu.RUnlock()
	if !known {
		return Entry{}, false
	}
	return o.entry(id), true
}

// Learn merges entries into the table and returns those that were news: not known yet, and not superseded
// by what was. Entries that are not valid are left out, see Entry.Validate.
func (t *Table) Learn(entries ...Entry) (news []Entry) {
	for _, e := range entries {
		if e.Validate() == nil && t.part(e.Tile).merge(e, t) {
			news = append(news, e)
		}
	}
	return news
}

func (p *part) merge(e Entry, t *Table) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, known := p.owners[e.Tile]
	if !known && !p.room(t) {
		p.counts.Refused++
		return false
	}
	if known {
		was := o.entry(e.Tile)
		if was.Epoch == e.Epoch && was.Held() && e.Held() && was.Contact != e.Contact {
			p.counts.Conflicts++
		}
		if !e.Supersedes(was) {
			return false
		}
		if was.Held() {
			p.counts.Held--
		}
	}
	if p.owners == nil {
		p.owners = map[fence.TileID]owner{}
	}
	p.owners[e.Tile] = owner{epoch: e.Epoch, contact: e.Contact}
	if e.Held() {
		p.counts.Held++
	}
	p.counts.News++
	return true
}

// Forget removes the entries of owners that do not live, and returns how many. Releases stay: they name no owner.
func (t *Table) Forget(lives func(contact string) bool) (forgotten int) {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		for id, o := range p.owners {
			if o.contact != "" && !lives(o.contact) {
				delete(p.owners, id)
				p.counts.Held--
				p.counts.News++
				p.counts.Forgotten++
				forgotten++
			}
		}
		p.mu.Unlock()
	}
	return forgotten
}

// looked is how many entries of a part that is full are looked at for one that may go.
const looked = 8

// room reports whether a tile that is new has a place, and makes it. The part's lock is held.
func (p *part) room(t *Table) bool {
	if len(p.owners) < max(1, cmp.Or(t.MaxTiles, defaultMaxTiles)/tableParts) {
		return true
	}
	left := looked
	for id, o := range p.owners { // in no order
		if o.contact == "" || t.Known != nil && !t.Known(o.contact) {
			delete(p.owners, id)
			p.counts.Forgotten++
			if o.contact != "" {
				p.counts.Held--
			}
			return true
		}
		if left--; left == 0 {
			break
		}
	}
	return false
}

// Counts returns how many tiles each owner has, by its contact.
func (t *Table) Counts() map[string]int {
	counts := map[string]int{}
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.RLock()
		for _, o := range p.owners {
			if o.contact != "" {
				counts[o.contact]++
			}
		}
		p.mu.RUnlock()
	}
	return counts
}

// TableStats describes a table.
type TableStats struct {
	Known     int    // tiles with an entry
	Held      int    // of these, with an owner
	News      uint64 // changes of the table since it was made
	Conflicts uint64 // meetings of two holders of one epoch: an authority has minted an epoch twice
	Forgotten uint64 // entries that went with their owner, or made place for others in a full table
	Refused   uint64 // entries that were not learned since it was
}

// Stats returns the table's numbers. An entry that is learned meanwhile may be counted or not; News differs
// whenever the table has changed.
func (t *Table) Stats() (total TableStats) {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.RLock()
		total.Known += len(p.owners)
		total.Held += p.counts.Held
		total.News += p.counts.News
		total.Conflicts += p.counts.Conflicts
		total.Forgotten += p.counts.Forgotten
		total.Refused += p.counts.Refused
		p.mu.RUnlock()
	}
	return total
}

// Snapshot returns all entries by ascending tile. An entry that is learned meanwhile may be in it or not.
func (t *Table) Snapshot() []Entry {
	all := make([]Entry, 0, t.Stats().Known)
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.RLock()
		for id, o := range p.owners {
			all = append(all, o.entry(id))
		}
		p.mu.RUnlock()
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Tile, b.Tile) })
	return all
}
