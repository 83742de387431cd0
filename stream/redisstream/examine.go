package redisstream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/stream"
)

// tickSlack is for clocks that differ, and ticks out of turn. Ticks are at least a millisecond long.
const tickSlack fence.Tick = 1 << 16

// mostEpoch is the highest epoch that there can be of a tile. A record that was removed may have had any up to
// fence.MaxRetired.
func mostEpoch(epoch fence.Epoch) fence.Epoch {
	if epoch == 0 {
		return fence.MaxRetired
	}
	return epoch + fence.EpochLeap
}

// The keys of a tile, as the script numbers them less one, their names for Examine, and their types.
const (
	ownerKey = iota
	streamKey
	snapshotKey
	marksKey
	deadKey
)

var keyTypes = [...]string{ownerKey: "hash", streamKey: "stream", snapshotKey: "hash", marksKey: "hash",
	deadKey: "stream"}

// restore is what an operator can do about a history that the store has lost.
const restore = "undecided, so it stays: what is lost here is in the checkpoint; delete the tile's history (-delete " +
	"owner,stream,snapshot), then tilectl checkpoint restore"

// examiner examines one tile.
type examiner struct {
	*Examination
	log    *Log
	epoch  fence.Epoch // the authority's
	most   fence.Epoch
	remove []string

	kinds           [len(keyTypes)]string
	owner           [3]any // as redislib.ParseOwner takes them
	expires, lastID string
	first           fence.Seq // of the stream; 0: it is empty
	snapshot, marks map[string]string
	now             time.Time

	tail tail
}

// damaged notes damage. Steps make it good; without any it is undecided.
func (x *examiner) damaged(field, stands, canBe, remedy string, steps ...any) {
	x.Damage = append(x.Damage, Damage{Field: field, Stands: clipped(stands), CanBe: canBe, Remedy: remedy,
		Undecided: len(steps) == 0})
	x.steps = append(x.steps, steps...)
}

// clipped is a text of a store, of which a writer chose the length.
func clipped(text string) string {
	if len(text) > 60 {
		return text[:60] + "…"
	}
	return text
}

// examine looks at each key, after those that it is compared with.
func (x *examiner) examine(ctx context.Context) error {
	for key, want := range keyTypes {
		x.examineKind(key, want)
	}
	if err := x.readTail(ctx); err != nil {
		return err
	}
	x.examineSnapshot()
	x.examineStream()
	x.examineOwner()
	x.examineMarks()
	return nil
}

// examineKind looks at the type of a key. One that is to be deleted is from then on as if it were not there.
func (x *examiner) examineKind(key int, want string) {
	kind, name := x.kinds[key], Removable[key]
	foreign := kind != "none" && kind != want
	switch {
	case kind != "none" && x.asked(name):
		x.kinds[key] = "none"
		x.damaged(name+" key", "a "+kind, "a "+want, "delete it, as asked", "delete", key+1)
	case foreign && (key == streamKey || key == snapshotKey):
		x.damaged(name+" key", "a "+kind, "a "+want, "undecided, so it stays: -delete "+name+" deletes it, and a "+
			"living owner writes it again; without one, what came after the checkpoint is lost: -delete "+
			"owner,stream,snapshot, then tilectl checkpoint restore")
	case foreign:
		x.damaged(name+" key", "a "+kind, "a "+want, "stays: -delete "+name+" deletes it, and nothing is lost with it")
	}
	x.Owned = x.Owned || key == ownerKey && kind == want
}

// said is a field as it was read.
func said(v any) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(v)
}

// examineOwner compares the owner hash with the stream. Without it the next owner goes on at the end of the stream, so
// deleting it loses nothing that the stream has.
func (x *examiner) examineOwner() {
	if x.kinds[ownerKey] != "hash" {
		return
	}
	if field, stands, canBe := x.wrongOwner(); field != "" {
		x.damaged(field, stands, canBe, "delete the owner hash; the next owner writes it", "delete", ownerKey+1)
		return
	}
	owner, _ := redislib.ParseOwner(x.Tile, x.owner[:])
	at, end := owner.Position, x.end()
	switch {
	case end == nil && x.empty() && at != x.snapshotAt():
		x.damaged("owner hash: head", at.String(), x.snapshotAt().String(), restore)
	case end != nil && x.tail.broken == "" && at != end.Position:
		x.damaged("owner hash: head", at.String(), end.Position.String(), "undecided, so it stays: either it is "+
			"wrong, or the end of the stream is lost; -delete owner goes on from what the stream has, and a "+
			"checkpoint may have more: tilectl checkpoint show")
	}
}

