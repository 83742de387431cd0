package streamtest

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// slack is how far the store's clock and the test's may be apart, next to a lease of an hour.
const slack = time.Minute

// everything is a limit that no stream of a test reaches.
const everything = 1 << 20

// read lets a reader go on from where it is.
func (p *play) read(r *reader, limit int) error {
	if r.down > 0 {
		return nil
	}
	chunks, err := p.h.Log.Read(p.ctx, []stream.Cursor{{Tile: p.tile, After: r.at.Seq, Limit: limit}})
	if err != nil {
		return err
	}
	rest, known := p.after(r.at)
	for i := range chunks[0].Entries {
		e := chunks[0].Entries[i]
		switch {
		case e.Prev == r.at && e.Kind != fence.KindRebase:
			r.at = e.Position
			continue
		case e.Kind == fence.KindRebase, !known, !r.safe:
			return p.resync(r)
		}
		return broken("%s is at %s and was promised %d entries after it; the next it gets is %s after %s", r.consumer,
			r.at, len(rest), e.Position, e.Prev)
	}
	if len(chunks[0].Entries) == 0 && r.safe && known && len(rest) > 0 && rest[0].Kind != fence.KindRebase {
		return broken("%s is at %s and was promised %d entries after it; it gets none", r.consumer, r.at, len(rest))
	}
	if len(chunks[0].Entries) == 0 && r.at != p.last() && !known {
		return p.resync(r) // its periodic comparison shows that the history went back
	}
	return nil
}

// resync starts a reader over from the snapshot.
func (p *play) resync(r *reader) error {
	p.happened["gap"]++
	s, _, err := p.h.Log.Snapshot(p.ctx, p.tile)
	if err != nil {
		return err
	}
	r.at, r.safe = s.Position, false
	r.rewound = &stream.MarkWrite{Tile: p.tile, Consumer: r.consumer, Seq: r.at.Seq, Rewind: true}
	answer, err := p.write(r.rewound)
	if answer != nil {
		return broken("%s was told to resync when it had: %w", r.consumer, answer)
	}
	r.safe = true
	return err
}

// mark writes a reader's mark. A reply that is lost leaves the reader as it was.
func (p *play) mark(r *reader, lost bool) error {
	if r.down > 0 {
		return nil
	}
	answer, err := p.write(&stream.MarkWrite{Tile: p.tile, Consumer: r.consumer, Seq: r.at.Seq})
	switch {
	case err != nil || lost:
		return err
	case answer != nil:
		p.happened["told"]++
		return p.resync(r)
	}
	// A failover may have brought back a higher mark than the one it rewound to. It then stays, and promises no more.
	now, err := p.marks()
	r.safe = now.Marks[r.consumer].Seq == r.at.Seq
	return err
}

// write writes a mark, and judges what is in force then and the answer to its writer: nil, or to resync.
func (p *play) write(w *stream.MarkWrite) (answer, err error) {
	before, err := p.marks()
	if err != nil {
		return nil, err
	}
	answer = stream.MarkOne(p.ctx, p.h.Log, *w)
	if answer != nil && !errors.Is(answer, stream.ErrResync) {
		return nil, answer
	}
	now, err := p.marks()
	if err != nil {
		return nil, err
	}
	want := w.Seq
	if had, there := before.Marks[w.Consumer]; there && !w.Rewind {
		want = max(want, had.Seq)
	}
	if now.Marks[w.Consumer].Seq != want {
		return nil, broken("%s marked %d where %d was: %d is in force", w.Consumer, w.Seq, before.Marks[w.Consumer].Seq,
			now.Marks[w.Consumer].Seq)
	}
	missing, err := p.missing(w.Seq)
	switch {
	case err != nil:
		return nil, err
	case answer == nil && missing:
		return nil, broken("entries after %d are gone, and %s was not told", w.Seq, w.Consumer)
	case answer != nil && !missing && !p.jumps(w.Seq):
		return nil, broken("%s at %d was told to resync, and nothing after it is gone: %w", w.Consumer, w.Seq, answer)
	}
	return answer, nil
}

func (p *play) marks() (stream.TileMarks, error) {
	m, err := p.h.Log.Marks(p.ctx, []fence.TileID{p.tile})
	if err != nil {
		return stream.TileMarks{}, err
	}
	return m[0], m[0].Err
}

// missing reports whether the store lacks an entry of the history after seq.
func (p *play) missing(seq fence.Seq) (bool, error) {
	there, err := p.stored(1)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(p.line, func(e fence.Entry) bool {
		return e.Seq > seq && (len(there) == 0 || e.Seq < there[0].Seq)
	}), nil
}

// jumps reports whether the history has a rebase after seq: the next entry is then not the next sequence.
func (p *play) jumps(seq fence.Seq) bool {
	return slices.ContainsFunc(p.line, func(e fence.Entry) bool { return e.Kind == fence.KindRebase && e.Seq > seq })
}

