// Package guard is what the back ends of stores, logs and fan-outs refuse before they touch anything.
package guard

import (
	"context"

	"github.com/tilefence/tilefence/fence"
)

// Tile refuses the zero tile with a *fence.ArgumentError.
func Tile(t fence.TileID) error {
	if t == 0 {
		return &fence.ArgumentError{Field: "tile", Value: t, Want: "an H3 index, not zero"}
	}
	return nil
}

// Ended refuses a call whose context has ended: a *fence.StoreError with fence.ErrNotApplied.
func Ended(ctx context.Context, op string, t fence.TileID) error {
	if ctx.Err() == nil {
		return nil
	}
	return &fence.StoreError{Op: op, Tile: t, Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
}

// Call refuses the zero tile, and a call whose context has ended.
func Call(ctx context.Context, op string, t fence.TileID) error {
	if err := Tile(t); err != nil {
		return err
	}
	return Ended(ctx, op, t)
}
