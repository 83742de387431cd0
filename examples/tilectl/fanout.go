package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
)

// tierRow is one tile as the broker tier shows it.
type tierRow struct {
	Tile        fence.TileID `json:"tile"`
	Tier        string       `json:"tier"`        // broker, both, or ordinary
	Frames      float64      `json:"frames"`      // a second, on the broker
	Bytes       int64        `json:"bytes"`       // a second, to one subscriber
	Subscribers int          `json:"subscribers"` // processes subscribed on the ordinary tier
	Present     int          `json:"present"`     // processes that say that they hear the tile on the broker
}

// observed is what was heard of one tile.
type observed struct {
	frames, bytes int
	processes     map[uint64]bool
}

// listTiers shows the tiles that the broker carries, or the tiles named. It only listens: neither to a channel of the
// ordinary tier, where it would count as a subscriber that does not hear the broker, nor as a process of the
// deployment.
func listTiers(ctx context.Context, t *tool, args []string) error {
	seen := map[fence.TileID]*observed{}
	of := func(tile fence.TileID) *observed {
		if seen[tile] == nil {
			seen[tile] = &observed{processes: map[uint64]bool{}}
		}
		return seen[tile]
	}
	for _, tile := range tilesOf(args) {
		of(tile)
	}
	var mu sync.Mutex
	named := len(args) > 0
	note := func(tile fence.TileID, change func(*observed)) {
		mu.Lock()
		defer mu.Unlock()
		if !named || seen[tile] != nil {
			change(of(tile))
		}
	}
	listening, cancel := context.WithTimeout(ctx, t.options.during)
	defer cancel()
	if err := t.broker.Observe(listening, natsfanout.Observer{
		Frame:    func(tile fence.TileID, bytes int) { note(tile, func(o *observed) { o.frames++; o.bytes += bytes }) },
		Presence: func(tile fence.TileID, p uint64) { note(tile, func(o *observed) { o.processes[p] = true }) },
	}); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	tiles := slices.Sorted(maps.Keys(seen))
	counts, err := t.audience.Audience(ctx, tiles)
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	rows := make([]tierRow, 0, len(tiles))
	for i, tile := range tiles {
		if err == nil {
			rows = append(rows, tierOf(tile, seen[tile], counts[i], t.options.during))
		}
	}
	return printTable(t, "TILE TIER FRAMES/S BYTES/S SUBSCRIBERS PRESENT", rows, func(r *tierRow) []any {
		return []any{r.Tile, r.Tier, strconv.FormatFloat(r.Frames, 'f', 1, 64), size(r.Bytes), r.Subscribers, r.Present}
	})
}

// tierOf says which tiers carry a tile. A publisher leaves the ordinary tier only when all its subscribers are present
// on the broker.
func tierOf(tile fence.TileID, o *observed, subscribers int, d time.Duration) tierRow {
	r := tierRow{Tile: tile, Frames: float64(o.frames) / d.Seconds(), Bytes: int64(float64(o.bytes) / d.Seconds()),
		Subscribers: subscribers, Present: len(o.processes)}
	switch {
	case o.frames == 0:
		r.Tier = "ordinary"
	case r.Present >= cmp.Or(subscribers, 1):
		r.Tier = "broker"
	default:
		r.Tier = "both"
	}
	return r
}
