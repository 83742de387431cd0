package bridge

import (
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// cursor is where a tile's forwarding stands. A pass works on a copy, so that a pass that fails changes
// nothing it should not.
type cursor struct {
	id fence.TileID

	place

	// end is where the tile's history ended, by the owner hash, when it was last read.
	end fence.Position

	// floor is the highest epoch ever seen in force. Nothing below it is forwarded, whatever the store
	// says: after an unlucky failover the owner hash itself can regress. It does not regress by more than
	// fence.EpochLeap: then the floor was none, and has been repaired.
	floor fence.Epoch

	// sent is the highest position handed over. An entry at or below it, under the same epoch, has been
	// forwarded before. Where forwarding was resumed it is what the mark says: of one by an earlier release the
	// sequence only, until a read shows the rest.
	sent fence.Position

	// marked is that sent is what the mark says: this bridge has not handed anything over yet. A mark that is
	// further above the head than a failover leaves it was written by others, and keeps nothing from being forwarded.
	marked bool

	// counted is what has been counted of entries after read: a failed publish takes back what came
	// after it, and the next pass meets the same entries again. Nil but then.
	counted []notice

	letters int // failed attempts to dead-letter the next entry

	// stranger is the last entry that did not follow what was read, so that reading went back. If it does not follow
	// what is read then either, its owner did not write it, or not there: reading goes back for it only once.
	stranger fence.Position
}

// notice is one thing counted of an entry.
type notice struct {
	seq fence.Seq
	gap bool // that it did not follow; else that it was dropped or dead-lettered
}

// once reports whether that is to be counted, and notes that it has been.
func (c *cursor) once(n notice) bool {
	if slices.Contains(c.counted, n) {
		return false
	}
	c.counted = append(c.counted[:len(c.counted):len(c.counted)], n)
	return true
}

// forget drops the notes of what is settled.
func (c *cursor) forget() {
	c.counted = slices.DeleteFunc(slices.Clone(c.counted), func(n notice) bool { return n.seq <= c.read })
	if len(c.counted) == 0 {
		c.counted = nil
	}
}

// place is what a failed publish takes back.
type place struct {
	// read is the last sequence that is dealt with: handed over, dropped or dead-lettered. Reading
	// goes on after it, and it is what the watermarks say.
	read  fence.Seq
	last  fence.Position // the entry at read; zero if it is not known
	blind bool           // nothing is known of what came before: any entry may be next
}

// settle moves past an entry. A position that cannot be trusted is zero but for its sequence.
func (c *cursor) settle(p fence.Position) {
	c.place = place{read: p.Seq, last: p}
	if p.Epoch == 0 {
		c.last = fence.Position{}
	}
}

// follows reports whether e is what comes after what was read.
func (c *cursor) follows(e *fence.Entry) bool {
	switch {
	case e.Kind == fence.KindRebase || c.blind:
		return true // state jumps; or there is nothing to compare with
	case c.last.IsZero():
		return e.Prev.Seq == c.read
	}
	return e.Prev == c.last
}

// lookBack is how far reading goes back when a tile's history was replaced: more than a master can have
// had unreplicated. What was forwarded of it is not forwarded again, see repeated.
const lookBack = stream.DefaultLimit

// regressed reports whether a failover has taken back what was read of the tile, and if so goes back to
// read what is there instead.
func (c *cursor) regressed(chunk *stream.Chunk) bool {
	before, end := c.end, chunk.Owner.Position
	if chunk.Owner.Present() {
		c.end = end // read after the entries, it is not behind them unless the store is
	}
	switch {
	case len(chunk.Entries) > 0:
		// Longer than before, but not what was read.
		e := &chunk.Entries[0]
		if c.sent.Seq == 0 || c.follows(e) || e.Prev.Seq != c.read || e.Position == c.stranger {
			return false
		}
		end, c.stranger = e.Prev, e.Position
	case !chunk.Owner.Present() || chunk.Poison != nil || end == before:
		return false
	case end.Seq == c.read:
		if c.last.IsZero() {
			c.arrive(end)
		}
		if end == c.last {
			return false
		}
	case end.Seq > c.read:
		return false
	}
	if c.marked && c.sent.Seq > end.Seq+lookBack {
		c.sent = fence.Position{}
	}
	c.counted = nil
	c.place = place{read: end.Seq - min(end.Seq, lookBack), blind: true}
	return true
}

// arrive notes that the entry at read is the one at end, which only its sequence says otherwise.
func (c *cursor) arrive(end fence.Position) {
	c.last = end
	if c.sent.Seq == end.Seq && c.sent.Epoch == 0 {
		c.sent = end
	}
}

// current is the epoch whose entries are to be forwarded: the owner's or, without an owner hash, the
// highest seen. It raises the floor.
func (c *cursor) current(owner *fence.Owner, entries []fence.Entry, defects []string) fence.Epoch {
	epoch := owner.Epoch
	if !owner.Present() {
		epoch = c.floor
		for i := range entries {
			if defects[i] == "" {
				epoch = max(epoch, entries[i].Epoch)
			}
		}
	}
	if epoch.Plausible(c.floor) && epoch > c.floor || owner.Present() && c.floor.FarAbove(epoch) {
		c.floor = epoch
	}
	return epoch
}

// judge is the last fence: why e is not to be forwarded, or zero if it is.
func (c *cursor) judge(e *fence.Entry, current fence.Epoch) dropReason {
	switch {
	case e.Epoch > current:
		return unvouched
	case e.Epoch < current:
		return superseded
	case e.Epoch < c.floor:
		return fenced
	case e.Epoch <= c.sent.Epoch && e.Seq <= c.sent.Seq:
		return repeated
	}
	return 0
}

// defect says why e must not reach a watcher although it could be read, or nothing.
func defect(e *fence.Entry) string {
	if err := e.Verify(); err != nil {
		return err.Error()
	}
	if _, err := stream.DecodeBatch(e); err != nil {
		return err.Error()
	}
	return ""
}

// poisonOf describes a defective entry as the stream keeps it.
func poisonOf(e *fence.Entry, reason string) stream.Poison {
	return stream.Poison{Tile: e.Tile, Seq: e.Seq, Epoch: e.Epoch,
		Fields: map[string]string{stream.FrameField: string(e.Frame)}, Reason: reason}
}
