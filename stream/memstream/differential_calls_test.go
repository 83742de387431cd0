package memstream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
)

type op string

const (
	opCommit   op = "commit"
	opRebase   op = "rebase"
	opSnapshot op = "snapshot"
	opMark     op = "mark"
	opTrim     op = "trim"
	opDrop     op = "drop the owner hash"
	opExpire   op = "let the owner hash expire"
	opLose     op = "lose the stream"
	opAge      op = "age the marks"
	opRead     op = "read"
	opOwner    op = "owner"
)

// call is one call with all its arguments, so that it can be made again.
type call struct {
	op       op
	commit   fence.Commit
	rebase   fence.Rebase
	snapshot fence.SnapshotWrite
	consumer stream.Consumer
	seq      fence.Seq
	limit    int
	duration time.Duration
	shown    fence.Epoch
	rewind   bool
	release  bool
	bytes    int64
}

func (c call) String() string {
	switch c.op {
	case opCommit:
		return fmt.Sprintf("%s %+v", c.op, c.commit)
	case opRebase:
		return fmt.Sprintf("%s %+v", c.op, c.rebase)
	case opSnapshot:
		return fmt.Sprintf("%s %+v", c.op, c.snapshot)
	}
	return fmt.Sprintf("%s %q seq %d, limit %d, %v, rewind %v, release %v, bytes %d", c.op, c.consumer, c.seq, c.limit,
		c.duration, c.rewind, c.release, c.bytes)
}

// on makes the call on one side and returns its reply, without what the stores' clocks say.
func (c call) on(tile fence.TileID, s side) []any {
	ctx := context.Background()
	switch c.op {
	case opCommit:
		r, err := s.store.Commit(ctx, c.commit)
		return []any{r, comparable(err)}
	case opRebase:
		r, err := s.store.Rebase(ctx, c.rebase)
		return []any{r, comparable(err)}
	case opSnapshot:
		return []any{comparable(s.store.SaveSnapshot(ctx, c.snapshot))}
	case opMark:
		return []any{comparable(stream.MarkOne(ctx, s.log, stream.MarkWrite{Tile: tile, Consumer: c.consumer,
			Seq:    c.seq,
			Rewind: c.rewind, Release: c.release, Shown: c.shown}))}
	case opTrim:
		t, err := s.log.Trim(ctx, stream.TrimRequest{Tile: tile, Lease: c.duration, MaxBytes: c.bytes})
		t.Bytes = 0 // each store's own estimate
		return []any{t, comparable(err)}
	case opDrop:
		return []any{comparable(s.drop(tile))}
	case opExpire:
		return []any{comparable(s.expire(tile))}
	case opLose:
		return []any{comparable(s.lose(tile))}
	case opAge:
		return []any{comparable(s.age(tile, c.duration))}
	case opRead:
		chunks, err := s.log.Read(ctx, []stream.Cursor{{Tile: tile, After: c.seq, Limit: c.limit}})
		return []any{cloned(chunks), comparable(err)}
	case opOwner:
		o, err := s.store.Owner(ctx, tile)
		return []any{o, comparable(err)}
	}
	panic("no such call: " + c.op)
}

// everyAnswer is every kind of answer a run of some length must have met.
var everyAnswer = []string{
	"commit: ok", "commit: again", "commit: argument", "commit: stale", "commit: replay", "commit: behind",
	"commit: forked", "commit: noowner",
	"rebase: ok", "rebase: again", "rebase: argument", "rebase: stale", "rebase: behind",
	"snapshot: ok", "snapshot: argument", "snapshot: stale", "snapshot: noowner", "snapshot: regress",
	"snapshot: uncommitted",
	"mark: ok", "mark: argument", "mark: resync", "trim: ok", "trim: argument", string(opDrop) + ": ok",
	string(opExpire) + ": ok",
}

