package bridge

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// mark is one tile's watermarks, to be read or written.
type mark struct {
	tile *tile // for the scheduler; a job must not touch it
	id   fence.TileID
	seq  fence.Seq
	err  error
}

// startResume reads where forwarding of tiles ended.
func (r *run) startResume(tiles []*tile) {
	marks := make([]mark, len(tiles))
	for i, t := range tiles {
		t.busy = true
		marks[i] = mark{tile: t, id: t.cursor.tile}
	}
	r.start(resumeLane, func(ctx context.Context) func(time.Time) {
		r.b.each(ctx, marks, func(ctx context.Context, m *mark) error {
			all, err := r.b.log.Marks(ctx, []fence.TileID{m.id})
			if err == nil {
				m.seq = all[0].Marks[stream.BridgeAcked].Seq // zero without one: from the oldest entry
			}
			return err
		})
		return func(now time.Time) { r.bookResume(marks, now) }
	})
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
			continue
		}
		t.resumed, t.failures, t.due = true, 0, now
		// The mark may be ahead of the tile's history, if a failover came meanwhile.
		t.cursor.place, t.cursor.end = place{read: m.seq, blind: m.seq == 0}, fence.Position{Seq: m.seq}
		t.marked = m.seq
	}
	r.countFailing()
	r.reportMarks(OpResume, failed)
}

// startMarks writes the watermarks of tiles.
func (r *run) startMarks(l lane, tiles []*tile) {
	marks := make([]mark, len(tiles))
	for i, t := range tiles {
		t.marking = true
		marks[i] = mark{tile: t, id: t.cursor.tile, seq: min(t.cursor.read, fence.MaxNumber)}
	}
	r.start(l, func(ctx context.Context) func(time.Time) {
		r.b.each(ctx, marks, func(ctx context.Context, m *mark) error {
			// Everything at or below seq is published, nothing above it is known to be: both say so. The
			// pending one first, for it must not be missing while the other exists.
			if err := stream.MarkOne(ctx, r.b.log, stream.MarkWrite{Tile: m.id, Consumer: stream.BridgePending, Seq: m.seq}); err != nil {
				return err
			}
			return stream.MarkOne(ctx, r.b.log, stream.MarkWrite{Tile: m.id, Consumer: stream.BridgeAcked, Seq: m.seq})
		})
		return func(now time.Time) { r.bookMarks(marks, now) }
	})
}

func (r *run) bookMarks(marks []mark, now time.Time) {
	var failed []*mark
	for i := range marks {
		m := &marks[i]
		t := m.tile
		t.marking = false
		if m.err != nil {
			t.markFailures++
			t.markRetry = now.Add(r.b.cfg.backoff(t.markFailures))
			failed = append(failed, m)
			continue
		}
		t.marked, t.markedAt, t.markFailures = max(t.marked, m.seq), now, 0
	}
	r.b.count(func(s *Stats) { s.Marks += 2 * uint64(len(marks)-len(failed)) })
	r.reportMarks(OpMark, failed)
}

// unmarked returns the tiles whose watermarks are behind.
func (r *run) unmarked() map[lane][]*tile {
	tiles := map[lane][]*tile{}
	for _, t := range r.order {
		if t.resumed && t.marked < t.cursor.read {
			tiles[t.markLane()] = append(tiles[t.markLane()], t)
		}
	}
	return tiles
}

// each calls f for every mark, several at once, and keeps its errors.
func (b *Bridge) each(ctx context.Context, marks []mark, f func(context.Context, *mark) error) {
	var g errgroup.Group
	g.SetLimit(b.cfg.MarkConcurrency)
	for i := range marks {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, b.cfg.StoreTimeout)
			defer cancel()
			marks[i].err = f(ctx, &marks[i])
			return nil
		})
	}
	_ = g.Wait()
}
