package admission

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// sweepPage is how many actions a sweep lists at a time.
const sweepPage = 100

// Run sweeps at intervals until ctx ends, and then returns nil. One gateway of many doing so is enough;
// several share the work. Errors of single sweeps are logged and given to the Swept hook.
func (g *Gateway) Run(ctx context.Context) error {
	for {
		quarter := int64(g.cfg.SweepInterval / 4)
		timer := time.NewTimer(g.cfg.SweepInterval + time.Duration(rand.Int64N(2*quarter+1)-quarter))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if _, err := g.Sweep(ctx); err != nil && ctx.Err() == nil {
			g.cfg.Logger.Warn("sweep failed", "error", err)
		}
	}
}

// Sweep finishes actions that were left behind: admitted, and not attempted for SweepAge, because the
// gateway crashed or the client never came back. Each is attempted once, as a retry by its client would.
// It returns when all that were due at its beginning have had their turn; err is that of the listing, or
// ctx's.
func (g *Gateway) Sweep(ctx context.Context) (info SweepInfo, err error) {
	began := time.Now()
	defer func() {
		info.Took, info.Err = time.Since(began), err
		g.cfg.Hooks.Swept(info)
	}()
	now, err := g.ledger.Now(ctx)
	if err != nil {
		return info, err
	}
	before := now.Add(-g.cfg.SweepAge)
	seen := map[string]bool{}
	for {
		ids, err := g.ledger.Pending(ctx, before, sweepPage)
		if err != nil {
			return info, err
		}
		// An attempt moves an action out of the list; but the list may lag, or the attempt fail.
		fresh := ids[:0:0]
		for _, id := range ids {
			if !seen[id] {
				seen[id] = true
				fresh = append(fresh, id)
			}
		}
		if len(fresh) == 0 {
			return info, nil
		}
		info.Found += len(fresh)
		info.Resolved += g.sweepPage(ctx, fresh)
		if ctx.Err() != nil {
			return info, context.Cause(ctx)
		}
	}
}

// sweepPage finishes the actions given, and returns how many are terminal then.
func (g *Gateway) sweepPage(ctx context.Context, ids []string) int {
	var resolved atomic.Int64
	var workers errgroup.Group
	workers.SetLimit(g.cfg.SweepWorkers)
	for _, id := range ids {
		workers.Go(func() error {
			if g.sweepOne(ctx, id) {
				resolved.Add(1)
			}
			return nil
		})
	}
	_ = workers.Wait() // no worker fails
	return int(resolved.Load())
}

func (g *Gateway) sweepOne(ctx context.Context, id string) bool {
	if ctx.Err() != nil {
		return false
	}
	began := time.Now()
	art, err := g.ledger.Attempt(ctx, id)
	if err != nil || !art.Open() {
		return err == nil
	}
	done, d, err := g.finish(ctx, art)
	info := DoneInfo{Kind: Act, Tile: art.Tile, Redirects: d.redirects, Resubmits: d.resubmits, Took: time.Since(began),
		Err: err}
	if err == nil {
		info.Outcome = done.Outcome
	} else {
		g.cfg.Logger.Warn("pending action could not be finished", "action", id, "attempts", art.Attempts, "error", err)
	}
	g.done(info)
	return err == nil
}
