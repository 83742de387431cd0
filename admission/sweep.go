package admission

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/tile"
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

// sweepWorkers is how many actions a sweep delivers at a time.
const sweepWorkers = 8

// Sweep finishes actions that were left behind: admitted, and not attempted for SweepAge, because the
// gateway crashed or the client never came back. Each is attempted once, as a retry by its client would; what may not
// be sent any more is settled by the Reconciler, if there is evidence, and logged.
// It returns when all that were due at its beginning have had their turn; err is that of the listing, or
// ctx's.
func (g *Gateway) Sweep(ctx context.Context) (info SweepInfo, err error) {
	began := time.Now()
	s := &sweep{gateway: g}
	defer func() {
		s.info.Took, s.info.Err = time.Since(began), err
		info = s.info
		hook.Call(g.cfg.Hooks.Swept, info)
	}()
	if s.now, err = g.ledger.Now(ctx); err != nil {
		return info, err
	}
	before := s.now.Add(-g.cfg.SweepAge)
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
		s.info.Found += len(fresh)
		expired := map[fence.TileID][]Artifact{}
		inParallel(sweepWorkers, fresh, func(id string) { s.finish(ctx, id, expired) })
		tiles := slices.Sorted(maps.Keys(expired))
		inParallel(sweepWorkers, tiles, func(id fence.TileID) { s.reconcile(ctx, id, expired[id]) })
		if ctx.Err() != nil {
			return info, context.Cause(ctx)
		}
	}
}

// sweep is one Sweep.
type sweep struct {
	gateway *Gateway
	now     time.Time // by the ledger's clock, at the beginning

	mu   sync.Mutex
	info SweepInfo
}

func (s *sweep) count(add func(*SweepInfo)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.info)
}

func inParallel[T any](workers int, all []T, f func(T)) {
	var group errgroup.Group
	group.SetLimit(workers)
	for _, one := range all {
		group.Go(func() error {
			f(one)
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// finish presents an action to its tile once more. One that is too old for that is added to expired.
func (s *sweep) finish(ctx context.Context, id string, expired map[fence.TileID][]Artifact) {
	if ctx.Err() != nil {
		return
	}
	g, began := s.gateway, time.Now()
	art, err := g.ledger.Attempt(ctx, id)
	if err != nil {
		return
	}
	if art.Open() {
		var d delivery
		art, d, err = g.finish(ctx, art)
		info := DoneInfo{Kind: Act, Tile: art.Tile, Redirects: d.redirects, Resubmits: d.resubmits,
			Took: time.Since(began), Err: err}
		if err == nil {
			info.Outcome = art.Outcome
		}
		g.done(info)
	}
	switch {
	case err == nil:
		s.count(func(i *SweepInfo) { i.Resolved++ })
	case errors.Is(err, ErrExpired) && s.asks(&art):
		s.count(func(*SweepInfo) { expired[art.Tile] = append(expired[art.Tile], art) })
	case errors.Is(err, ErrExpired):
		s.count(func(i *SweepInfo) { i.Stuck++ })
	default:
		g.cfg.Logger.Warn("pending action could not be finished", "action", id, "attempts", art.Attempts, "error", err)
	}
}

// asks reports whether the Reconciler is asked about an action that is too old to be sent. A tile remembers outcomes
// for RememberFor of its ticks, which stop when it does. So the Reconciler is asked about older ones too, but the older
// they are, the more rarely.
func (s *sweep) asks(a *Artifact) bool {
	r := s.gateway.cfg.Reconciler
	if r == nil {
		return false
	}
	age := s.now.Sub(a.Admitted)
	often := r.cfg.RetryWindow + max(r.cfg.RememberFor, tile.DefaultRememberFor)
	return age <= often || rand.N(age) < often
}

// reconcile settles the actions of one tile for which there is evidence.
func (s *sweep) reconcile(ctx context.Context, id fence.TileID, actions []Artifact) {
	g := s.gateway
	found, err := g.cfg.Reconciler.Find(ctx, g.ledger.Now, id, actions)
	if err != nil {
		s.count(func(i *SweepInfo) { i.Stuck += len(actions) })
		g.cfg.Logger.Warn("actions without an outcome stay pending: what their tile has committed could not be read",
			"tile", id, "actions", len(actions), "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	for i := range actions {
		a := &actions[i]
		log := g.cfg.Logger.With("action", a.ActionID, "actor", a.Actor, "tile", id, "admitted", a.Admitted)
		got, err := g.ledger.Settle(ctx, a.ActionID, found[i])
		if err != nil {
			s.count(func(i *SweepInfo) { i.Stuck++ })
			log.Warn("action without an outcome stays pending", "error", err)
			continue
		}
		log.Warn("action without an outcome was settled by evidence", "outcome", got.Outcome, "refunded", got.Refunded,
			"cost", got.Cost, "asset", got.Asset)
		s.count(func(i *SweepInfo) {
			i.Resolved++
			if got.Refunded {
				i.Refunded++
			} else {
				i.Evidence++
			}
		})
	}
}
