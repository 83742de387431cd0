package match

import (
	"context"
	"errors"
	"log/slog"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/wait"
)

// finisher ends recorded matches: it asks the allocator, then publishes or dissolves them. Worker and supervisor have
// one. Several may finish the same match at the same time: the allocator answers by match ID, and the first
// Publish or Dissolve decides.
type finisher struct {
	store Store
	alloc Allocator
	hooks Hooks
	log   *slog.Logger
}

// finish ends matches of one shard, and tries again what failed until ctx ends; what is left then is the
// supervisors'. It calls full when a match finds no seat, before its tickets wait again: with the tile of a
// backfill, or with zero.
func (f *finisher) finish(ctx context.Context, shard string, matches []Match, full func(fence.TileID)) {
	for len(matches) > 0 {
		matches = f.once(ctx, shard, matches, full)
		if len(matches) > 0 && !wait.For(ctx, retryInterval) {
			return
		}
	}
}

// once tries each match once and returns those that are left.
func (f *finisher) once(ctx context.Context, shard string, matches []Match, full func(fence.TileID)) (left []Match) {
	var placed []Match
	noSeat := 0
	var assignments []Assignment
	for i, a := range f.alloc.Allocate(ctx, matches) {
		m := matches[i]
		switch {
		case a.Err == nil:
			a.Assignment.Match = m.ID
			placed, assignments = append(placed, m), append(assignments, a.Assignment)
		case errors.Is(a.Err, ErrNoSeat):
			noSeat++
			full(m.Tile)
			if err := f.store.Dissolve(ctx, shard, m.ID, Why{Reason: NoSeat}); err != nil {
				f.failed(shard, "dissolve", err)
				left = append(left, m)
				continue
			}
			hook.Call(f.hooks.Finished, FinishInfo{Match: m, Err: a.Err})
		default:
			f.failed(shard, "allocate", a.Err)
			left = append(left, m)
		}
	}
	if noSeat > 0 {
		f.log.Warn("match: no tile has enough free seats; the tickets wait", "shard", shard, "matches", noSeat)
	}
	if len(placed) == 0 {
		return left
	}
	results, err := f.store.Publish(ctx, shard, assignments)
	if err != nil {
		f.failed(shard, "publish", err)
		return append(left, placed...)
	}
	for i, err := range results {
		switch {
		case err == nil:
			hook.Call(f.hooks.Finished, FinishInfo{Match: placed[i], Assignment: assignments[i]})
		case errors.Is(err, ErrGone): // dissolved by another, for want of a seat that has come free since
			if err := f.alloc.Release(ctx, placed[i]); err != nil {
				f.failed(shard, "release seats", err) // their hold ends by itself
			}
		default:
			f.failed(shard, "publish", err)
			left = append(left, placed[i])
		}
	}
	return left
}

func (f *finisher) failed(shard, op string, err error) {
	hook.Call(f.hooks.Failed, FailInfo{shard, op, err})
	f.log.Warn("match: "+op+" failed; it is tried again", "shard", shard, "error", err)
}
