package checkpoint_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

// twoNodes is a log on two nodes. One of them, that of the odd tiles, may hang in calls of a kind; a call has the
// answers of the other node, and returns when its context ends.
type twoNodes struct {
	*memstream.Log
	hangs atomic.Value // the kind: one of read, stat, expire and mark, or all; empty: none
}

// waits waits for the node that hangs, and returns the error of its tiles.
func (l *twoNodes) waits(ctx context.Context, kind string, tiles ...fence.TileID) func(fence.TileID) error {
	on := l.hangs.Load()
	odd := slices.ContainsFunc(tiles, func(id fence.TileID) bool { return id%2 == 1 })
	if !odd || on != kind && on != "all" {
		return func(fence.TileID) error { return nil }
	}
	<-ctx.Done()
	return func(id fence.TileID) error {
		if id%2 == 0 {
			return nil
		}
		return &fence.StoreError{Op: kind, Tile: id, Outcome: fence.ErrUnknownOutcome, Err: context.Cause(ctx)}
	}
}

func (l *twoNodes) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	chunks, err := l.Log.Read(ctx, cursors)
	if err != nil {
		return nil, err
	}
	ids := make([]fence.TileID, len(cursors))
	for i, c := range cursors {
		ids[i] = c.Tile
	}
	failed := l.waits(ctx, "read", ids...)
	for i, id := range ids {
		if err := failed(id); err != nil {
			chunks[i] = stream.Chunk{Tile: id, Err: err}
		}
	}
	return chunks, nil
}

func (l *twoNodes) Stat(ctx context.Context, ids []fence.TileID) ([]stream.Stat, error) {
	stats, err := l.Log.Stat(ctx, ids)
	if err != nil {
		return nil, err
	}
	failed := l.waits(ctx, "stat", ids...)
	for i, id := range ids {
		if err := failed(id); err != nil {
			stats[i] = stream.Stat{Tile: id, Err: err}
		}
	}
	return stats, nil
}

func (l *twoNodes) Expire(ctx context.Context, tiles []stream.Quiet, after time.Duration) []stream.Expiry {
	answers := l.Log.Expire(ctx, tiles, after)
	ids := make([]fence.TileID, len(tiles))
	for i, q := range tiles {
		ids[i] = q.Tile
	}
	failed := l.waits(ctx, "expire", ids...)
	for i, id := range ids {
		if err := failed(id); err != nil {
			answers[i] = stream.Expiry{Err: err}
		}
	}
	return answers
}

func (l *twoNodes) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	l.Log.Mark(ctx, writes)
	errs := make([]error, len(writes))
	if ctx.Err() != nil {
		for i := range errs {
			errs[i] = context.Cause(ctx)
		}
		return errs
	}
	ids := make([]fence.TileID, len(writes))
	for i, w := range writes {
		ids[i] = w.Tile
	}
	failed := l.waits(ctx, "mark", ids...)
	for i, id := range ids {
		errs[i] = failed(id)
	}
	return errs
}

func (l *twoNodes) Last(ctx context.Context, id fence.TileID) (fence.Position, error) {
	if err := l.waits(ctx, "last", id)(id); err != nil {
		return fence.Position{}, err
	}
	return l.Log.Last(ctx, id)
}

func (l *twoNodes) Snapshot(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
	if err := l.waits(ctx, "snapshot", id)(id); err != nil {
		return fence.Snapshot{}, false, err
	}
	return l.Log.Snapshot(ctx, id)
}

// TestANodeThatHangs: whatever call a coordination node hangs in, and whatever its tiles are at, those of the other
// node fail in nothing: they keep their marks, and what they play becomes durable.
func TestANodeThatHangs(t *testing.T) {
	for _, kind := range []string{"read", "stat", "expire", "mark", "all"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				log := &twoNodes{Log: memstream.New(w.fence)}
				// Of four tiles one after another two are quiet, and two are on the node that will hang.
				ids := tiles(100)
				for i, id := range ids {
					w.play(id, 1)
					if i%4 < 2 {
						w.fence.Update(id, func(s *memfence.State) { s.Owner = fence.Owner{} })
					}
				}
				c, err := checkpoint.New(log, w.store, nil, ids, &checkpoint.Config{Hooks: w.hooks(), Collector: log,
					CollectAfter: 24 * time.Hour})
				require.NoError(t, err)
				if kind != "expire" { // else quiet tiles expire at the first look, and once
					defer w.run(c)()
					sleep(2 * oneCadence)
				}
				log.hangs.Store(kind)
				if kind == "expire" {
					defer w.run(c)()
				}
				// Some have never been copied.
				for i := range 30 {
					id := tile + fence.TileID(1000+i)
					w.play(id, 1)
					require.NoError(t, c.Add(id))
				}
				for range 6 {
					for i, id := range ids {
						if i%4 == 3 { // 3: the base is odd, so this one is even
							w.play(id, 1)
						}
					}
					sleep(3 * oneCadence)
				}
				for _, f := range seen(w, &w.failed) {
					require.NotZero(t, f.Tile%2, "%v", f.Err)
				}
				for _, d := range seen(w, &w.durable) {
					if d.Tile%2 == 0 {
						require.Less(t, d.Lag, 4*oneCadence)
					}
				}
				for id, o := range w.owners {
					if id%2 == 1 {
						continue
					}
					require.Equal(t, o.at, w.stored(id))
					marks, err := log.Marks(t.Context(), []fence.TileID{id})
					require.NoError(t, err)
					mark := marks[0].Marks[stream.Checkpointed]
					require.Equal(t, o.at.Seq, mark.Seq)
					require.Less(t, time.Since(fence.FromMillis(mark.Moved)), 40*time.Second)
				}
				log.hangs.Store("")
			})
		})
	}
}