var reasons = map[error]string{fence.ErrStale: "stale", fence.ErrReplay: "replay", fence.ErrBehind: "behind",
	fence.ErrForked:  "forked",
	fence.ErrNoOwner: "noowner", fence.ErrRegress: "regress", fence.ErrUncommitted: "uncommitted"}

// answer names the kind of a reply.
func (c call) answer(reply []any) string {
	kind := "ok"
	if r, isReceipt := reply[0].(fence.Receipt); isReceipt && r.Duplicate {
		kind = "again"
	}
	switch failure := reply[len(reply)-1].(type) {
	case fence.RefusedError:
		kind = reasons[failure.Reason]
	case stream.ResyncError:
		kind = "resync"
	case string:
		kind, _, _ = strings.Cut(failure, " ")
	}
	return string(c.op) + ": " + kind
}

// floor is the highest epoch and sequence that a tile's writes have been answered with.
type floor struct {
	epoch fence.Epoch
	seq   fence.Seq
	lost  bool // the stream is gone, and only the owner hash knows how far it went
}

// rise takes the reply to a call into account: "", or what went back. Only a stream that is lost altogether
// may take the tile back; an owner hash that is dropped or has expired may not.
func (f *floor) rise(c call, reply []any, s *memfence.State) string {
	now := fence.Position{}
	switch r := reply[0].(type) {
	case fence.Receipt:
		now = r.Position
	case fence.Owner:
		now = r.Position
	}
	f.lost = f.lost || c.op == opLose
	switch {
	case f.lost && !s.Owner.Present():
		*f = floor{epoch: s.Last().Epoch, seq: s.Last().Seq}
	case now.IsZero():
	case now.Epoch < f.epoch || now.Seq < f.seq:
		return fmt.Sprintf("the tile went back from epoch %d, sequence %d to %s", f.epoch, f.seq, now)
	default:
		f.epoch, f.seq = now.Epoch, now.Seq
	}
	return ""
}

// whole is everything that can be read of a tile.
func whole(tile fence.TileID, s side) []any {
	ctx := context.Background()
	chunks, err1 := s.log.Read(ctx, []stream.Cursor{{Tile: tile, Limit: 1 << 20}})
	last, err2 := s.log.Last(ctx, tile)
	snapshot, found, err3 := s.log.Snapshot(ctx, tile)
	snapshot.Taken = time.Time{}
	snapshot.Blob = append([]byte{}, snapshot.Blob...)
	marks, err4 := s.log.Marks(ctx, []fence.TileID{tile})
	for c, m := range marks[0].Marks {
		marks[0].Marks[c] = stream.Mark{Seq: m.Seq}
	}
	recovery, err5 := stream.Recover(ctx, s.log, tile)
	return []any{cloned(chunks), last, snapshot, found, marks, recovery.Position, len(recovery.Entries),
		comparable(errors.Join(err1, err2, err3, err4)), comparable(err5)}
}

func cloned(chunks []stream.Chunk) []stream.Chunk {
	for i := range chunks {
		chunks[i].Entries = append([]fence.Entry{}, chunks[i].Entries...)
	}
	return chunks
}

// comparable is what two errors must have in common: the class and the facts, not the prose.
func comparable(err error) any {
	var refused *fence.RefusedError
	var argument *fence.ArgumentError
	var gap *stream.GapError
	var resync *stream.ResyncError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return *refused
	case errors.As(err, &argument):
		return "argument " + argument.Field
	case errors.As(err, &resync):
		return *resync
	case errors.As(err, &gap):
		return fmt.Sprint("gap from ", gap.Have, " to ", gap.Next.Position)
	}
	return "unexpected: " + err.Error()
}

// drawer draws calls: mostly right ones, from what the tile holds, and wrong ones of every kind.
type drawer struct {
	rng  *rand.Rand
	tile fence.TileID
	seen []call // writes made so far, to be presented again
	past []fence.Position
}

func (d *drawer) one(n int) bool { return d.rng.IntN(n) == 0 }

