package main

import (
	"context"
	"slices"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// Ownership implements spectator.API: who owns each tile, since when, at which epoch, and how often it moved.
// What is in force comes from the owner hashes, the epochs' history from the authority, and how it goes from
// the processors of this process.
func (t *tower) Ownership(ctx context.Context) ([]spectator.Ownership, error) {
	grants, err := t.grants(ctx)
	if err != nil {
		return nil, err
	}
	var all []spectator.Ownership
	for _, id := range t.world {
		o, err := t.backends.Store.Owner(ctx, id)
		if err != nil {
			return nil, err
		}
		g := grants[id]
		row := spectator.Ownership{Tile: id, Mints: g.Mints}
		if o.Present() {
			row.Owner, row.Epoch, row.Position, row.Seq, row.Tick = o.Contact, o.Epoch, o.Position.String(), o.Position.Seq, o.Tick
		}
		if g.Epoch == o.Epoch && !g.Minted.IsZero() { // the authority may be ahead: somebody has claimed the tile and is on his way
			row.Since = g.Minted.UnixMilli()
		}
		for _, h := range t.hosts.all() {
			switch s := h.status(id); {
			case h.Contact() == o.Contact:
				row.State, row.Heat = s.State.String(), s.Heat
			case s.State == tile.Following && h.line.is(flowing):
				row.Followers++
			}
		}
		all = append(all, row)
	}
	return all, nil
}

// grants reads the authority's records of the world's tiles, which lie between the lowest and the highest.
func (t *tower) grants(ctx context.Context) (map[fence.TileID]fence.Grant, error) {
	grants := map[fence.TileID]fence.Grant{}
	after, last := slices.Min(t.world)-1, slices.Max(t.world)
	for {
		page, err := t.backends.Authority.List(ctx, after, fence.MaxList)
		if err != nil {
			return nil, err
		}
		for _, g := range page {
			grants[g.Tile], after = g, g.Tile
		}
		if len(page) < fence.MaxList || after >= last {
			return grants, nil
		}
	}
}
