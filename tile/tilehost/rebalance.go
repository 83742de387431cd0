package tilehost

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// restLooks is how many looks of Rebalance a tile stays where it is after it has moved, refusedLooks how many a host is
// not asked after it has refused a tile. givesAtOnce is how many tiles are handed over beside each other, and maxPlan
// how many the plan of one look moves.
const (
	restLooks    = 3
	refusedLooks = 10
	givesAtOnce  = 16
	maxPlan      = 4096
)

// idleWork is what a tile without players costs its host in a second, about: heartbeats, and commits of nothing. With
// it tiles in which nothing happens are evened out by number.
const idleWork = time.Millisecond

// weight is what hosts are compared by.
func weight(l route.Load) time.Duration { return l.Work + time.Duration(l.Tiles)*idleWork }

// Load is what the host serves now.
func (h *Host) Load() route.Load { return h.loadOf(h.Status()) }

func (h *Host) loadOf(all []tile.Status) (l route.Load) {
	for i := range all {
		if s := &all[i]; s.State == tile.Serving || s.State == tile.Healing {
			l.Tiles++
			l.Work += h.perSecond(s.Work)
		}
	}
	return l
}

// perSecond is what ticks of so much work take in a second.
func (h *Host) perSecond(work time.Duration) time.Duration {
	return time.Duration(float64(work) / h.cfg.Tile.TickInterval.Seconds())
}

// Rebalance hands tiles over to other hosts while this host has more to do than they have, until ctx ends; then it
// returns nil. A hand-over that has begun goes on. It looks about once in every.
//
// loads returns the load of each living host, by its contact, this host included, as far as this process knows;
// without this host in it nothing is handed over. It may be late, and work that is not known is zero. A host weighs
// what its tiles' ticks take, and a millisecond a second for each tile. At each look all hosts make the same plan: the
// heaviest gives the lightest one of its tiles, an average one, until no host that gives weighs one and a half such
// tiles more than the lightest, and a tenth more. Of its own part of the plan this host carries out half, rounded up.
// So hosts that look at the same time do not give what others give, and where loads are late little goes too far. Two
// looks in a row must find the same hosts, and give to the same: a host that has just come, or has just died, causes no
// hand-over for the length of a look, in which followers catch up.
//
// The tiles are those with the fewest events a tick among those that the host has served for three looks: a tile that
// is hotter than all others stays, and what is beside it goes. If a successor refuses a tile, because it is full or
// ending or may not run the tile, or does not answer, the tile stays, and this host gives that one nothing for ten
// looks. Host.Stats counts both.
//
// Errors: a *fence.ArgumentError if every is not positive or loads is nil.
func (h *Host) Rebalance(ctx context.Context, every time.Duration, loads func() map[string]route.Load) error {
	switch {
	case every <= 0:
		return &fence.ArgumentError{Field: "every", Value: every, Want: "a time between two looks"}
	case loads == nil:
		return &fence.ArgumentError{Field: "loads", Value: nil, Want: "a function that returns the load of each host"}
	}
	b := &balancing{host: h, every: every, refused: map[string]time.Time{}}
	for wait.For(ctx, every/2+rand.N(every)) {
		b.look(ctx, loads())
	}
	return nil
}

// Stats counts what a host has done beside running its tiles.
type Stats struct {
	Rebalanced      uint64 // tiles that Rebalance has handed to hosts with less to do
	RebalanceFailed uint64 // hand-overs of Rebalance after which the tile stayed
}

// Stats returns the host's counts.
func (h *Host) Stats() Stats {
	return Stats{Rebalanced: h.rebalanced.Load(), RebalanceFailed: h.rebalanceFailed.Load()}
}

// balancing is one call of Rebalance.
type balancing struct {
	host  *Host
	every time.Duration

	mu      sync.Mutex
	refused map[string]time.Time // when a host has refused a tile

	hosts []string       // that the last look found
	plan  map[string]int // and what it was to give
}