func pick[T any](d *drawer, of ...T) T { return of[d.rng.IntN(len(of))] }

// next draws one call, knowing the state of the tile.
func (d *drawer) next(store *memfence.Store) (c call) {
	store.Update(d.tile, func(s *memfence.State) { c = d.draw(s) })
	switch c.op {
	case opCommit, opRebase, opSnapshot:
		d.seen = append(d.seen, c)
	}
	return c
}

func (d *drawer) draw(s *memfence.State) call {
	if last := s.Last(); len(d.past) == 0 || d.past[len(d.past)-1] != last {
		d.past = append(d.past, last)
	}
	near := func() fence.Seq { return fence.Seq(max(0, int64(s.Last().Seq)+d.rng.Int64N(12)-8)) }
	switch n := d.rng.IntN(100); {
	case n < 45:
		return call{op: opCommit, commit: d.commit(s)}
	case n < 55 && len(d.seen) > 0:
		return d.again()
	case n < 62:
		return call{op: opRebase, rebase: d.rebase(s)}
	case n < 74:
		return call{op: opSnapshot, snapshot: d.snapshot(s)}
	case n < 82:
		consumer := pick(d, stream.BridgeAcked, stream.BridgePending, stream.RelayMember("a"), stream.RelayMember("b"),
			stream.RelayMember("b-2"), stream.Checkpointed)
		if d.one(30) {
			consumer = pick(d, stream.ConsumerGroup, "", "nobody")
		}
		return call{op: opMark, consumer: consumer, seq: pick(d, near(), near(), near(), near(), 0, fence.FarSeq,
			fence.FarSeq+1),
			shown: pick[fence.Epoch](d, 0, 1, 2, 3, fence.MaxNumber+1), rewind: d.one(3), release: d.one(10)}
	case n < 88:
		return call{op: opTrim, duration: pick(d, time.Minute, time.Minute, time.Minute, time.Second-1),
			bytes: pick[int64](d, 0, 0, 1<<40, 1<<20-1)} // how much a stream takes, each store has its own opinion
	case n < 90:
		return call{op: opAge, duration: pick(d, 20*time.Second, 2*time.Minute)}
	case n < 93:
		return call{op: pick(d, opDrop, opDrop, opDrop, opExpire, opExpire, opExpire, opExpire, opExpire, opLose)}
	case n < 97:
		return call{op: opRead, seq: near(), limit: d.rng.IntN(8) - 1}
	}
	return call{op: opOwner}
}

// again is a write presented before, as it was or with what may change between two attempts.
func (d *drawer) again() call {
	c := d.seen[max(0, len(d.seen)-1-d.rng.IntN(6))]
	if d.one(3) {
		c.commit.Install = !c.commit.Install
	}
	if d.one(6) {
		c.commit.Contact, c.rebase.Contact = "moved:1", "moved:1"
	}
	if d.one(4) {
		c.rebase.Seq += fence.Seq(d.rng.IntN(40))
	}
	return c
}

// epoch is the tile's epoch, or one near it.
func (d *drawer) epoch(s *memfence.State) fence.Epoch {
	e := max(s.Owner.Epoch, s.Last().Epoch)
	switch d.rng.IntN(12) {
	case 0:
		return e - min(e, 1)
	case 1, 2:
		return e + 1
	case 3:
		return e + fence.Epoch(d.rng.IntN(4))
	case 4:
		if d.one(40) {
			return pick[fence.Epoch](d, 0, fence.MaxNumber-1, fence.MaxNumber, fence.MaxNumber+1, 1<<64-1)
		}
	}
	return max(e, 1)
}

