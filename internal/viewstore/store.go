// Package viewstore is where the relays' shared views are kept: what a back end of package viewcache does, and one in
// memory.
package viewstore

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
	"github.com/tilefence/tilefence/internal/setting"
)

// Groups is into how many groups, and so slots and channels, the views of all tiles are divided. It is part of the
// wire contract. A group has a sixteenth of the budget for itself.
const Groups = 16

// GroupOf is the group of a tile's views: the upper 4 bits of the product of the tile and 0x9e3779b97f4a7c15, modulo
// 2^64. It is part of the wire contract.
func GroupOf(t fence.TileID) int { return int(uint64(t) * 0x9e3779b97f4a7c15 >> 60) }

// ErrRefused means: the store answered, and what it said was no. Calling it again at once does no harm.
var ErrRefused = errors.New("the store of views refused the call")

// Store keeps encoded views for all relays. Implementations are safe for concurrent use. A Store may
// forget anything at any moment.
//
// Errors: anything, which means that the store cannot be used now; ErrRefused if it answered.
type Store interface {
	// Find returns the newest version of a tile, and counts as a use of the tile. found is false when there is none.
	Find(ctx context.Context, tile fence.TileID) (v Version, found bool, err error)

	// Values returns what a version consists of: its tail and, if wanted, the snapshot that it begins with. What is
	// not there is nil.
	Values(ctx context.Context, tile fence.TileID, v Version, snapshot bool) (base, tail []byte, err error)

	// Lock takes the lock of a tile's rebuild, if the newest version still is the one that the caller has seen (the
	// zero Version: none). The lock ends by itself after lease, which Renew extends. Else it returns the newest
	// version, which counts as a use of the tile.
	Lock(ctx context.Context, tile fence.TileID, seen Version, lease time.Duration) (Grant, error)

	// Renew extends a lock; held is false if it is not held under this token any more.
	Renew(ctx context.Context, tile fence.TileID, token Token, lease time.Duration) (held bool, err error)

	// Unlock ends a lock that is held under this token, and no other.
	Unlock(ctx context.Context, tile fence.TileID, token Token) error

	// Put stores a version, unless there is one that is not older, and ends the writer's lock. It is one step.
	Put(ctx context.Context, p Put) (Verdict, error)

	// Drop removes a version: it was found damaged, or it is not of the tile's history.
	Drop(ctx context.Context, tile fence.TileID, at fence.Position) error

	// Listen calls heard when a version of the tile is stored or confirmed, until stop is called. It does no I/O and
	// does not wait; calls may be lost. heard must not block.
	Listen(tile fence.TileID, heard func(Version)) (stop func())

	// Usage is what the store holds now.
	Usage(ctx context.Context) (Usage, error)
}

// Version names one version of a tile's view: the position at which it ends.
type Version struct {
	At    fence.Position
	Base  fence.Position // of the snapshot that it begins with; zero: the beginning
	Stamp uint64         // when it was last known to be the newest: microseconds by the store's clock
	Age   time.Duration  // since then, by the same clock
}

// Token names one holder of a lock. A later holder has a higher one. Zero is none.
type Token uint64

// Grant is the answer of Lock. Without a token another relay has the lock, or the newest version is another.
type Grant struct {
	Token   Token
	Changed bool
	Newest  Version // if it has changed; zero: there is none any more
}

// Put is a version to be stored.
type Put struct {
	Tile     fence.TileID
	Token    Token
	At, Base fence.Position
	Tail     []byte // nil: nothing followed, the version At is confirmed to be the newest
	Snapshot []byte // nil: the store has that of Base already
}

// Verdict is the result of a Put.
type Verdict uint8

// The verdicts. Only Stored and Confirmed change anything, but for the writer's lock, which each ends but NeedsBase.
const (
	Stored    Verdict = 1
	Confirmed Verdict = 2 // it is the newest version already: its age begins anew
	Older     Verdict = 3 // there is a newer one, or one of the same numbers that was read later
	NeedsBase Verdict = 4 // there is no snapshot of that base: put it again with one
	TooLarge  Verdict = 5 // for the budget of a group
	Gone      Verdict = 6 // there is nothing to confirm
)

// String returns the verdict's name in lower case.
func (v Verdict) String() string {
	return enum.Name(v, "verdict", "stored", "confirmed", "older", "needs base", "too large", "gone")
}

// LogValue implements slog.LogValuer with the form of String.
func (v Verdict) LogValue() slog.Value { return slog.StringValue(v.String()) }

// ValueCost is how many bytes a value counts besides its own: its name, and its places in a store's lists. Without it
// a world of many small tiles would fill a server long before it fills the budget.
const ValueCost = 256

// Usage is viewcache.Usage.
type Usage struct {
	Bytes   int64 // of values, with ValueCost for each
	Tiles   int   // that have a version
	Old     int   // values of superseded versions within their grace
	Evicted int   // values removed for want of room
}

// Limits bound what a Store keeps, as redisviewcache.New says.
type Limits struct {
	Budget int64         // bytes; a group has a sixteenth of it, and a version a quarter of that at most
	Grace  time.Duration // how long a superseded version stays
}

const (
	defaultBudget = 256 << 20
	defaultGrace  = time.Minute
)

// WithDefaults returns a copy with every field set, for implementations of Store; nil is the zero value. A
// *fence.ArgumentError names a field that is out of range.
func (l *Limits) WithDefaults() (Limits, error) {
	out := setting.Of(l)
	out.Budget = cmp.Or(out.Budget, defaultBudget)
	var s setting.Check
	s.Refuse(out.Budget < 0 || out.Budget > fence.MaxNumber, "Budget", out.Budget, "bytes, or zero for the default")
	s.Duration("Grace", &out.Grace, defaultGrace)
	return out, s.Err
}

// Before reports whether p is an earlier version than q: epochs first, since a superseded owner may have counted on.
func Before(p, q fence.Position) bool {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Seq, q.Seq)) < 0
}
