package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// mark is one tile's watermarks, to be read or written.
type mark struct {
	tile   *tile // for the scheduler; a job must not touch it
	id     fence.TileID
	seq    fence.Seq
	rewind bool
	err    error

	trimmed fence.Seq // read only: entries below it are gone
}

// startResume reads where forwarding of tiles ended.
func (r *run) startResume(tiles []*tile) {
	marks := make([]mark, len(tiles))
	for i, t := range tiles {
		t.busy = true
		marks[i] = mark{tile: t, id: t.cursor.tile}
		r.plan(t)
	}
	r.start(resumeLane, func(ctx context.Context) func(time.Time) {
		r.b.readMarks(ctx, marks)
		return func(now time.Time) { r.bookResume(marks, now) }
	})
}

func (b *Bridge) readMarks(ctx context.Context, marks []mark) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.StoreTimeout)
	defer cancel()
	ids := make([]fence.TileID, len(marks))
	for i := range marks {
		ids[i] = marks[i].id
	}
	all, err := b.log.Marks(ctx, ids)
	if err == nil && len(all) != len(ids) {
		err = fmt.Errorf("%w: %d of %d", errMiscount, len(all), len(ids))
	}
	for i := range marks {
		if err != nil {
			marks[i].err = err
			continue
		}
		marks[i].err = all[i].Err
		marks[i].seq = all[i].Marks[stream.BridgeAcked].Seq // zero without one: from the oldest entry
		marks[i].trimmed = all[i].Trimmed
	}
}

func (r *run) bookResume(marks []mark, now time.Time) {
	var failed []*mark
	for i := range marks {
		m := &marks[i]
		t := m.tile
		t.busy = false
		if m.err != nil {
			t.failures++
			t.due = now.Add(r.b.cfg.backoff(t.failures))
			failed = append(failed, m)
		} else {
			t.resumed, t.failures, t.due = true, 0, now
			// The mark may be ahead of the tile's history, if a failover came meanwhile.
			t.cursor.place, t.cursor.end = place{read: m.seq, blind: m.seq == 0}, fence.Position{Seq: m.seq}
			t.cursor.sent = t.cursor.end
			t.marked = m.seq
			if m.seq+1 < m.trimmed {
				r.lost(t, m.seq, m.trimmed) // now: once the first pass has gone on from there, no mark is told
			}
		}
		r.plan(t)
	}
	r.tell()
	r.reportMarks(OpResume, failed)
}

func (t *tile) markLane() lane {
	if t.failures > 0 || t.markFailures > 0 {
		return markRetryLane
	}
	return markLane
}

// settled reports whether the watermarks say what they should.
func (t *tile) settled() bool { return !t.rewind && t.marked >= t.cursor.read }

// markDue is when the watermarks are to be written next.
func (t *tile) markDue(c *Config) time.Time {
	switch {
	case t.markFailures > 0:
		return t.markRetry
	case t.removed || t.rewind:
		return time.Time{}
	case t.settled():
		return t.renew
	}
	return t.markedAt.Add(c.MarkEvery)
}

// startMarks writes the watermarks of tiles, all in one call.
func (r *run) startMarks(l lane, tiles []*tile) {
	marks := make([]mark, len(tiles))
	for i, t := range tiles {
		marks[i] = mark{tile: t, id: t.cursor.tile, seq: min(t.cursor.read, fence.MaxNumber), rewind: t.rewind}
		t.marking, t.rewind = true, false
		r.plan(t)
	}
	r.start(l, func(ctx context.Context) func(time.Time) {
		r.b.writeMarks(ctx, marks)
		return func(now time.Time) { r.bookMarks(marks, now) }
	})
}

// writeMarks writes both watermarks of each tile: everything at or below seq is published, nothing above it is
// known to be, and both say so.
func (b *Bridge) writeMarks(ctx context.Context, marks []mark) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.StoreTimeout)
	defer cancel()
	writes := make([]stream.MarkWrite, 0, 2*len(marks))
	for i := range marks {
		w := stream.MarkWrite{Tile: marks[i].id, Consumer: stream.BridgePending, Seq: marks[i].seq, Rewind: marks[i].rewind}
		writes = append(writes, w)
		w.Consumer = stream.BridgeAcked
		writes = append(writes, w)
	}
	for i, err := range b.log.Mark(ctx, writes) {
		if m := &marks[i/2]; m.err == nil || errors.Is(m.err, stream.ErrResync) {
			m.err = err // of two that say the same, one is enough; a failure counts more
		}
	}
}

func (r *run) bookMarks(marks []mark, now time.Time) {
	var failed []*mark
	written, full := uint64(0), uint64(0)
	for i := range marks {
		m := &marks[i]
		t := m.tile
		t.marking = false
		var resync *stream.ResyncError
		switch {
		case errors.As(m.err, &resync):
			if !m.rewind || resync.Trimmed > t.rewound+1 { // else it went back further than it had to
				r.lost(t, m.seq, resync.Trimmed)
			}
			m.err = nil // it is in force
		case errors.Is(m.err, stream.ErrTooManyMarks):
			full++
		}
		if m.err != nil {
			t.rewind = t.rewind || m.rewind
			t.markFailures++
			t.markRetry = now.Add(r.b.cfg.backoff(t.markFailures))
			failed = append(failed, m)
		} else {
			written += 2
			if m.rewind || m.seq > t.marked {
				t.marked = m.seq
			}
			t.markedAt, t.markFailures = now, 0
			t.renew = now.Add(spread(r.b.cfg.RenewEvery))
		}
		r.plan(t)
	}
	r.b.count(func(s *Stats) {
		s.Marks += written
		s.MarksRefused += full
	})
	r.reportMarks(OpMark, failed)
}

// lost reports, once, entries that were trimmed before the bridge has read them: its lease had run out, or the tile
// was at its bound of memory. Reading goes on with the oldest entry there is.
func (r *run) lost(t *tile, read, trimmed fence.Seq) {
	if trimmed <= t.lost {
		return
	}
	t.lost = trimmed
	id := t.cursor.tile
	r.b.count(func(s *Stats) { s.Resyncs++ })
	r.b.cfg.Logger.Error("entries were trimmed before they were forwarded", "tile", id, "read", read, "trimmed", trimmed)
	r.b.cfg.Hooks.Lost(LostInfo{Tile: id, Read: read, Trimmed: trimmed})
}
