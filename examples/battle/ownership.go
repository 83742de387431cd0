package main

import (
	"context"
	"errors"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultline"
	"github.com/tilefence/tilefence/tile"
)

// Ownership implements spectator.API: who owns each tile, since when, at which epoch, and how often it moved.
// What is in force comes from the owner hashes, the epochs' history from the authority, and how it goes from
// the processors of this process.
func (t *tower) Ownership(ctx context.Context) ([]spectator.Ownership, error) {
	var all []spectator.Ownership
	for _, id := range t.world {
		o, err := t.backends.Store.Owner(ctx, id)
		if err != nil {
			return nil, err
		}
		g, err := t.backends.Authority.Lookup(ctx, id)
		if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
			return nil, err
		}
		row := spectator.Ownership{Tile: id, Mints: g.Mints}
		if o.Present() {
			row.Owner, row.Epoch, row.Position = o.Contact, o.Epoch, o.Position.String()
			row.Seq, row.Tick = o.Position.Seq, o.Tick
		}
		if g.Epoch == o.Epoch && !g.Minted.IsZero() { // the authority may be ahead: the tile is changing hands
			row.Since = g.Minted.UnixMilli()
		}
		for _, h := range t.hosts.all() {
			switch s := h.status(id); {
			case h.Contact() == o.Contact:
				row.State, row.Heat = s.State.String(), s.Heat
			case s.State == tile.Following && h.line.Is(faultline.Flowing):
				row.Followers++
			}
		}
		all = append(all, row)
	}
	return all, nil
}
