package admission

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/tile"
)

// Bounds of a sweep. One that does not hold leaves actions to the next sweep.
const (
	sweepPage    = 1000             // actions that are listed in one call
	sweepMost    = 100_000          // actions that are listed at all
	sweepOfTile  = 1000             // actions of one tile
	sweepTiles   = 32               // tiles that have their turn at the same time
	sweepTurn    = 10 * time.Second // for how long a tile's turn begins attempts
	sweepWave    = 8                // attempts at a time in a turn, of which the first is alone
	sweepFailing = 3                // waves in a row of which no attempt succeeds
	sweepExpired = 100              // actions of one turn that are too old to be sent
)

// Run sweeps at intervals until ctx ends, and then returns nil. One gateway of many doing so is enough;
// several share the work. Errors of single sweeps are logged and given to the Swept hook.
func (g *Gateway) Run(ctx context.Context) error {
	interval := g.cfg.SweepInterval
	for {
		quarter := int64(interval / 4)
		timer := time.NewTimer(interval + time.Duration(rand.Int64N(2*quarter+1)-quarter))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		_, more, err := g.sweep(ctx)
		if err != nil && ctx.Err() == nil {
			g.cfg.Logger.Warn("sweep failed", "error", err)
		}
		if interval = g.cfg.SweepInterval; more {
			interval /= 16
		}
	}
}

// Sweep finishes actions that were left behind: admitted, and not attempted for SweepAge, because the
// gateway crashed or the client never came back. Each is attempted once, as a retry by its client would; what may not
// be sent any more is settled by the Reconciler, if there is evidence, and logged.
//
// Each tile has a turn of its own, so that one that is slow, full or gone delays no other: some tiles at a time, those
// that took nothing in the last sweep at the end. A turn is over after 10 s, or when three attempts in a row have
// failed; what is left then waits for the next sweep. Sweep returns when all tiles have had their turn; err is that of
// the listing, or ctx's.
func (g *Gateway) Sweep(ctx context.Context) (SweepInfo, error) {
	info, _, err := g.sweep(ctx)
	return info, err
}

// sweep is Sweep. more reports whether a tile that takes actions has more of them.
func (g *Gateway) sweep(ctx context.Context) (info SweepInfo, more bool, err error) {
	began := time.Now()
	s := &sweep{gateway: g}
	defer func() {
		s.info.Took, s.info.Err = time.Since(began), err
		info = s.info
		hook.Call(g.cfg.Hooks.Swept, info)
	}()
	if s.now, err = g.ledger.Now(ctx); err != nil {
		return info, false, err
	}
	turns, err := s.list(ctx)
	inParallel(sweepTiles, turns, func(t *tileTurn) { s.serve(ctx, t) })
	failing := map[fence.TileID]bool{}
	for _, t := range turns {
		failing[t.tile] = t.failing
		more = more || !t.failing && len(t.left) > 0
		s.info.Left += len(t.left)
	}
	g.failing.Store(&failing)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return info, more, err
}

// sweep is one Sweep.
type sweep struct {
	gateway *Gateway
	now     time.Time // by the ledger's clock, at the beginning

	mu   sync.Mutex
	info SweepInfo
}

// tileTurn is one tile's part in a sweep.
type tileTurn struct {
	tile    fence.TileID
	left    []string // actions, the longest untouched first
	failing bool     // it was given up
	expired []Artifact
}

// list makes the turns of the tiles whose actions were left behind. The list may lag, so it may name an action twice.
func (s *sweep) list(ctx context.Context) (turns []*tileTurn, err error) {
	before, from := s.now.Add(-s.gateway.cfg.SweepAge), time.Time{}
	seen, of := map[string]bool{}, map[fence.TileID]*tileTurn{}
	for len(seen) < sweepMost {
		page, listErr := s.gateway.ledger.Pending(ctx, from, before, sweepPage)
		if err = listErr; err != nil {
			break
		}
		full := len(page) == sweepPage
		page = slices.DeleteFunc(page, func(p PendingAction) bool {
			twice := seen[p.ActionID]
			seen[p.ActionID] = true
			return twice
		})
		if len(page) == 0 && !full {
			break
		}
		if len(page) == 0 { // more than a page of one instant: a later sweep lists the rest
			from = from.Add(time.Millisecond)
			continue
		}
		from = page[len(page)-1].Attempted
		s.locate(ctx, page)
		for _, p := range page {
			t := of[p.Tile]
			if t == nil {
				t = &tileTurn{tile: p.Tile}
				of[p.Tile], turns = t, append(turns, t)
			}
			if len(t.left) < sweepOfTile {
				t.left = append(t.left, p.ActionID)
			}
		}
	}
	for _, t := range turns {
		s.info.Found += len(t.left)
	}
	if failing := s.gateway.failing.Load(); failing != nil {
		slices.SortStableFunc(turns, func(a, b *tileTurn) int {
			return cmp.Compare(bit((*failing)[a.tile]), bit((*failing)[b.tile]))
		})
	}
	return turns, err
}

func bit(is bool) int {
	if is {
		return 1
	}
	return 0
}

// locate looks up the tiles of actions whose list does not name them. Actions whose tile is not found share a turn.
func (s *sweep) locate(ctx context.Context, page []PendingAction) {
	var unknown []*PendingAction
	for i := range page {
		if page[i].Tile == 0 {
			unknown = append(unknown, &page[i])
		}
	}
	inParallel(sweepTiles, unknown, func(p *PendingAction) {
		art, _ := s.gateway.ledger.Lookup(ctx, p.ActionID)
		p.Tile = art.Tile
	})
}

// serve gives a tile its turn.
func (s *sweep) serve(ctx context.Context, t *tileTurn) {
	began, wave, failed := time.Now(), 1, 0
	for len(t.left) > 0 && time.Since(began) < sweepTurn && len(t.expired) < sweepExpired && ctx.Err() == nil {
		now := t.left[:min(wave, len(t.left))]
		t.left = t.left[len(now):]
		var done atomic.Int32
		inParallel(sweepWave, now, func(id string) {
			if s.finish(ctx, t, id) {
				done.Add(1)
			}
		})
		if wave = sweepWave; done.Load() > 0 {
			failed = 0
			continue
		}
		wave = 1
		if failed++; failed == sweepFailing {
			t.failing = true
			break
		}
	}
	if len(t.expired) > 0 && ctx.Err() == nil {
		s.reconcile(ctx, t.tile, t.expired)
	}
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

// finish presents an action to its tile once more. One that is too old for that is added to the turn's expired. It
// reports whether the tile, or at least the ledger, did its part.
func (s *sweep) finish(ctx context.Context, t *tileTurn, id string) bool {
	if ctx.Err() != nil {
		return false
	}
	g, began := s.gateway, time.Now()
	art, err := g.ledger.Attempt(ctx, id)
	if err != nil {
		return false
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
		s.count(func(*SweepInfo) { t.expired = append(t.expired, art) })
	case errors.Is(err, ErrExpired):
		s.count(func(i *SweepInfo) { i.Stuck++ })
	default:
		g.cfg.Logger.Warn("pending action could not be finished", "action", id, "attempts", art.Attempts, "error", err)
		return false
	}
	return true
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
	for i := range actions {
		a := &actions[i]
		log := g.cfg.Logger.With("action", a.ActionID, "actor", a.Actor, "tile", id, "admitted", a.Admitted)
		got, err := s.settle(ctx, a.ActionID, found[i])
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

// settle records a finding, also while ctx ends.
func (s *sweep) settle(ctx context.Context, id string, f Finding) (Artifact, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return s.gateway.ledger.Settle(ctx, id, f)
}