// wrongOwner says what of the owner hash no owner can have written beside this stream, or nothing. A head before the
// end of the stream is wrong, since owners write both at once.
func (x *examiner) wrongOwner() (field, stands, canBe string) {
	owner, err := redislib.ParseOwner(x.Tile, x.owner[:])
	head, tick := said(x.owner[0]), said(x.owner[1])
	at, end, low := owner.Position, x.end(), fence.Tick(0)
	if end != nil {
		low = end.tick
	}
	switch high := x.tickBound(end); {
	case err != nil || !owner.Present():
		return "owner hash", fmt.Sprintf("head %s, tick %s, contact %s", head, tick, said(x.owner[2])),
			"a position, a number, an address"
	case at.Epoch > x.most:
		return "owner hash: epoch", head, fmt.Sprintf("epoch to %d", x.most)
	case at.Seq > fence.FarSeq:
		return "owner hash: sequence", head, fmt.Sprintf("sequence to %d", fence.FarSeq)
	case owner.Tick > high || owner.Tick < low:
		return "owner hash: tick", tick, fmt.Sprintf("%d to %d", low, high)
	case x.expires == "-1":
		return "owner hash", "no time to live", "a time to live"
	case end != nil && x.tail.broken == "" && at != end.Position && (at.Seq < end.Seq || x.asked("entries")):
		return "owner hash: head", head, end.Position.String()
	}
	return "", "", ""
}

// snapshotAt is the position of the snapshot, as it stands, or zero.
func (x *examiner) snapshotAt() fence.Position {
	if x.kinds[snapshotKey] != "hash" {
		return fence.Position{}
	}
	at, err := fence.ParsePosition(x.snapshot["epoch"] + "/" + x.snapshot["seq"] + "/" + x.snapshot["chain"])
	if err != nil {
		return fence.Position{}
	}
	return at
}

// snapshotChain is the chain of the snapshot, as it stands, or zero, which no entry has.
func (x *examiner) snapshotChain() fence.Chain {
	chain, err := fence.ParseChain(x.snapshot["chain"])
	if x.kinds[snapshotKey] != "hash" || err != nil {
		return 0
	}
	return chain
}

// snapshotEntry is which of the places the snapshot was taken at, by its chain, or negative.
func (x *examiner) snapshotEntry() int {
	chain := x.snapshotChain()
	return slices.IndexFunc(x.tail.places, func(p place) bool { return p.Chain == chain })
}

// examineSnapshot compares the snapshot with the stream, which has the entry that it was taken at. A position is mended
// only from the entry of the same chain.
func (x *examiner) examineSnapshot() {
	oldest := x.oldest()
	switch kind := x.kinds[snapshotKey]; {
	case kind == "none" && oldest != nil && (oldest.kind == fence.KindRebase || !oldest.prev.IsZero()):
		x.damaged("snapshot", "none", "the state before "+oldest.String(), restore)
		return
	case kind != "hash":
		return
	}
	blob := fence.Checksum([]byte(x.snapshot["blob"]))
	if x.snapshotChain() == 0 || blob != x.snapshot["sum"] {
		x.damaged("snapshot", "chain "+x.snapshot["chain"]+", checksum "+x.snapshot["sum"], "checksum "+blob, restore)
		return
	}
	i := x.snapshotEntry()
	if i >= 0 {
		x.mendPosition(&x.tail.places[i])
	} else if !x.beforeStream(oldest) {
		x.damaged("snapshot", x.position(), "the position of an entry of the stream", restore)
		return
	}
	x.mendFields(i)
}

// oldest is the first entry of those that were read, or nil.
func (x *examiner) oldest() *place {
	if len(x.tail.places) == 0 {
		return nil
	}
	return &x.tail.places[len(x.tail.places)-1]
}

// beforeStream reports whether a snapshot of no entry of the stream may be one that the stream goes on from.
func (x *examiner) beforeStream(oldest *place) bool {
	at := x.snapshotAt()
	switch {
	case x.empty():
		return !at.IsZero() && at.Epoch <= x.most && at.Seq <= fence.FarSeq
	case oldest == nil || x.tail.broken != "":
		return true // it was not read so far
	}
	return oldest.kind == fence.KindBatch && oldest.prev == at
}

// position is the snapshot's position as it stands.
func (x *examiner) position() string {
	return x.snapshot["epoch"] + "/" + x.snapshot["seq"] + "/" + x.snapshot["chain"]
}

