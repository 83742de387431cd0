// Package redisstream reads what redisfence committed: stream.Log on Redis 7.
//
//	store, err := redisfence.New(client, nil)
//	log := redisstream.New(store, client)
//
// Reads of many tiles go out as one pipeline a node. Watermarks and trims are functions of the library
// that redisfence loads, so that a trim computes its floor and acts on it in one step. The client may be
// another one than the store's, with read timeouts or an ACL user of its own. A Log is safe for
// concurrent use. To test against it, use memstream, which passes the same conformance suite.
package redisstream

import (
	"context"
	"math"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/stream"
)

// Log is a stream.Log on Redis.
type Log struct {
	functions *redisfence.Store
	client    redis.UniversalClient
}

var (
	_ stream.Log        = (*Log)(nil)
	_ fence.WorldKeeper = (*Log)(nil)
)

// New returns a log that reads through client and calls the library's functions through functions, in whose world it
// is. It does no I/O.
func New(functions *redisfence.Store, client redis.UniversalClient) *Log {
	return &Log{functions: functions, client: client}
}

// EnterWorld implements fence.WorldKeeper, through the log's own client.
func (l *Log) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, l.client, l.functions.World(), w)
}

// Read implements stream.Log: one pipeline a node, per tile the entries and then the owner hash.
func (l *Log) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	if len(cursors) == 0 {
		return nil, nil
	}
	for _, c := range cursors {
		if err := guard.Call(ctx, "read", c.Tile); err != nil {
			return nil, err
		}
	}
	pipe := l.client.Pipeline()
	entries := make([]*redis.XMessageSliceCmd, len(cursors))
	owners := make([]*redis.SliceCmd, len(cursors))
	for i, c := range cursors {
		limit := c.Limit
		if limit <= 0 {
			limit = stream.DefaultLimit
		}
		k := l.functions.World().Keys(c.Tile)
		entries[i] = pipe.XRangeN(ctx, k.Stream, startAfter(c.After), "+", int64(limit))
		owners[i] = pipe.HMGet(ctx, k.Owner, redislib.OwnerFields...)
	}
	_, execErr := pipe.Exec(ctx)
	chunks := make([]stream.Chunk, len(cursors))
	failed := 0
	if execErr != nil {
		failed = l.refuse(ctx, chunks, cursors, entries, owners)
	}
	for i, c := range cursors {
		if chunks[i].Err != nil {
			continue
		}
		chunks[i] = chunkOf(c.Tile, entries[i].Val(), owners[i].Val())
		if chunks[i].Err == nil && ownerIsOlder(&chunks[i]) {
			chunks[i].Owner, chunks[i].Err = l.functions.Owner(ctx, c.Tile)
		}
	}
	if failed == len(cursors) {
		return nil, &fence.StoreError{Op: "read", Tile: cursors[0].Tile, Outcome: fence.ErrNotApplied, Err: execErr}
	}
	return chunks, nil
}

// refuse sets the chunks of tiles that could not be read, and returns of how many the store did not answer.
func (l *Log) refuse(
	ctx context.Context, chunks []stream.Chunk, cursors []stream.Cursor, entries []*redis.XMessageSliceCmd,
	owners []*redis.SliceCmd,
) (failed int) {
	reads := make([]tileRead, len(cursors))
	for i, c := range cursors {
		k := l.functions.World().Keys(c.Tile)
		reads[i] = readOf(c.Tile, keyed{k.Stream, entries[i]}, keyed{k.Owner, owners[i]})
	}
	failed = l.explain(ctx, "read", reads)
	for i, r := range reads {
		if r.err != nil {
			chunks[i] = stream.Chunk{Tile: cursors[i].Tile, Err: r.err}
		}
	}
	return failed
}

// startAfter is the stream ID from which to read what comes after an entry, malformed IDs included.
func startAfter(seq fence.Seq) string {
	if seq == math.MaxUint64 {
		return "18446744073709551615-18446744073709551615"
	}
	return strconv.FormatUint(uint64(seq)+1, 10)
}

// ownerIsOlder reports whether the owner hash was read before the entries, which happens when the slot
// moves meanwhile and the client follows it with one of the two commands.
func ownerIsOlder(c *stream.Chunk) bool {
	n := len(c.Entries)
	return n > 0 && c.Owner.Present() && c.Owner.Epoch < c.Entries[n-1].Epoch
}

func chunkOf(tile fence.TileID, messages []redis.XMessage, owner []any) stream.Chunk {
	c := stream.Chunk{Tile: tile}
	if c.Owner, c.Err = redislib.ParseOwner(tile, owner); c.Err != nil {
		return c
	}
	c.Entries = make([]fence.Entry, 0, len(messages))
	for i := range messages {
		e, poison := parseEntry(tile, &messages[i])
		if poison != nil {
			c.Poison = poison
			break
		}
		c.Entries = append(c.Entries, e)
	}
	return c
}

// Snapshot implements stream.Log.
func (l *Log) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	if err := guard.Call(ctx, "read snapshot", tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	key := l.functions.World().Keys(tile).Snapshot
	read := l.client.HGetAll(ctx, key)
	if err := l.explainOne(ctx, "read snapshot", readOf(tile, keyed{key, read})); err != nil {
		return fence.Snapshot{}, false, err
	}
	m := read.Val()
	if len(m) == 0 {
		return fence.Snapshot{}, false, nil
	}
	s, err := parseSnapshot(tile, m)
	if err != nil {
		return fence.Snapshot{}, false, err
	}
	return s, true, nil
}

// Last implements stream.Log.
func (l *Log) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	if err := guard.Call(ctx, "read position", tile); err != nil {
		return fence.Position{}, err
	}
	k := l.functions.World().Keys(tile)
	pipe := l.client.Pipeline()
	owner := pipe.HMGet(ctx, k.Owner, redislib.OwnerFields...)
	tail := pipe.XRevRangeN(ctx, k.Stream, "+", "-", 1)
	snap := pipe.HMGet(ctx, k.Snapshot, "epoch", "seq", "chain")
	_, _ = pipe.Exec(ctx) // each read has its own error
	read := readOf(tile, keyed{k.Owner, owner}, keyed{k.Stream, tail}, keyed{k.Snapshot, snap})
	if err := l.explainOne(ctx, "read position", read); err != nil {
		return fence.Position{}, err
	}
	o, err := redislib.ParseOwner(tile, owner.Val())
	if err != nil || o.Present() {
		return o.Position, err
	}
	at, err := parsePositionFields(tile, snap.Val())
	if err != nil {
		return fence.Position{}, err
	}
	return lastOf(tile, o, tail.Val(), at)
}
