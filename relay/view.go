package relay

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/stream"
)

// view is what a hub knows of its tile: where the history ends, and the snapshot and batches from which
// a client can be brought there. It does no locking and no I/O; all of the relay's judgement about what
// may follow what is here.
//
// Invariants: the tail's batches follow each other and end at `at`; with whole, the first follows base. The
// epoch of `at` never decreases below one that is proven: nothing of a lower epoch is accepted then.
type view struct {
	loaded bool // the store has been read at least once
	at     fence.Position

	whole bool           // base and tail make the state at `at`
	base  fence.Snapshot // zero position: the tile has no snapshot, the tail starts at the beginning
	tail  []*batch
	bytes int // payload bytes in the tail

	// proven is the highest epoch that the coordination store has vouched for: it was read there, in an owner hash, an
	// entry or a position. Fan-out and Config.Views are less trusted, and never raise it.
	proven fence.Epoch

	owner  fence.Owner // as last read from the store, or known from an accepted batch
	hidden bool        // clients are not told the owner's contact
}

// verdict is what a view makes of a batch it is shown.
type verdict uint8

const (
	follows   verdict = 1 // it continues the history: accept it
	duplicate verdict = 2 // it is held already, or older than what is held
	stale     verdict = 3 // its epoch is lower than the view's: a superseded owner's
	breaks    verdict = 4 // a gap, a fork or a rebase: only the store can tell
)

// known is the highest epoch of which frames are judged without asking the store.
func (v *view) known() fence.Epoch { return max(v.proven, v.at.Epoch) }

// prove notes an epoch that was read from the coordination store.
func (v *view) prove(e fence.Epoch) { v.proven = max(v.proven, e) }

// judge compares a batch with the view. The order matters: the epoch comes first, so that a superseded
// owner's batch is never accepted whatever it claims to follow; a duplicate is recognised before the
// position it follows is looked at.
func (v *view) judge(e *fence.Entry) verdict {
	switch {
	case e.Epoch < v.at.Epoch:
		return stale
	case v.holds(e.Position):
		return duplicate
	case e.Kind == fence.KindRebase:
		return breaks
	case e.Prev == v.at && e.Seq == v.at.Seq+1:
		return follows
	case e.Epoch <= v.at.Epoch && e.Seq < v.start().Seq:
		return duplicate
	}
	return breaks
}

// start is the position before the first batch of the tail.
func (v *view) start() fence.Position {
	switch {
	case len(v.tail) > 0:
		return v.tail[0].Prev
	case v.whole:
		return v.base.Position
	}
	return v.at
}

// holds reports whether p is a position of the history the view knows.
func (v *view) holds(p fence.Position) bool {
	_, ok := v.after(p)
	return ok
}

// after returns the batches that follow p; ok is false when p is not a known position of this history.
func (v *view) after(p fence.Position) (batches []*batch, ok bool) {
	if p == v.at {
		return nil, true
	}
	if p == v.start() {
		return v.tail, true
	}
	i, found := slices.BinarySearchFunc(v.tail, p.Seq,
		func(b *batch, seq fence.Seq) int { return cmp.Compare(b.Seq, seq) })
	if !found || v.tail[i].Position != p {
		return nil, false
	}
	return v.tail[i+1:], true
}

// push accepts a batch that follows.
func (v *view) push(b *batch) {
	v.tail = append(v.tail, b)
	v.bytes += len(b.Payload)
	v.moveTo(b.Position)
}

func (v *view) moveTo(p fence.Position) {
	v.at = p
	if p.Epoch > v.owner.Epoch {
		v.owner = fence.Owner{Epoch: p.Epoch}
	}
}

// setOwner takes what is said of the owner; an older word than what the history shows is ignored. What the store has
// not vouched for gives way to the store's word.
func (v *view) setOwner(o fence.Owner) {
	if o.Present() && o.Epoch >= min(v.owner.Epoch, v.proven) && o.Epoch >= v.at.Epoch {
		v.owner = o
		v.owner.Contact = strings.ToValidUTF8(o.Contact, "?") // protobuf strings must be; the store takes any bytes
	}
}

// relation is how a position read from the store lies to the view.
type relation uint8

const (
	same   relation = 1
	ahead  relation = 2 // the store has more
	behind relation = 3 // the store has less of the same history
	lower  relation = 4 // the store is at a lower epoch
	forked relation = 5 // the store has another history
)

// compare places the end of the store's history. Whether a store that is ahead continues this history
// shows only in its entries.
func (v *view) compare(p fence.Position) relation {
	switch {
	case p == v.at:
		return same
	case p.Epoch < v.at.Epoch && v.at.Epoch > v.proven:
		return forked // the view is from Config.Views, and no store has known its epoch
	case p.Epoch < v.at.Epoch:
		return lower
	case p.Seq > v.at.Seq:
		return ahead
	case v.holds(p) || p.Epoch == v.at.Epoch && p.Seq < v.start().Seq:
		return behind
	}
	return forked
}

// adoption is the result of adopting a history from the store.
type adoption uint8

const (
	kept     adoption = 1 // it ends where the view does
	extended adoption = 2 // it continues the view
	replaced adoption = 3 // it is another history: clients must start over
	refused  adoption = 4 // it is of a lower epoch, or behind without leave to step back
)

