package simulation

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// durable is one client's way to the durable store, which loses nothing that it has taken.
type durable struct {
	checkpoint.Backend
	host   *host
	silent *atomic.Uint64 // the tile of whose journal it takes nothing
}

// at runs f at the store. f may run long after at has returned, when no caller reads its result any more.
func (d *durable) at(ctx context.Context, op string, tile fence.TileID, f func(context.Context) error) error {
	refusal := new(error)
	err := d.host.ask(ctx, op, tile, func() (bool, error) {
		*refusal = f(context.Background())
		return true, nil
	})
	if err != nil {
		return err
	}
	return *refusal
}

// Seal implements checkpoint.JournalStore.
func (d *durable) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	return d.at(ctx, "seal", tile, func(ctx context.Context) error { return d.Backend.Seal(ctx, tile, epoch) })
}

// Base implements checkpoint.JournalStore.
func (d *durable) Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	return d.at(ctx, "base", tile, func(ctx context.Context) error { return d.Backend.Base(ctx, tile, s) })
}

// Append implements checkpoint.JournalStore.
func (d *durable) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	e.Payload, e.Frame = bytes.Clone(e.Payload), bytes.Clone(e.Frame) // it may arrive late
	return d.at(ctx, "append", tile, func(ctx context.Context) error {
		if fence.TileID(d.silent.Load()) == tile {
			return &fence.StoreError{Op: "append", Tile: tile, Outcome: fence.ErrNotApplied, Err: errNoAnswer}
		}
		return d.Backend.Append(ctx, tile, e)
	})
}

// Truncate implements checkpoint.JournalStore.
func (d *durable) Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error {
	return d.at(ctx, "truncate", tile, func(ctx context.Context) error { return d.Backend.Truncate(ctx, tile, upTo) })
}

// Put implements checkpoint.Store.
func (d *durable) Put(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	return d.at(ctx, "put", tile, func(ctx context.Context) error { return d.Backend.Put(ctx, tile, s) })
}

// Tail implements checkpoint.JournalStore.
func (d *durable) Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error) {
	tail := new([]fence.Entry)
	err := d.at(ctx, "tail", tile, func(ctx context.Context) (err error) {
		*tail, err = d.Backend.Tail(ctx, tile, after)
		return err
	})
	if err != nil {
		return nil, unread(err)
	}
	return *tail, nil
}

// patience is how long a read of the durable store waits for an answer, before it is sent again.
const patience = 300 * time.Millisecond

// Get implements checkpoint.Store. The store's client sends a read again, as long as its caller waits.
func (d *durable) Get(ctx context.Context, tile fence.TileID) (s fence.Snapshot, found bool, err error) {
	for again := true; again; again = err != nil && ctx.Err() == nil && d.host.awake() == nil {
		s, found, err = d.get(ctx, tile)
	}
	return s, found, err
}

func (d *durable) get(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, s := new(bool), new(fence.Snapshot)
	err := d.at(ctx, "get", tile, func(ctx context.Context) (err error) {
		*s, *found, err = d.Backend.Get(ctx, tile)
		return err
	})
	if err != nil {
		return fence.Snapshot{}, false, unread(err)
	}
	return *s, *found, nil
}
