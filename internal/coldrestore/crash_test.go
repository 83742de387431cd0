package coldrestore_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// power is what an owner's process runs on. Once it is cut, nothing the process asks for is done, and no answer
// reaches it: that is how a crash looks from outside, and the process itself needs no killing.
type power struct{ cut atomic.Bool }

var errPowerCut = errors.New("power cut")

// through makes a call unless, or whose answer is lost if, the power is cut.
func through[T any](p *power, op string, id fence.TileID, call func() (T, error)) (T, error) {
	var nothing T
	if p.cut.Load() {
		return nothing, &fence.StoreError{Op: op, Tile: id, Outcome: fence.ErrNotApplied, Err: errPowerCut}
	}
	v, err := call()
	if p.cut.Load() {
		return nothing, &fence.StoreError{Op: op, Tile: id, Outcome: fence.ErrUnknownOutcome, Err: errPowerCut}
	}
	return v, err
}

func done(p *power, op string, id fence.TileID, call func() error) error {
	_, err := through(p, op, id, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

type poweredAuthority struct {
	fence.Authority
	*power
}

func (a poweredAuthority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return through(a.power, "claim", c.Tile, func() (fence.Grant, error) { return a.Authority.Claim(ctx, c) })
}

func (a poweredAuthority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return through(a.power, "promote", c.Tile, func() (fence.Grant, error) { return a.Authority.Promote(ctx, c) })
}

func (a poweredAuthority) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	return through(a.power, "lookup", id, func() (fence.Grant, error) { return a.Authority.Lookup(ctx, id) })
}

func (a poweredAuthority) Release(ctx context.Context, g fence.Grant) error {
	return done(a.power, "release", g.Tile, func() error { return a.Authority.Release(ctx, g) })
}

type poweredStore struct {
	fence.Store
	*power
}

func (s poweredStore) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	return through(s.power, "commit", c.Tile, func() (fence.Receipt, error) { return s.Store.Commit(ctx, c) })
}

func (s poweredStore) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	return through(s.power, "rebase", r.Tile, func() (fence.Receipt, error) { return s.Store.Rebase(ctx, r) })
}

func (s poweredStore) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	return done(s.power, "snapshot", w.Tile, func() error { return s.Store.SaveSnapshot(ctx, w) })
}

func (s poweredStore) Owner(ctx context.Context, id fence.TileID) (fence.Owner, error) {
	return through(s.power, "owner", id, func() (fence.Owner, error) { return s.Store.Owner(ctx, id) })
}

type poweredLog struct {
	stream.Log
	*power
}

func (l poweredLog) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	return through(l.power, "trim", r.Tile, func() (stream.Trimmed, error) { return l.Log.Trim(ctx, r) })
}

type poweredJournal struct {
	tile.Journal
	*power
}

func (j poweredJournal) Seal(ctx context.Context, id fence.TileID, e fence.Epoch) error {
	return done(j.power, "seal", id, func() error { return j.Journal.Seal(ctx, id, e) })
}

func (j poweredJournal) Append(ctx context.Context, id fence.TileID, e fence.Entry) error {
	return done(j.power, "append", id, func() error { return j.Journal.Append(ctx, id, e) })
}

func (j poweredJournal) Base(ctx context.Context, id fence.TileID, s fence.Snapshot) error {
	return done(j.power, "put", id, func() error { return j.Journal.Base(ctx, id, s) })
}