// look hands tiles over to the successors that this look and the last agree on.
func (b *balancing) look(ctx context.Context, loads map[string]route.Load) {
	h := b.host
	if _, known := loads[h.contact]; !known {
		b.plan = nil
		return
	}
	all := h.Status()
	loads = maps.Clone(loads)
	loads[h.contact] = h.loadOf(all)
	hosts := slices.Sorted(maps.Keys(loads))
	maps.DeleteFunc(loads, func(contact string, _ route.Load) bool {
		return b.resting(b.refused[contact], refusedLooks)
	})
	plan, last := gifts(h.contact, loads), b.plan
	same := slices.Equal(hosts, b.hosts)
	b.hosts, b.plan = hosts, plan
	if !same {
		return
	}
	movable := slices.DeleteFunc(all, func(s tile.Status) bool {
		return s.State != tile.Serving || s.Pending || b.resting(s.Since, restLooks)
	})
	// Where least happens the fewest players notice the hand-over.
	slices.SortFunc(movable, func(x, y tile.Status) int { return cmp.Compare(x.Heat, y.Heat) })
	var successors sync.WaitGroup
	for _, to := range slices.Sorted(maps.Keys(plan)) {
		if last[to] == 0 {
			continue
		}
		n := min((plan[to]+1)/2, len(movable))
		some := movable[:n]
		movable = movable[n:]
		successors.Go(func() { b.giveAll(ctx, some, to, loads) })
	}
	successors.Wait()
}

// giveAll hands tiles over to one host: the first alone, which it may refuse, then several beside each other.
func (b *balancing) giveAll(ctx context.Context, tiles []tile.Status, to string, loads map[string]route.Load) {
	var beside errgroup.Group
	beside.SetLimit(givesAtOnce)
	for i := range tiles {
		if i <= 1 {
			_ = beside.Wait()
		}
		b.mu.Lock()
		refuses := b.resting(b.refused[to], 1)
		b.mu.Unlock()
		if refuses {
			break
		}
		beside.Go(func() error { b.give(ctx, tiles[i].Tile, to, loads); return nil })
	}
	_ = beside.Wait()
}

// resting reports whether something that happened then is fewer than so many looks ago.
func (b *balancing) resting(then time.Time, looks int) bool {
	return time.Since(then) < time.Duration(looks)*b.every
}

// give hands a tile over.
func (b *balancing) give(ctx context.Context, id fence.TileID, to string, loads map[string]route.Load) {
	h, log := b.host, b.host.cfg.Tile.Logger
	err := h.Drain(ctx, id, to)
	switch {
	case err == nil:
		h.rebalanced.Add(1)
		log.Info("tile handed to a host with less to do", "tile", id, "successor", to, "load", loads[h.contact],
			"successor_load", loads[to])
	case ctx.Err() != nil, errors.Is(err, tile.ErrRedirect):
		// The host ends, or the tile went elsewhere.
	default:
		b.mu.Lock()
		b.refused[to] = time.Now()
		b.mu.Unlock()
		h.rebalanceFailed.Add(1)
		log.Warn("tile was not handed to a host with less to do; it stays", "tile", id, "successor", to, "error", err)
	}
}

// party is a host in a plan.
type party struct {
	contact string
	weight  time.Duration
	each    time.Duration // an average tile
	tiles   int
}

// gifts is how many tiles self gives to whom, by the plan that all hosts make of these loads. See Rebalance.
func gifts(self string, loads map[string]route.Load) map[string]int {
	givers := make([]*party, 0, len(loads))
	for contact, l := range loads {
		p := &party{contact: contact, weight: weight(l), tiles: l.Tiles}
		if p.tiles > 0 {
			p.each = p.weight / time.Duration(p.tiles)
		}
		givers = append(givers, p)
	}
	takers := slices.Clone(givers)
	order := func(x, y *party) int {
		return cmp.Or(cmp.Compare(x.weight, y.weight), cmp.Compare(y.contact, x.contact))
	}
	plan := map[string]int{}
	for moves := 0; len(givers) > 0 && moves < maxPlan; {
		from, to := slices.MaxFunc(givers, order), slices.MinFunc(takers, order)
		if from.tiles == 0 || from.weight-to.weight < max(from.each+from.each/2, from.weight/10) {
			givers = slices.DeleteFunc(givers, func(p *party) bool { return p == from })
			continue
		}
		from.weight, to.weight = from.weight-from.each, to.weight+from.each
		from.tiles--
		moves++
		if from.contact == self {
			plan[to.contact]++
		}
	}
	return plan
}
