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

// drowsy is a store whose user falls asleep with its next install on its lips.
type drowsy struct {
	fence.Store
	asleep, woken chan struct{}
}

func (d *drowsy) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	if c.Install && c.Prev.Seq > 1 {
		select {
		case <-d.woken:
		default:
			close(d.asleep)
			<-d.woken
			ctx = context.WithoutCancel(ctx) // what was sent arrives, however late
		}
	}
	return d.Store.Commit(ctx, c)
}

// TestWhoInstallsAnewAsksOnceMore: an owner whose hash is gone has asked, and sleeps before its install arrives.
// Another takes the tile, commits and leaves, and every copy of that is lost. The store refuses nothing then.
func TestWhoInstallsAnewAsksOnceMore(t *testing.T) {
	for _, restored := range []bool{false, true} {
		name := "the authority knows the other"
		if restored {
			name = "the authority has forgotten the other, and its checkpoint is there"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAsksOnceMore(t, restored) })
		})
	}
}

func testAsksOnceMore(t *testing.T, restored bool) {
	w, authority := newWorld(t), &restorable{now: memfence.NewAuthority()}
	var d durable
	cfg := tile.Config{TakeOver: true}
	store := &drowsy{Store: w.store, asleep: make(chan struct{}), woken: make(chan struct{})}
	a := startOn(t, tile.Seams{Authority: authority, Store: store, Log: w.log, Checkpoint: d.read}, "a:1",
		cfg)
	defer func() { a.stop(); <-a.done }()
	a.say(t, "x", "one")
	w.store.Update(testTile, func(s *memfence.State) { s.Owner = fence.Owner{} })
	said := make(chan error, 1)
	go func() {
		_, err := a.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: "z", Body: []byte("two")})
		said <- err
	}()
	<-store.asleep
	var before memfence.State
	w.store.Update(testTile, func(s *memfence.State) { before = *s })

	b := startOn(t, tile.Seams{Authority: authority, Store: w.store, Log: w.log, Checkpoint: d.read}, "b:1",
		cfg)
	b.say(t, "y", "lost")
	require.NoError(t, b.drain())
	var err error
	d.snap, d.found, err = w.log.Snapshot(t.Context(), testTile)
	require.NoError(t, err)
	require.True(t, d.found)
	w.store.Update(testTile, func(s *memfence.State) { *s = before })
	if restored {
		authority.restore(t, true)
	}
	close(store.woken)

	if !restored {
		require.Error(t, <-said, "nothing is acknowledged under an epoch that has a successor")
		<-a.done
		require.ErrorIs(t, a.err, tile.ErrSuperseded)
		return
	}
	require.NoError(t, <-said)
	assert.Greater(t, a.Status().Epoch, d.snap.Epoch)
	require.NoError(t, a.drain())
	c := startOn(t, tile.Seams{Authority: authority, Store: w.store, Log: w.log, Checkpoint: d.read}, "c:1",
		cfg)
	c.say(t, "", "three")
	assert.Equal(t, []string{"one", "two", "three"}, w.history())
	require.NoError(t, c.drain())
}
