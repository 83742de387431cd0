package redisstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/stream"
)

// place is one entry of the stream.
type place struct {
	fence.Position
	prev fence.Position
	kind fence.Kind
	tick fence.Tick
	at   time.Time
}

// id is the place's in the stream.
func (p *place) id() string { return strconv.FormatUint(uint64(p.Seq), 10) + "-0" }

// tail is the end of the stream.
type tail struct {
	wrong  int     // entries at the end that no owner has written, or that are to be removed
	last   string  // the ID of the last of them
	why    string  // it is one of them
	places []place // those before, the last first, as far as each follows the one before it
	broken string  // why the entry before them, if any, does not belong to them
	before string  // the ID of that entry
}

// readTail reads the stream from its end, as it was, to the entry of the snapshot, or to its beginning.
func (x *examiner) readTail(ctx context.Context) error {
	if x.kinds[streamKey] != "stream" {
		return nil
	}
	for before := x.lastID; ; {
		page, err := x.log.page(ctx, x.Tile, before)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if x.readEntry(&page[i]) {
				return nil
			}
		}
		before = "(" + page[len(page)-1].ID
	}
}

// readEntry takes up the entry before those that were read, and reports whether the end of the stream is known with it.
func (x *examiner) readEntry(m *redis.XMessage) (done bool) {
	t := &x.tail
	var e fence.Entry
	why, unread := x.cannotBe(&e, m)
	broken := ""
	switch {
	case why == "":
		broken = x.gap(&e)
	case len(t.places) > 0 || unread:
		broken = why
	}
	if broken != "" && !x.asked("entries") && (why != "" || !x.vouched(e.Position)) {
		t.broken, t.before = broken, m.ID
		return true
	}
	if broken != "" && len(t.places) > 0 { // what was read does not count
		t.last, t.why = cmp.Or(t.last, t.places[0].id()), cmp.Or(t.why, broken)
		t.wrong, t.places = t.wrong+len(t.places), nil
	}
	if why != "" {
		t.last, t.why = cmp.Or(t.last, m.ID), cmp.Or(t.why, why)
		t.wrong++
		return false
	}
	t.places = append(t.places, place{Position: e.Position, prev: e.Prev, kind: e.Kind, tick: e.Tick, at: e.At})
	return e.Chain == x.snapshotChain()
}

// asked reports whether what has a name, of Removable, is to be deleted in any case.
func (x *examiner) asked(name string) bool { return slices.Contains(x.remove, name) }

// vouched reports whether the owner hash names an entry. What comes after it was then not written by an owner, which
// writes both at once.
func (x *examiner) vouched(at fence.Position) bool {
	owner, err := redislib.ParseOwner(x.Tile, x.owner[:])
	return err == nil && owner.Position == at
}

// cannotBe says why no owner has written an entry, or nothing. unread means that a later release may have: this one
// cannot read it.
func (x *examiner) cannotBe(e *fence.Entry, m *redis.XMessage) (why string, unread bool) {
	var poison *stream.Poison
	if *e, poison = parseEntry(x.Tile, m); poison != nil {
		frame, _ := m.Values[stream.FrameField].(string)
		return poison.Reason, strings.HasSuffix(m.ID, "-0") && len(frame) > 26 && frame[0] > fence.FrameVersion
	}
	switch {
	case e.Epoch > x.most:
		return fmt.Sprintf("its epoch is %d", e.Epoch), false
	case e.Seq > fence.FarSeq:
		return fmt.Sprintf("its sequence is %d", e.Seq), false
	case e.Tick > fence.FarTick:
		return fmt.Sprintf("its tick is %d", e.Tick), false
	case e.Verify() != nil:
		return "its chain is not that of its content", false
	}
	if _, err := stream.DecodeBatch(e); err != nil {
		return err.Error(), true
	}
	return "", false
}

// gap says why what was read does not go on after an entry, or nothing.
func (x *examiner) gap(e *fence.Entry) string {
	if len(x.tail.places) == 0 {
		return ""
	}
	next := &x.tail.places[len(x.tail.places)-1]
	switch {
	case next.kind == fence.KindRebase:
		return next.id() + " is a rebase, and the snapshot is not its own" // the walk ends at the snapshot's
	case next.prev != e.Position:
		return fmt.Sprintf("the next entry, %s, follows %s", next.id(), next.prev)
	}
	return ""
}

// end is where the stream ends, without what no owner has written; nil: nothing is left of it.
func (x *examiner) end() *place {
	if len(x.tail.places) == 0 {
		return nil
	}
	return &x.tail.places[0]
}

// tickBound is the highest tick that a tile can have come to since a place in its stream.
func (x *examiner) tickBound(p *place) fence.Tick {
	if p == nil || p.at.IsZero() {
		return fence.FarTick
	}
	return min(fence.FarTick, p.tick+fence.Tick(max(0, x.now.Sub(p.at)).Milliseconds())+tickSlack)
}

// empty reports whether there is no stream, or one in which nothing is to stay.
func (x *examiner) empty() bool {
	kind := x.kinds[streamKey]
	return kind == "none" || kind == "stream" && len(x.tail.places) == 0 && x.tail.broken == ""
}

// examineStream looks at the entries at the end, at the stream's last ID, and at whether its entries are one history.
func (x *examiner) examineStream() {
	t, end := &x.tail, x.end()
	if x.kinds[streamKey] != "stream" {
		return
	}
	remedy, steps := "delete the stream, which has no other", []any{"delete", streamKey + 1}
	if end != nil {
		remedy, steps = "delete what comes after "+end.id(), []any{"cut", end.id()}
	}
	switch {
	case end == nil && t.broken != "": // the last entry may be of a later release
	case t.wrong > 0:
		x.damaged("stream end", fmt.Sprintf("%d entries, the last %s: %s", t.wrong, t.last, t.why),
			fmt.Sprintf("entries <sequence>-0 that follow each other, epoch to %d, sequence to %d", x.most,
				fence.FarSeq),
			remedy, steps...)
	default:
		x.examineLastID(end, remedy, steps)
	}
	if t.broken != "" {
		x.damaged("stream", t.before+": "+t.broken, "entries that follow each other",
			restore+"; or delete what comes after the last good entry (-delete entries)")
	}
}

// examineLastID compares the highest ID that the stream has had, above which the next entry must be, with its end.
func (x *examiner) examineLastID(end *place, remedy string, steps []any) {
	ends := x.snapshotAt()
	if end != nil {
		ends = end.Position
	}
	canBe := fmt.Sprintf("%d-0", ends.Seq)
	if x.lastID == canBe || end == nil && sequenceOf(x.lastID) < ends.Seq {
		return
	}
	lost := strings.HasSuffix(x.lastID, "-0") && sequenceOf(x.lastID) <= fence.FarSeq
	if lost && !x.asked("entries") && !x.vouched(ends) {
		x.damaged("stream last ID", x.lastID, canBe, restore+"; or go on from what the stream has (-delete entries)")
		return
	}
	x.damaged("stream last ID", x.lastID, canBe, remedy, steps...)
}