func (x *examiner) mendPosition(p *place) {
	if x.snapshotAt() == p.Position {
		return
	}
	x.damaged("snapshot: position", x.position(), p.Position.String(), "set it: the entry has its chain",
		slices.Concat(x.set(snapshotKey, x.snapshot, "epoch", strconv.FormatUint(uint64(p.Epoch), 10)),
			x.set(snapshotKey, x.snapshot, "seq", strconv.FormatUint(uint64(p.Seq), 10)))...)
}

// mendFields looks at what else a snapshot says. i is the entry that it was taken at, or negative.
func (x *examiner) mendFields(i int) {
	low, high := fence.Tick(0), fence.FarTick
	if places := x.tail.places; i >= 0 {
		low, high = places[i].tick, x.tickBound(&places[i])
		if i > 0 {
			high = min(high, places[i-1].tick)
		}
	}
	tick, err := fence.ParseNumber(x.snapshot["tick"])
	if i >= 0 && (err != nil || fence.Tick(tick) < low || fence.Tick(tick) > high) {
		x.damaged("snapshot: tick", x.snapshot["tick"], fmt.Sprintf("%d to %d", low, high),
			fmt.Sprintf("set it to %d, its entry's", low),
			x.set(snapshotKey, x.snapshot, "tick", strconv.FormatUint(uint64(low), 10))...)
	} else if i < 0 && (err != nil || fence.Tick(tick) > fence.FarTick) {
		x.damaged("snapshot: tick", x.snapshot["tick"], fmt.Sprintf("%d to %d", low, high), restore)
	}
	if _, err := fence.ParseNumber(x.snapshot["at"]); err != nil {
		x.damaged("snapshot: at", x.snapshot["at"], "milliseconds since 1970", "set it to now",
			x.set(snapshotKey, x.snapshot, "at", strconv.FormatInt(x.now.UnixMilli(), 10))...)
	}
	if _, found := x.snapshot["contact"]; !found {
		x.damaged("snapshot: contact", "none", "an address", "set it to tilectl",
			x.set(snapshotKey, x.snapshot, "contact", "tilectl")...)
	}
}

// set is the step that sets a field of a hash, or removes it for "".
func (x *examiner) set(key int, fields map[string]string, name, to string) []any {
	old, now := "-", "-"
	if v, found := fields[name]; found {
		old = "+" + v
	}
	if to != "" {
		now = "+" + to
	}
	return []any{"set", key + 1, name, old, now}
}

// examineMarks looks at watermarks above the end of the stream, at the floor of trims and at what was shown. A mark is
// set to the first entry that there is: its consumer reads all of them again.
func (x *examiner) examineMarks() {
	if x.kinds[marksKey] != "hash" {
		return
	}
	snapshot := x.snapshotAt().Seq
	if i := x.snapshotEntry(); i >= 0 {
		snapshot = x.tail.places[i].Seq // as it will stand
	}
	head, floor := snapshot, snapshot
	if end := x.end(); end != nil {
		head, floor = end.Seq, x.first
	}
	if head == 0 || head > fence.FarSeq {
		head, snapshot = fence.MaxNumber, fence.MaxNumber // there is nothing to compare them with
	}
	b := bounds{head: head, snapshot: min(cmp.Or(snapshot, head), head), floor: strconv.FormatUint(uint64(floor), 10)}
	for _, name := range slices.Sorted(maps.Keys(x.marks)) {
		x.examineMark(name, x.marks[name], &b)
	}
}

// bounds are those of the marks of a tile.
type bounds struct {
	head, snapshot fence.Seq
	floor          string
}

func (x *examiner) examineMark(name, v string, b *bounds) {
	n, err := fence.ParseNumber(v)
	w := stream.MarkWrite{Tile: x.Tile, Consumer: stream.Consumer(name)}
	switch {
	case name == "trimmed" && (err != nil || fence.Seq(n) > b.snapshot):
		x.damaged(name, v, fmt.Sprintf("to %d", b.snapshot), "set it to "+b.floor,
			x.set(marksKey, x.marks, name, b.floor)...)
	case name == "shown" && (err != nil || fence.Epoch(n) > x.most):
		to := "" // the authority has none
		if x.epoch > 0 {
			to = strconv.FormatUint(uint64(x.epoch), 10)
		}
		x.damaged(name, v, fmt.Sprintf("to %d", x.most), "set it to "+cmp.Or(to, "none")+", as the authority has it",
			x.set(marksKey, x.marks, name, to)...)
	case w.Validate() != nil: // no consumer's
	case err != nil || fence.Seq(n) > b.head:
		x.damaged("mark "+name, v, fmt.Sprintf("to %d", b.head),
			"set it to "+b.floor+": its consumer reads on from there", x.set(marksKey, x.marks, name, b.floor)...)
	}
}
