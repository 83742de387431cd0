package main

import (
	"context"

	"github.com/tilefence/tilefence/examples/battle/spectator"
)

// Ownership implements spectator.API: who owns each tile, since when, at which epoch, and how often it moved.
// The epoch's history comes from the authority, what is in force from the owner hashes, and how it goes from
// the processors of this process.
func (t *tower) Ownership(ctx context.Context) ([]spectator.Ownership, error) {
	var all []spectator.Ownership
	for _, id := range t.world {
		o, err := t.store.Owner(ctx, id)
		if err != nil {
			return nil, err
		}
		row := spectator.Ownership{Tile: id, Owner: o.Contact, Epoch: o.Epoch, Seq: o.Position.Seq, Tick: o.Tick}
		if o.Present() {
			row.Position = o.Position.String()
		}
		if h := t.hosts.at(o.Contact); h != nil {
			if owned := h.tile(id); owned != nil {
				s := owned.processor.Status()
				row.State, row.Heat = s.State.String(), s.Heat
			}
		}
		all = append(all, row)
	}
	return all, nil
}