// position is where the tile ends, or somewhere else.
func (d *drawer) position(s *memfence.State) fence.Position {
	p := s.Last()
	switch d.rng.IntN(14) {
	case 0, 1:
		p = pick(d, d.past...)
	case 2:
		p.Chain++
	case 3:
		p.Seq += fence.Seq(1 + d.rng.IntN(3))
	case 4:
		p.Seq -= min(p.Seq, 1)
	case 5:
		p.Epoch -= min(p.Epoch, 1)
	case 6:
		p = pick(d, fence.Position{}, fence.Position{Chain: 1}, fence.Position{Epoch: 1},
			fence.Position{Seq: fence.MaxNumber - 1})
	case 7:
		if d.one(20) {
			p = pick(d, fence.Position{Seq: fence.MaxNumber}, fence.Position{Epoch: 1<<64 - 1},
				fence.Position{Seq: 1<<64 - 1})
		}
	}
	return p
}

func (d *drawer) tick(s *memfence.State) fence.Tick {
	t := s.Owner.Tick + fence.Tick(d.rng.IntN(3))
	switch d.rng.IntN(20) {
	case 0:
		return t - min(t, 4)
	case 1:
		if d.one(20) {
			return pick[fence.Tick](d, 0, fence.MaxNumber, fence.MaxNumber+1)
		}
	}
	return t
}

func (d *drawer) contact() string {
	if d.one(60) {
		return pick(d, "", strings.Repeat("x", fence.MaxContact), strings.Repeat("x", fence.MaxContact+1),
			"\x00\xff\r\n")
	}
	return pick(d, "a:1", "b:2", "c:3")
}

func (d *drawer) bytes() []byte {
	b := make([]byte, d.rng.IntN(24))
	for i := range b {
		b[i] = byte(d.rng.IntN(256))
	}
	if d.one(500) {
		return make([]byte, fence.MaxPayload+d.rng.IntN(2))
	}
	return b
}

func (d *drawer) commit(s *memfence.State) fence.Commit {
	c := fence.Commit{Tile: d.tile, Epoch: d.epoch(s), Contact: d.contact(), Prev: d.position(s), Tick: d.tick(s)}
	c.Install = c.Epoch > s.Owner.Epoch
	if d.one(8) {
		c.Install = !c.Install
	}
	if !d.one(4) {
		c.Payload = d.bytes()
	}
	if d.one(4) {
		c.Private = d.bytes()
	}
	if d.one(3) {
		c.At = time.UnixMilli(1 + d.rng.Int64N(3))
	}
	if d.one(200) {
		c.At = time.UnixMilli(pick[int64](d, -1, fence.MaxNumber, fence.MaxNumber+1))
	}
	return c
}

func (d *drawer) rebase(s *memfence.State) fence.Rebase {
	r := fence.Rebase{Tile: d.tile, Epoch: d.epoch(s), Contact: d.contact(), Tick: d.tick(s), Blob: d.bytes()}
	if !d.one(3) {
		r.Epoch++
	}
	if d.one(3) {
		at := s.Last()
		at.Seq += pick[fence.Seq](d, 0, 0, 1)
		r.Replaces = pick(d, &at, &at, &fence.Position{})
	}
	r.Seq = s.Last().Seq + pick[fence.Seq](d, 1, 2, 10, 10, 10, 100) - min(s.Last().Seq,
		pick[fence.Seq](d, 0, 0, 0, 0, 10))
	if d.one(100) {
		r.Seq = pick[fence.Seq](d, 0, fence.FarSeq-2000, fence.MaxNumber+1)
	}
	return r
}

func (d *drawer) snapshot(s *memfence.State) fence.SnapshotWrite {
	w := fence.SnapshotWrite{Tile: d.tile, Position: d.position(s), Tick: s.Owner.Tick, Blob: d.bytes()}
	if n := len(s.Entries); n > 0 && d.one(2) {
		w.Position = s.Entries[max(0, n-1-d.rng.IntN(4))].Position
	}
	if d.one(6) {
		w.Tick = d.tick(s)
	}
	if d.one(12) {
		w.Position.Epoch = d.epoch(s)
	}
	return w
}
