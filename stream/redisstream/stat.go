package redisstream

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/internal/fields"
)

var _ stream.Inspector = (*Log)(nil)

// snapshotHeadFields are a snapshot's fields but for the blob and its checksum.
var snapshotHeadFields = []string{"epoch", "seq", "chain", "tick", "contact", "at"}

// measuredNodes is how much of a stream's memory is measured rather than guessed; see trim.lua.
const measuredNodes = 16384

// statReads are the reads that describe one tile.
type statReads struct {
	owner, snapshot *redis.SliceCmd
	first, last     *redis.XMessageSliceCmd
	length, dead    *redis.IntCmd
	memory, size    *redis.IntCmd
	marks           *redis.MapStringStringCmd
}

// Stat implements stream.Inspector: one pipeline a node. Memory is measured as a trim measures it.
func (l *Log) Stat(ctx context.Context, tiles []fence.TileID) ([]stream.Stat, error) {
	if len(tiles) == 0 {
		return nil, nil
	}
	for _, t := range tiles {
		if err := guard.Call(ctx, "stat", t); err != nil {
			return nil, err
		}
	}
	pipe := l.client.Pipeline()
	reads := make([]statReads, len(tiles))
	for i, t := range tiles {
		k := l.functions.World().Keys(t)
		reads[i] = statReads{
			owner:    pipe.HMGet(ctx, k.Owner, redislib.OwnerFields...),
			snapshot: pipe.HMGet(ctx, k.Snapshot, snapshotHeadFields...),
			size:     pipe.HStrLen(ctx, k.Snapshot, "blob"),
			first:    pipe.XRangeN(ctx, k.Stream, "-", "+", 1),
			last:     pipe.XRevRangeN(ctx, k.Stream, "+", "-", 1),
			length:   pipe.XLen(ctx, k.Stream),
			dead:     pipe.XLen(ctx, k.Dead),
			memory:   pipe.MemoryUsage(ctx, k.Stream, measuredNodes),
			marks:    pipe.HGetAll(ctx, k.Marks),
		}
	}
	_, execErr := pipe.Exec(ctx) // each read has its own error
	stats := make([]stream.Stat, len(tiles))
	results := make([]tileRead, len(tiles))
	for i, t := range tiles {
		results[i] = reads[i].result(t, l.functions.World().Keys(t))
	}
	failed := l.explain(ctx, "stat", results)
	for i, t := range tiles {
		if stats[i] = (stream.Stat{Tile: t, Owner: fence.Owner{Tile: t}, Err: results[i].err}); results[i].err == nil {
			stats[i] = reads[i].stat(t)
		}
	}
	if failed == len(tiles) && execErr != nil {
		return nil, &fence.StoreError{Op: "stat", Tile: tiles[0], Outcome: fence.ErrNotApplied, Err: execErr}
	}
	return stats, nil
}

// result is whether all of it could be read.
func (r *statReads) result(tile fence.TileID, k fence.Keys) tileRead {
	return readOf(tile, keyed{k.Owner, r.owner}, keyed{k.Snapshot, r.snapshot}, keyed{k.Snapshot, r.size},
		keyed{k.Stream, r.first}, keyed{k.Stream, r.last}, keyed{k.Stream, r.length}, keyed{k.Dead, r.dead},
		keyed{k.Stream, r.memory}, keyed{k.Marks, r.marks})
}

func (r *statReads) stat(tile fence.TileID) stream.Stat {
	st := stream.Stat{Tile: tile}
	st.Entries, st.DeadLetters, st.Memory = int(r.length.Val()), int(r.dead.Val()), r.memory.Val()
	m := parseMarks(tile, r.marks.Val())
	st.Marks, st.Trimmed = m.Marks, m.Trimmed
	for _, m := range r.first.Val() {
		st.First = sequenceOf(m.ID)
	}
	var damage [3]error
	st.Owner, damage[0] = redislib.ParseOwner(tile, r.owner.Val())
	if v := r.snapshot.Val(); v[0] != nil {
		st.HasSnapshot = true
		st.Snapshot, damage[1] = parseSnapshotHead(tile, v)
		st.Snapshot.Size = int(r.size.Val())
	}
	st.Last, damage[2] = lastOf(tile, st.Owner, r.last.Val(), st.Snapshot.Position)
	st.Err = errors.Join(damage[:]...)
	return st
}

// parseSnapshotHead reads the values of snapshotHeadFields.
func parseSnapshotHead(tile fence.TileID, v []any) (stream.SnapshotHead, error) {
	values := make(map[string]any, len(v))
	for i, name := range snapshotHeadFields {
		values[name] = v[i]
	}
	f := fields.Reader{Field: texts(values)}
	s := stream.SnapshotHead{Tick: fence.Tick(f.Number("tick")), Contact: f.Text("contact"),
		Taken: fence.FromMillis(int64(f.Number("at")))}
	s.Epoch, s.Seq, s.Chain = fence.Epoch(f.Number("epoch")), fence.Seq(f.Number("seq")), f.Chain("chain")
	if f.Err != nil {
		return s, &fence.CorruptError{Tile: tile, What: "snapshot", At: s.Position, Detail: f.Err.Error()}
	}
	return s, nil
}

// lastOf is where a tile's history ends: what the owner hash vouches for or, without one, the later of the
// stream's last entry and the snapshot.
func lastOf(tile fence.TileID, o fence.Owner, tail []redis.XMessage, snapshot fence.Position) (fence.Position, error) {
	if o.Present() {
		return o.Position, nil
	}
	var last fence.Position
	for i := range tail {
		e, poison := parseEntry(tile, &tail[i])
		if poison != nil {
			return fence.Position{}, poison.Damage()
		}
		last = e.Position
	}
	if snapshot.Seq > last.Seq {
		last = snapshot
	}
	return last, nil
}