// adopt takes a history read from the store, if it may. news are the batches that were not known when it
// extends the view. stepBack allows a history that ends before the view does; never one of a lower epoch.
func (v *view) adopt(rec *stream.Recovery, stepBack bool) (how adoption, news []*batch) {
	rel := v.compare(rec.Position)
	switch {
	case !v.loaded:
		v.replace(rec)
		v.loaded = true
		return replaced, nil
	case rel == lower:
		return refused, nil
	case rel == behind && !stepBack:
		return v.complete(rec), nil
	case rel == same:
		v.replace(rec)
		return kept, nil
	}
	from := v.at
	v.replace(rec)
	if after, ok := v.after(from); ok && rel != behind {
		return extended, after
	}
	return replaced, nil
}

// complete takes from a history that ends before the view does what the view lacks: the snapshot, and the
// batches up to its own.
func (v *view) complete(rec *stream.Recovery) adoption {
	rest, ok := v.after(rec.Position)
	if !ok || v.whole {
		return refused
	}
	whole := *rec
	for _, b := range rest {
		whole.Entries = append(whole.Entries, b.Entry)
	}
	whole.Position = v.at
	v.replace(&whole)
	return kept
}

// replace makes the view the history read. Batches that are already encoded are kept.
func (v *view) replace(rec *stream.Recovery) {
	known := make(map[fence.Position]*batch, len(v.tail))
	for _, b := range v.tail {
		known[b.Position] = b
	}
	tail, bytes := make([]*batch, 0, len(rec.Entries)), 0
	for i := range rec.Entries {
		b := known[rec.Entries[i].Position]
		if b == nil {
			b = &batch{Entry: rec.Entries[i].Watched(fence.AreaSet{})}
		}
		tail = append(tail, b)
		bytes += len(b.Payload)
	}
	v.whole, v.base, v.tail, v.bytes = true, rec.Snapshot, tail, bytes
	v.moveTo(rec.Position)
}

// shorten cuts the tail to what follows a newer snapshot; false if the snapshot's position is not one
// of this history or not newer.
func (v *view) shorten(s fence.Snapshot) bool {
	rest, ok := v.after(s.Position)
	if !ok || v.whole && len(rest) >= len(v.tail) {
		return false
	}
	v.whole, v.base = true, s
	v.setTail(rest)
	return true
}

// drop forgets the snapshot and the older half of the tail: it has grown over its bounds. The newer half
// still serves clients that are only a little behind.
func (v *view) drop() {
	v.whole, v.base = false, fence.Snapshot{}
	v.setTail(v.tail[(len(v.tail)+1)/2:])
}

func (v *view) setTail(rest []*batch) {
	v.tail = slices.Clone(rest) // so that the older batches can be freed
	v.bytes = 0
	for _, b := range v.tail {
		v.bytes += len(b.Payload)
	}
}

// sync is the message that brings a client, which watches some areas, from a position it holds to the end; from scratch
// when the position is zero or not one of this history. It lasts until its scratch is freed. ok is false when that
// needs a snapshot the view has not.
func (v *view) sync(s *scratch, have fence.Position, areas fence.AreaSet) (m *relaypb.Sync, ok bool) {
	m = v.message(areas)
	batches, known := v.after(have)
	switch {
	case known && !have.IsZero():
		m.From = relaypb.FromPosition(have)
	case !v.whole:
		return nil, false
	default:
		batches = v.tail
		m.Replace = true
		v.addBase(m, areas)
	}
	m.Tail = tailOf(s, batches, areas)
	return m, true
}

// open is the message that gives areas to a client which is at the end of this history in others. It lasts as long, and
// ok is, as for sync.
func (v *view) open(s *scratch, areas fence.AreaSet) (m *relaypb.Sync, ok bool) {
	if !v.whole {
		return nil, false
	}
	m = v.message(areas)
	m.Opens = true
	v.addBase(m, areas)
	m.Tail = tailOf(s, v.tail, areas)
	return m, true
}

// message is what all Syncs of some areas have in common.
func (v *view) message(areas fence.AreaSet) *relaypb.Sync {
	return &relaypb.Sync{Position: relaypb.FromPosition(v.at), OwnerEpoch: uint64(v.owner.Epoch),
		OwnerContact: v.contact(), Areas: relaypb.FromAreas(areas)}
}

// contact is the owner's, if clients may know it.
func (v *view) contact() string {
	if v.hidden {
		return ""
	}
	return v.owner.Contact
}

// addBase adds what the snapshot holds of some areas.
func (v *view) addBase(m *relaypb.Sync, areas fence.AreaSet) {
	m.From = relaypb.FromPosition(v.base.Position)
	m.Tick, m.TakenMs = uint64(v.base.Tick), uint64(fence.Millis(v.base.Taken))
	game, _, err := stream.OpenSnapshot(v.base.Blob)
	switch {
	case err != nil || len(v.base.Blob) == 0: // it was opened when it was read, so there is none
		return
	case !stream.Divided(v.base.Blob) && !areas.Has(0):
		return // all of it is in area 0
	case stream.Divided(v.base.Blob):
		m.Divided = true
		m.Blob, _ = fence.SelectParts(game, areas)
	default:
		m.Blob = game
	}
	m.Sum = v.base.Sum
	if !areas.All() {
		m.Sum = fence.Checksum(m.Blob)
	}
}

func tailOf(s *scratch, batches []*batch, areas fence.AreaSet) []*relaypb.Frame {
	tail := make([]*relaypb.Frame, len(batches))
	for i, b := range batches {
		tail[i] = b.frame(s, areas)
	}
	return tail
}
