package tile_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// oldMaster is a log whose first reads are answered by a node that knows nothing of the tile, as a master
// does that was paused before the tile began, and woke.
type oldMaster struct {
	stream.Log
	before   stream.Log
	reads    atomic.Int32 // still to be answered by the old master
	position bool         // whether it answers Last, too
}

func (o *oldMaster) pick() stream.Log {
	if o.reads.Add(-1) >= 0 {
		return o.before
	}
	return o.Log
}

func (o *oldMaster) Read(ctx context.Context, c []stream.Cursor) ([]stream.Chunk, error) {
	return o.pick().Read(ctx, c)
}

func (o *oldMaster) Snapshot(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
	return o.pick().Snapshot(ctx, id)
}

func (o *oldMaster) Last(ctx context.Context, id fence.TileID) (fence.Position, error) {
	if !o.position {
		return o.Log.Last(ctx, id)
	}
	return o.pick().Last(ctx, id)
}

// A tile has an owner and a history, all of it confirmed. Its next owner has to replay it, also when
// the first nodes it asks know nothing of it.
func TestHistoryIsNotReplacedByAnOwnerThatAskedANodeWithoutIt(t *testing.T) {
	for name, position := range map[string]bool{"of which nothing is known": true,
		"whose owner hash alone is known": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.start("a:1", tile.Config{})
				a.say(t, "", "one")
				a.say(t, "", "two")
				log := &oldMaster{Log: w.log, before: memstream.New(memfence.New()), position: position}
				log.reads.Store(4)
				saved, err := stream.Recover(t.Context(), w.log, testTile)
				require.NoError(t, err)
				b := &runner{rules: &ledgerRules{}}
				b.TileProcessor, err = tile.New(testTile, "b:1",
					tile.Seams{Authority: w.authority, Store: w.store, Log: log,
						Checkpoint: func(context.Context, fence.TileID) (fence.Snapshot, bool, error) {
							return saved.Snapshot, saved.HasSnapshot, nil // the state before the first word
						}}, b.rules, &tile.Config{TakeOver: true})
				require.NoError(t, err)
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				ended := make(chan error, 1)
				go func() { ended <- b.Run(ctx) }()
				b.say(t, "", "three")
				stop()
				require.NoError(t, <-ended)
				assert.Equal(t, []string{"one", "two", "three"}, w.history())
				<-a.done
			})
		})
	}
}
