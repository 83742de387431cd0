package tilehost

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// restLooks is how many looks of Rebalance a tile stays where it is after it has moved, and a host is not asked after
// it has refused a tile.
const restLooks = 10

// Rebalance hands tiles over to other hosts while this host serves more than they do, until ctx ends; then it returns
// nil. A hand-over that has begun goes on. It looks about once in every, and hands at most one tile over at each look.
//
// loads returns how many tiles each living host serves, by its contact, this host included, as far as this process
// knows; without this host in it nothing is handed over. The numbers may be late. So that hosts which look at the same
// time do not all give to the same one, each looks for the one it is paired with: the fullest host with the emptiest,
// the second fullest with the second emptiest, and so on. The other must have at least two tiles fewer, and a tenth
// fewer; two looks in a row must find the same, among the same hosts. So a host that has just come, or has just died,
// causes no hand-over for the length of a look, in which followers catch up.
//
// The tile is the one with the fewest events a tick among those that the host has served for ten looks. If the
// successor refuses it, because it is full or ending or may not run the tile, or does not answer, the tile stays, and
// this host gives that one nothing for ten looks. Host.Stats counts both.
//
// Errors: a *fence.ArgumentError if every is not positive or loads is nil.
func (h *Host) Rebalance(ctx context.Context, every time.Duration, loads func() map[string]int) error {
	switch {
	case every <= 0:
		return &fence.ArgumentError{Field: "every", Value: every, Want: "a time between two looks"}
	case loads == nil:
		return &fence.ArgumentError{Field: "loads", Value: nil, Want: "a function that counts the tiles of hosts"}
	}
	b := &balancing{host: h, rest: restLooks * every, refused: map[string]time.Time{}}
	for wait.For(ctx, every/2+rand.N(every)) {
		b.look(ctx, loads())
	}
	return nil
}

// Stats counts what a host has done beside running its tiles.
type Stats struct {
	Rebalanced      uint64 // tiles that Rebalance has handed to hosts with fewer
	RebalanceFailed uint64 // hand-overs of Rebalance after which the tile stayed
}

// Stats returns the host's counts.
func (h *Host) Stats() Stats {
	return Stats{Rebalanced: h.rebalanced.Load(), RebalanceFailed: h.rebalanceFailed.Load()}
}

// balancing is one call of Rebalance.
type balancing struct {
	host    *Host
	rest    time.Duration
	refused map[string]time.Time // when a host has refused a tile

	hosts []string // that the last look found
	found string   // the successor that it found
}

// look hands a tile over if this look and the last agree on its successor.
func (b *balancing) look(ctx context.Context, loads map[string]int) {
	h := b.host
	if _, known := loads[h.contact]; !known {
		b.found = ""
		return
	}
	serving := slices.DeleteFunc(h.Status(), func(s tile.Status) bool {
		return s.State != tile.Serving && s.State != tile.Healing
	})
	loads = maps.Clone(loads)
	loads[h.contact] = len(serving)
	hosts := slices.Sorted(maps.Keys(loads))
	maps.DeleteFunc(loads, func(contact string, _ int) bool { return time.Since(b.refused[contact]) < b.rest })
	to := successor(h.contact, loads)
	agreed := to != "" && to == b.found && slices.Equal(hosts, b.hosts)
	b.hosts, b.found = hosts, to
	if !agreed {
		return
	}
	movable := slices.DeleteFunc(serving, func(s tile.Status) bool {
		return s.State != tile.Serving || s.Pending || time.Since(s.Since) < b.rest
	})
	if len(movable) == 0 {
		return
	}
	// Where least happens the fewest players notice the hand-over.
	coldest := slices.MinFunc(movable, func(x, y tile.Status) int { return cmp.Compare(x.Heat, y.Heat) })
	b.give(ctx, coldest.Tile, to, loads)
}

// give hands a tile over.
func (b *balancing) give(ctx context.Context, id fence.TileID, to string, loads map[string]int) {
	h, log := b.host, b.host.cfg.Tile.Logger
	err := h.Drain(ctx, id, to)
	switch {
	case err == nil:
		h.rebalanced.Add(1)
		log.Info("tile handed to a host with fewer", "tile", id, "successor", to, "tiles", loads[h.contact],
			"successor_tiles", loads[to])
	case ctx.Err() != nil, errors.Is(err, tile.ErrRedirect):
		// The host ends, or the tile went elsewhere.
	default:
		b.refused[to] = time.Now()
		h.rebalanceFailed.Add(1)
		log.Warn("tile was not handed to a host with fewer; it stays", "tile", id, "successor", to, "error", err)
	}
}

// successor is the host that self gives a tile to; empty: none. See Rebalance.
func successor(self string, loads map[string]int) string {
	fullest := slices.SortedFunc(maps.Keys(loads), func(x, y string) int {
		return cmp.Or(cmp.Compare(loads[y], loads[x]), cmp.Compare(x, y))
	})
	to := fullest[len(fullest)-1-slices.Index(fullest, self)]
	if loads[self]-loads[to] < max(2, loads[self]/10) {
		return ""
	}
	return to
}