// stored reads the oldest entries that the store has.
func (p *play) stored(limit int) ([]fence.Entry, error) {
	chunks, err := p.h.Log.Read(p.ctx, []stream.Cursor{{Tile: p.tile, Limit: limit}})
	if err != nil {
		return nil, err
	}
	return chunks[0].Entries, chunks[0].Err
}

// trim trims, and judges what it did.
func (p *play) trim(bounded bool) error {
	before, err := p.stored(everything)
	if err != nil {
		return err
	}
	marks, err := p.marks()
	if err != nil {
		return err
	}
	snapshot, found, err := p.h.Log.Snapshot(p.ctx, p.tile)
	if err != nil {
		return err
	}
	request := stream.TrimRequest{Tile: p.tile, Lease: lease}
	if bounded {
		request.MaxBytes = int64(stream.MinMaxBytes << p.rng.IntN(2))
	}
	now := time.Now()
	t, err := p.h.Log.Trim(p.ctx, request)
	if err != nil {
		return err
	}
	after, err := p.stored(everything)
	if err != nil {
		return err
	}
	p.happened["expired"] += len(t.Expired)
	p.happened["evicted"] += len(t.Evicted)
	for _, check := range []func() error{
		func() error { return removedExactly(&t, before, after) },
		func() error { return expiredRightly(&t, marks.Marks, now) },
		func() error { return p.notedRightly(marks.Marks, now) },
		func() error { return evictedRightly(&t, &request, marks.Marks, snapshot.Seq) },
		func() error { return evictedNeedfully(&t, &request, marks.Marks, before) },
		func() error { return p.floorRight(&t, marks.Marks, snapshot.Seq, found) },
		func() error { return p.groupsKept(&t, before) },
		func() error { return p.trimmedRight(&t, marks.Marks, before, after) },
		p.recovers,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	for _, r := range p.readers {
		if slices.Contains(t.Expired, r.consumer) || slices.Contains(t.Evicted, r.consumer) {
			r.safe = false
		}
	}
	return nil
}

// removedExactly: what is below the floor is gone, and nothing else.
func removedExactly(t *stream.Trimmed, before, after []fence.Entry) error {
	left := slices.DeleteFunc(slices.Clone(before), func(e fence.Entry) bool { return e.Seq < t.Floor })
	switch {
	case len(left) != len(after) || len(left) > 0 && !reflect.DeepEqual(left, after):
		return broken("a trim to %d left %d entries of %d, not %d", t.Floor, len(after), len(before), len(left))
	case t.Removed != len(before)-len(after), t.Entries != len(after):
		return broken("a trim says it removed %d of %d entries and left %d; it left %d", t.Removed, len(before),
			t.Entries, len(after))
	}
	return nil
}

func expiredRightly(t *stream.Trimmed, marks map[stream.Consumer]stream.Mark, now time.Time) error {
	for c, m := range marks {
		age, noted := now.Sub(time.UnixMilli(m.Moved)), time.Duration(0)
		if m.Silent != 0 {
			noted = now.Sub(time.UnixMilli(m.Silent))
		}
		expired := slices.Contains(t.Expired, c)
		if expired && (age < lease-slack || noted < lease/2-slack) ||
			!expired && age > lease+slack && noted > lease/2+slack {
			return broken("%s last marked %v ago under a lease of %v, found silent %v ago; expired: %v", c, age, lease,
				noted, expired)
		}
	}
	return nil
}

// notedRightly: a trim notes marks that were not written for half a lease, and a note stays as it is until they are.
func (p *play) notedRightly(before map[stream.Consumer]stream.Mark, now time.Time) error {
	after, err := p.marks()
	if err != nil {
		return err
	}
	for c, m := range after.Marks {
		age, was := now.Sub(time.UnixMilli(m.Moved)), before[c].Silent
		switch {
		case age > lease/2+slack && m.Silent == 0, age < lease/2-slack && m.Silent != 0:
			return broken("%s last marked %v ago under a lease of %v, and was found silent at %d", c, age, lease,
				m.Silent)
		case m.Silent != 0 && was != 0 && was != m.Silent:
			return broken("%s was found silent at %d, and then at %d", c, was, m.Silent)
		}
	}
	return nil
}

func evictedRightly(t *stream.Trimmed, r *stream.TrimRequest, marks map[stream.Consumer]stream.Mark,
	snapshot fence.Seq) error {
	if r.MaxBytes == 0 && len(t.Evicted) > 0 {
		return broken("%v were evicted without a bound", t.Evicted)
	}
	for _, c := range t.Evicted {
		if c != stream.ConsumerGroup && marks[c].Seq >= snapshot {
			return broken("%s at %d was evicted, which is as far as the snapshot", c, marks[c].Seq)
		}
		for other, m := range marks {
			if !slices.Contains(t.Evicted, other) && !slices.Contains(t.Expired, other) && m.Seq < marks[c].Seq {
				return broken("%s at %d was evicted before %s at %d", c, marks[c].Seq, other, m.Seq)
			}
		}
	}
	if r.MaxBytes > 0 && t.Bytes > r.MaxBytes && t.Held != "" {
		return broken("%d bytes are left of %d, and %s still holds them", t.Bytes, r.MaxBytes, t.Held)
	}
	return nil
}

// evictedNeedfully: with the last of those that were evicted, the stream would have been too large.
func evictedNeedfully(t *stream.Trimmed, r *stream.TrimRequest, marks map[stream.Consumer]stream.Mark,
	before []fence.Entry) error {
	if len(t.Evicted) == 0 || t.Evicted[len(t.Evicted)-1] == stream.ConsumerGroup {
		return nil
	}
	last := t.Evicted[len(t.Evicted)-1]
	var most int64
	for _, e := range before {
		if e.Seq >= marks[last].Seq {
			most += int64(len(e.Frame))*9/8 + 512 // what any store takes for it, at most
		}
	}
	if most <= r.MaxBytes {
		return broken("%s at %d was evicted for a bound of %d bytes, and with it the stream had at most %d", last,
			marks[last].Seq, r.MaxBytes, most)
	}
	return nil
}

// floorRight: the floor is the lowest of the snapshot and the marks that are left, or a group's.
func (p *play) floorRight(t *stream.Trimmed, marks map[stream.Consumer]stream.Mark, snapshot fence.Seq,
	found bool) error {
	if !found {
		if t.Floor != 0 || t.Removed != 0 {
			return broken("trimmed to %d without a snapshot", t.Floor)
		}
		return nil
	}
	want := snapshot
	for c, m := range marks {
		if !slices.Contains(t.Expired, c) && !slices.Contains(t.Evicted, c) {
			want = min(want, m.Seq)
		}
	}
	if t.Floor > want || t.Floor < want && t.Held != stream.ConsumerGroup {
		return broken("trimmed to %d, held by %q, not to %d", t.Floor, t.Held, want)
	}
	return nil
}

// groupsKept: an entry that a group was given within the lease stays, unless the bound took it.
func (p *play) groupsKept(t *stream.Trimmed, before []fence.Entry) error {
	if slices.Contains(t.Evicted, stream.ConsumerGroup) {
		p.groups = nil // which of them, the store does not say
		return nil
	}
	for _, g := range p.groups {
		for _, seq := range g.pending {
			was := slices.ContainsFunc(before, func(e fence.Entry) bool { return e.Seq == seq })
			if was && seq < t.Floor && g.age < lease-slack {
				return broken("entry %d is pending in a group since %v, and was trimmed to %d", seq, g.age, t.Floor)
			}
		}
	}
	return nil
}

// trimmedRight: the lowest floor that removed all that was removed is remembered, and never sinks. A trim visits the
// marks it evicts, from the lowest, and then its floor; where a group was held, only the store knows.
func (p *play) trimmedRight(t *stream.Trimmed, marks map[stream.Consumer]stream.Mark, before,
	after []fence.Entry) error {
	m, err := p.marks()
	if err != nil {
		return err
	}
	lowest, highest := p.trimmed, p.trimmed
	if n := len(before) - len(after); n > 0 {
		last := before[n-1].Seq
		lowest, highest = t.Floor, t.Floor
		for _, c := range t.Evicted {
			if c != stream.ConsumerGroup && marks[c].Seq > last {
				lowest, highest = min(lowest, marks[c].Seq), min(highest, marks[c].Seq)
			}
		}
		if slices.Contains(t.Evicted, stream.ConsumerGroup) {
			lowest = last + 1
		}
		lowest, highest = max(lowest, p.trimmed), max(highest, p.trimmed)
	}
	if m.Trimmed < lowest || m.Trimmed > highest {
		return broken("trimmed to %d, of which %d entries were there; %d is remembered, not %d to %d", t.Floor,
			t.Removed, m.Trimmed, lowest, highest)
	}
	p.trimmed = m.Trimmed
	return nil
}

// recovers: snapshot and tail are the whole history.
func (p *play) recovers() error {
	r, err := stream.Recover(p.ctx, p.h.Log, p.tile)
	if err != nil {
		return broken("recovery: %w", err)
	}
	rest, known := p.after(r.Snapshot.Position)
	if !known || r.Position != p.last() || len(rest) != len(r.Entries) {
		return broken("a recovery from %s has %d entries and ends at %s; the history has %d and ends at %s",
			r.Snapshot.Position, len(r.Entries), r.Position, len(rest), p.last())
	}
	for i := range rest {
		if rest[i].Position != r.Entries[i].Position {
			return broken("a recovery has %s where the history has %s", r.Entries[i].Position, rest[i].Position)
		}
	}
	return nil
}

// quiesce lets every reader come to the end, and then trims all that no reader needs.
func (p *play) quiesce() error {
	if err := p.commit(1); err != nil {
		return err
	}
	for _, r := range p.readers {
		r.down = 0
		for range 10 {
			if err := p.mark(r, false); err != nil {
				return err
			}
			if err := p.read(r, 1<<20); err != nil {
				return err
			}
		}
		if r.at != p.last() {
			return broken("%s stays at %s, and the history ends at %s", r.consumer, r.at, p.last())
		}
	}
	return p.trim(true)
}
