package bridge_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// hungNode is a log one node of which, that of some tiles, hangs in reads: they have the answers of the others, and
// return when their context ends.
type hungNode struct {
	stream.Log
	hung func(fence.TileID) bool
}

func (l hungNode) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	chunks, err := l.Log.Read(ctx, cursors)
	of := func(c stream.Cursor) bool { return l.hung(c.Tile) }
	if err != nil || !slices.ContainsFunc(cursors, of) {
		return chunks, err
	}
	<-ctx.Done()
	for i, c := range cursors {
		if of(c) {
			chunks[i] = stream.Chunk{Tile: c.Tile, Err: &fence.StoreError{Op: "read", Tile: c.Tile,
				Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}}
		}
	}
	return chunks, nil
}

// TestACoordinationNodeThatHangs: the reads of a node that hangs delay tiles of other nodes by their timeout at first,
// and then, while quiet tiles of the node are still to be read, by less than half a second.
func TestACoordinationNodeThatHangs(t *testing.T) {
	for _, hints := range []bool{true, false} {
		inBubble(t, func(t *testing.T, r *rig) {
			var hangs atomic.Bool
			ids := make([]fence.TileID, 100)
			for i := range ids {
				ids[i] = fence.TileID(i + 1)
				r.commit(ids[i], 1, 1)
			}
			log := r.log
			log.Log = hungNode{log.Log, func(id fence.TileID) bool { return id > 10 && hangs.Load() }}
			b, _ := r.run(nil, ids...)
			b.Hints(hints)
			time.Sleep(25 * time.Second)
			hangs.Store(true)
			began := time.Now()
			for range 80 {
				for _, id := range ids[:10] {
					r.commit(id, 1, 1)
				}
				if hints {
					b.Wake(ids[:10]...)
				}
				time.Sleep(500 * time.Millisecond)
			}
			hangs.Store(false)
			// A few passes may be under way, one after another, before the first has found out.
			for _, f := range r.pub.all() {
				if lag := f.at.Sub(f.At); f.Tile <= 10 && f.At.After(began.Add(6*time.Second)) {
					require.LessOrEqual(t, lag, 500*time.Millisecond, "hints %v, after %v", hints, f.At.Sub(began))
				}
			}
			for _, id := range ids[:10] {
				require.Equal(t, upTo(1, 81), r.pub.seqs(id))
			}
			require.NotZero(t, b.Stats().StoreFailures)
		})
	}
}
