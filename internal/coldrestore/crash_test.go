package coldrestore_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/tile"
)

// power is what an owner's process runs on. Once it is cut, nothing the process asks for is done, and no answer
// reaches it: that is how a crash looks from outside, and the process itself needs no killing.
type power struct{ cut atomic.Bool }

var errPowerCut = errors.New("power cut")

// call makes a call unless, or whose answer is lost if, the power is cut.
func (p *power) call(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
	if c.To == intercept.Log && c.Op != "trim" {
		return do(ctx)
	}
	lost := func(outcome error) error {
		return &fence.StoreError{Op: c.Op, Tile: c.Tile, Outcome: outcome, Err: errPowerCut}
	}
	if p.cut.Load() {
		return lost(fence.ErrNotApplied)
	}
	err := do(ctx)
	if p.cut.Load() {
		return lost(fence.ErrUnknownOutcome)
	}
	return err
}

type poweredJournal struct {
	tile.Journal
	*power
}

func (j poweredJournal) Seal(ctx context.Context, id fence.TileID, e fence.Epoch) error {
	return j.call(ctx, intercept.Call{Op: "seal", Tile: id},
		func(ctx context.Context) error { return j.Journal.Seal(ctx, id, e) })
}

func (j poweredJournal) Append(ctx context.Context, id fence.TileID, e fence.Entry) error {
	return j.call(ctx, intercept.Call{Op: "append", Tile: id},
		func(ctx context.Context) error { return j.Journal.Append(ctx, id, e) })
}

func (j poweredJournal) Base(ctx context.Context, id fence.TileID, s fence.Snapshot) error {
	return j.call(ctx, intercept.Call{Op: "put", Tile: id},
		func(ctx context.Context) error { return j.Journal.Base(ctx, id, s) })
}
