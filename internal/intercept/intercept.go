// Package intercept passes the calls that a process makes to its back ends through one function, which may fail them
// before they are made or lose their answer: for tests and for chaos.
package intercept

import (
	"context"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// To is the back end that is called.
type To uint8

// The back ends.
const (
	Authority To = iota + 1
	Store
	Log
)

// Call is one call.
type Call struct {
	To    To
	Op    string       // the method in lower case, such as "commit"
	Tile  fence.TileID // of a call about several tiles, the first
	Write bool         // what it does stays done if its answer is lost
}

// Func makes a call by do, or fails in its place. The caller gets the error that it returns, and no answer with it.
type Func func(ctx context.Context, c Call, do func(context.Context) error) error

// with makes a call that takes one argument.
func with[A, T any](
	ctx context.Context, f Func, c Call, call func(context.Context, A) (T, error), arg A,
) (answer T, err error) {
	var got T
	if err = f(ctx, c, func(ctx context.Context) (err error) { got, err = call(ctx, arg); return err }); err == nil {
		answer = got
	}
	return answer, err
}

// AuthorityOf intercepts the calls about one tile.
func AuthorityOf(a fence.Authority, f Func) fence.Authority { return authority{a, f} }

type authority struct {
	fence.Authority
	f Func
}

func (a authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return with(ctx, a.f, Call{Authority, "claim", c.Tile, true}, a.Authority.Claim, c)
}

func (a authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return with(ctx, a.f, Call{Authority, "promote", c.Tile, true}, a.Authority.Promote, c)
}

func (a authority) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	return with(ctx, a.f, Call{Authority, "lookup", id, false}, a.Authority.Lookup, id)
}

func (a authority) Release(ctx context.Context, g fence.Grant) error {
	return a.f(ctx, Call{Authority, "release", g.Tile, true},
		func(ctx context.Context) error { return a.Authority.Release(ctx, g) })
}

// StoreOf intercepts all calls.
func StoreOf(s fence.Store, f Func) fence.Store { return store{s, f} }

type store struct {
	fence.Store
	f Func
}

func (s store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	return with(ctx, s.f, Call{Store, "commit", c.Tile, true}, s.Store.Commit, c)
}

func (s store) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	return with(ctx, s.f, Call{Store, "rebase", r.Tile, true}, s.Store.Rebase, r)
}

func (s store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	return s.f(ctx, Call{Store, "snapshot", w.Tile, true},
		func(ctx context.Context) error { return s.Store.SaveSnapshot(ctx, w) })
}

func (s store) Owner(ctx context.Context, id fence.TileID) (fence.Owner, error) {
	return with(ctx, s.f, Call{Store, "owner", id, false}, s.Store.Owner, id)
}

func (s store) Confirm(ctx context.Context, id fence.TileID, at fence.Position) error {
	return s.f(ctx, Call{Store, "confirm", id, false},
		func(ctx context.Context) error { return s.Store.Confirm(ctx, id, at) })
}

// LogOf intercepts the calls that read, mark and trim.
func LogOf(l stream.Log, f Func) stream.Log { return log{l, f} }

type log struct {
	stream.Log
	f Func
}

func (l log) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	c := Call{To: Log, Op: "read"}
	if len(cursors) > 0 {
		c.Tile = cursors[0].Tile
	}
	return with(ctx, l.f, c, l.Log.Read, cursors)
}

func (l log) Snapshot(ctx context.Context, id fence.TileID) (s fence.Snapshot, found bool, err error) {
	s, err = with(ctx, l.f, Call{Log, "snapshot", id, false},
		func(ctx context.Context, id fence.TileID) (s fence.Snapshot, err error) {
			s, found, err = l.Log.Snapshot(ctx, id)
			return s, err
		}, id)
	return s, found && err == nil, err
}

func (l log) Last(ctx context.Context, id fence.TileID) (fence.Position, error) {
	return with(ctx, l.f, Call{Log, "last", id, false}, l.Log.Last, id)
}

func (l log) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	answers, err := with(ctx, l.f, Call{To: Log, Op: "mark", Write: true},
		func(ctx context.Context, w []stream.MarkWrite) ([]error, error) { return l.Log.Mark(ctx, w), nil }, writes)
	if err != nil {
		return slices.Repeat([]error{err}, len(writes))
	}
	return answers
}

func (l log) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	return with(ctx, l.f, Call{To: Log, Op: "marks"}, l.Log.Marks, tiles)
}

func (l log) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	return with(ctx, l.f, Call{Log, "trim", r.Tile, true}, l.Log.Trim, r)
}
