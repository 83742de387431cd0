package tilehost

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/h3cell"
	"github.com/tilefence/tilefence/tile"
)

// ErrFull means: the host has a part in Config.MaxTiles tiles already. It is a tile.ErrOverloaded: nothing was begun.
var ErrFull = fmt.Errorf("tile server has no room for another tile: %w", tile.ErrOverloaded)

// Only is a Config.Allow that lets a host run the tiles named, and no others.
func Only(tiles ...fence.TileID) func(fence.TileID) error {
	allowed := make(map[fence.TileID]bool, len(tiles))
	for _, id := range tiles {
		allowed[id] = true
	}
	return func(id fence.TileID) error {
		if !allowed[id] {
			return fmt.Errorf("it is none of the %d that this host may run", len(allowed))
		}
		return nil
	}
}

// allow judges a tile that is to become the host's, or its own. Its error is a *fence.ArgumentError.
func (h *Host) allow(id fence.TileID) error {
	if id == 0 {
		return errNoTile
	}
	if err := h.cfg.Allow(id); err != nil {
		return &fence.ArgumentError{Field: "tile", Value: id,
			Want: "one that this host may run (Config.Allow): " + err.Error()}
	}
	return nil
}

// room reports, as nil, that the host can have n more tiles. h.mu is held.
func (h *Host) room(n int) error {
	if n > 0 && len(h.tiles)+n > h.cfg.MaxTiles {
		return fmt.Errorf("%w: it has %d, of at most %d (Config.MaxTiles)", ErrFull, len(h.tiles), h.cfg.MaxTiles)
	}
	return nil
}

// acceptable judges a hand-over by what the host may run and by what the store says, which a stranger at the port
// cannot make up: the tile is still the giver's, or this host's already.
func (h *Host) acceptable(ctx context.Context, o *tile.Handover) error {
	if err := h.allow(o.Tile); err != nil {
		return err
	}
	now, err := h.seams.Store.Owner(ctx, o.Tile)
	if err != nil {
		return err
	}
	if now.Contact == h.contact || now.Contact == o.From && now.Epoch == o.Epoch {
		return nil
	}
	return &tile.RedirectError{Tile: o.Tile, Epoch: now.Epoch, Contact: now.Contact}
}

var errNoCell = errors.New("it is no cell of H3")

// Cells is a Config.Allow that refuses what is no cell of H3, of any resolution. It asks no library, and so needs no
// cgo.
func Cells(id fence.TileID) error {
	if !h3cell.Valid(uint64(id)) {
		return errNoCell
	}
	return nil
}
