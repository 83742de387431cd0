package tilehost

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
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

// pentagons are the base cells of H3 that have five neighbours, a bit for each.
var pentagons = func() (set [2]uint64) {
	for _, c := range []uint64{4, 14, 24, 38, 49, 58, 63, 72, 83, 97, 107, 117} {
		set[c/64] |= 1 << (c % 64)
	}
	return set
}()

// Cells is a Config.Allow that refuses what is no cell of H3, of any resolution. It asks no library, and so needs no
// cgo. Bits of a cell, from the highest: 1 zero, 4 mode (1), 3 zero, 4 resolution, 7 base cell (below 122), and 15
// digits of 3 bits each, of which those beyond the resolution are 7 and all others less. Below a pentagon the first
// digit that is not 0 is not 1.
func Cells(id fence.TileID) error {
	resolution, base := int(id>>52&15), uint64(id>>45&127)
	if id>>56 != 1<<3 || base >= 122 {
		return errNoCell
	}
	pentagon := pentagons[base/64]>>(base%64)&1 == 1
	for r := 1; r <= 15; r++ {
		digit := id >> (3 * (15 - r)) & 7
		switch {
		case (digit == 7) != (r > resolution), pentagon && digit == 1:
			return errNoCell
		case digit != 0:
			pentagon = false
		}
	}
	return nil
}
