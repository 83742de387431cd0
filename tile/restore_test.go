package tile_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/tile"
)

// durable is a durable store with one snapshot, which counts what is read.
type durable struct {
	snap  fence.Snapshot
	found bool
	err   error
	blobs atomic.Int32
}

func (d *durable) read(context.Context, fence.TileID) (fence.Snapshot, bool, error) {
	d.blobs.Add(1)
	return d.snap, d.found, d.err
}

// wordsThenCheckpoint leaves a tile of three words, drained, its checkpoint taken.
func (w *world) wordsThenCheckpoint() *durable {
	a := w.process("a:1", tile.Config{})
	for _, word := range []string{"one", "two", "three"} {
		a.say(w.t, "", word)
	}
	require.NoError(w.t, a.drain())
	snap, found, err := w.log.Snapshot(w.t.Context(), testTile)
	require.NoError(w.t, err)
	return &durable{snap: snap, found: found}
}

func TestStreamThatEndsBeforeTheCheckpointIsRebasedOnIt(t *testing.T) {
	for _, follow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a := w.process("a:1", tile.Config{SnapshotEvery: 1 << 20})
			for _, word := range []string{"one", "two", "three"} {
				a.say(t, "", word)
			}
			a.kill() // with the newest end of the stream, which the durable store has
			rules := []byte("one two three")
			var d durable
			at := a.Status().Position
			w.store.Update(testTile, func(s *memfence.State) {
				blob := append([]byte{1, byte(len(rules))}, rules...)
				blob = append(blob, 0)
				d.snap, d.found = fence.Snapshot{Position: at, Tick: 4, Sum: fence.Checksum(blob), Blob: blob}, true
			})
			w.loseTail(2)
			b := w.with(tile.Seams{Checkpoint: d.read}).process("b:1", tile.Config{TakeOver: !follow, Follow: follow})
			b.eventually(t, tile.Serving, 10*time.Second)
			assert.Greater(t, b.Status().Position.Seq, at.Seq+fence.RebaseJump-1)
			assert.Greater(t, b.Status().Epoch, at.Epoch)
			b.say(t, "", "four")
			require.NoError(t, b.drain())
			assert.Equal(t, []string{"one", "two", "three", "four"}, w.history())
			assert.EqualValues(t, 1, d.blobs.Load())
		})
	}
}

func TestCheckpointOfAWholeStreamIsNotRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.wordsThenCheckpoint()
		b := w.with(tile.Seams{Checkpoint: d.read}).process("b:1", tile.Config{TakeOver: true})
		b.say(t, "", "four")
		assert.Empty(t, b.healed)
		assert.EqualValues(t, 2, b.Status().Epoch, "one mint")
		require.NoError(t, b.drain())
		assert.Equal(t, []string{"one", "two", "three", "four"}, w.history())
	})
}

func TestDurableStoreThatIsDownDoesNotKeepATileFromBooting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.wordsThenCheckpoint()
		for _, read := range []func(context.Context, fence.TileID) (fence.Snapshot, bool, error){
			func(ctx context.Context, _ fence.TileID) (fence.Snapshot, bool, error) {
				<-ctx.Done()
				return fence.Snapshot{}, false, ctx.Err()
			},
			func(context.Context, fence.TileID) (fence.Snapshot, bool, error) {
				return fence.Snapshot{}, false, errors.New("down")
			},
		} {
			began := time.Now()
			b := w.with(tile.Seams{Checkpoint: read}).process("b:1", tile.Config{})
			b.eventually(t, tile.Serving, 5*time.Second)
			assert.LessOrEqual(t, time.Since(began), 2100*time.Millisecond)
			require.NoError(t, b.drain())
		}
		assert.Equal(t, []string{"one", "two", "three"}, w.history())
		w.store.Update(testTile, func(s *memfence.State) { *s = memfence.State{} })
		d.err = &fence.StoreError{Op: "get", Tile: testTile, Outcome: fence.ErrNotApplied, Err: errors.New("down")}
		b := w.with(tile.Seams{Checkpoint: d.read}).process("b:1", tile.Config{})
		<-b.done
		assert.ErrorIs(t, b.err, fence.ErrNotApplied, "but a tile without history does not start empty")
	})
}

func TestSequenceIsMovedAboveACheckpointThatALaterOwnerDidNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.wordsThenCheckpoint()
		d.snap.Seq += 100
		b := w.process("b:1", tile.Config{})
		b.say(t, "", "four")
		require.NoError(t, b.drain())
		c := w.with(tile.Seams{Checkpoint: d.read}).process("c:1", tile.Config{})
		c.say(t, "", "five")
		assert.Greater(t, c.Status().Position.Seq, d.snap.Seq)
		require.NoError(t, c.drain())
		assert.Equal(t, []string{"one", "two", "three", "four", "five"}, w.history(), "what was served stands")
	})
}

func TestDamagedHistoryWithACheckpointSaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.wordsThenCheckpoint()
		w.store.Update(testTile, func(s *memfence.State) { s.Snapshot.Blob = []byte("?") })
		b := w.with(tile.Seams{Checkpoint: d.read}).process("b:1", tile.Config{})
		<-b.done
		require.ErrorIs(t, b.err, fence.ErrCorrupt)
		assert.ErrorContains(t, b.err, "delete "+fence.KeysOf(testTile).Stream)
		w.store.Update(testTile, func(s *memfence.State) { s.Snapshot, s.Entries = nil, nil }) // as advised
		c := w.with(tile.Seams{Checkpoint: d.read}).process("c:1", tile.Config{TakeOver: true})
		c.say(t, "", "four")
		require.NoError(t, c.drain())
		assert.Equal(t, []string{"one", "two", "three", "four"}, w.history())
	})
}

// Each of the four knows an epoch that the others do not; whichever it is, the next epoch is above it.
func TestEpochIsMintedAboveWhatAnybodyKnows(t *testing.T) {
	for who, teach := range map[string]func(*testing.T, *world, *durable){
		"authority": func(t *testing.T, w *world, _ *durable) {
			g, err := w.authority.Claim(t.Context(), fence.Claim{Tile: testTile, Contact: "z:1", ID: fence.NewClaimID(),
				Expected: 1, Floor: 70})
			require.NoError(t, err)
			require.NoError(t, w.authority.Release(t.Context(), g))
		},
		"owner hash": func(_ *testing.T, w *world, _ *durable) {
			w.store.Update(testTile, func(s *memfence.State) { s.Owner.Epoch = 70 })
		},
		"stream": func(t *testing.T, w *world, _ *durable) {
			w.store.Update(testTile, func(s *memfence.State) {
				_, err := s.Commit(&fence.Commit{Tile: testTile, Epoch: 70, Contact: "z:1", Prev: s.Last(), Tick: 9,
					Install: true})
				require.NoError(t, err)
				s.Owner = fence.Owner{}
			})
		},
		"checkpoint": func(_ *testing.T, _ *world, d *durable) { d.snap.Epoch = 70 },
	} {
		for _, follow := range []bool{false, true} {
			t.Run(who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					d := w.wordsThenCheckpoint()
					teach(t, w, d)
					b := w.with(tile.Seams{Checkpoint: d.read}).process("b:1",
						tile.Config{TakeOver: true, Follow: follow})
					b.eventually(t, tile.Serving, time.Minute)
					assert.Greater(t, b.Status().Epoch, fence.Epoch(70))
					assert.LessOrEqual(t, b.Status().Epoch, fence.Epoch(72), "and no epoch is wasted without need")
					b.say(t, "", "four")
					require.NoError(t, b.drain())
					assert.Equal(t, []string{"one", "two", "three", "four"}, w.history())
				})
			})
		}
	}
}

// An authority restored to before the tile, or to an earlier owner, knows no process that took the tile. The owner
// mints above its own epoch and goes on.
func TestOwnerThatItsAuthorityHasForgottenGoesOnUnderAHigherEpoch(t *testing.T) {
	for name, older := range map[string]func(*testing.T, fence.Authority){
		"never owned": func(*testing.T, fence.Authority) {},
		"an earlier owner": func(t *testing.T, a fence.Authority) {
			_, err := a.Claim(t.Context(), fence.Claim{Tile: testTile, Contact: "z:1", ID: fence.NewClaimID()})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				d := w.wordsThenCheckpoint()
				_ = d
				a := w.process("b:1", tile.Config{})
				a.say(t, "", "four")
				require.EqualValues(t, 2, a.Status().Epoch)
				w.authority.Authority = memfence.NewAuthority()
				older(t, w.authority)
				a.say(t, "", "five")
				assert.EqualValues(t, 2, a.Status().Epoch,
					"the authority need not know while the store takes its commits")
				w.store.Update(testTile, func(s *memfence.State) { s.Owner = fence.Owner{} })
				a.say(t, "", "six")
				assert.Greater(t, a.Status().Epoch, fence.Epoch(2))
				assert.Equal(t, tile.Serving, a.Status().State)
				require.NoError(t, a.drain())
				assert.Equal(t, []string{"one", "two", "three", "four", "five", "six"}, w.history())
			})
		})
	}
}

func TestLossIsExactWhereTheOwnerHashIsLeft(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{SnapshotEvery: 5, Timeouts: tile.Timeouts{BootTimeout: time.Second}})
		a.words(t, "a", 12)
		saved := s.save(t, sh)
		a.words(t, "b", 20)
		a.kill()
		<-a.done
		var last fence.Tick
		s.w.store.Update(testTile, func(m *memfence.State) { // the others were deleted
			last = m.Owner.Tick
			m.Entries, m.Snapshot = nil, nil
		})
		b := s.spawn("b:1", sh, tile.Config{TakeOver: true})
		b.eventually(t, tile.Serving, 10*time.Second)
		require.Len(t, b.reports(), 1)
		i := b.reports()[0]
		assert.True(t, i.Exact)
		assert.Equal(t, last-saved.Tick, i.LostTicks)
		assert.Equal(t, time.Duration(i.LostTicks)*500*time.Millisecond, i.LostFor)
		assert.Equal(t, saved.Position, i.From)
		assert.Equal(t, b.Status().Position, i.At)
		require.NoError(t, b.drain())
	})
}

// A follower that has watched the owner counts from the last tick it saw, and not all the time in which nobody
// played.
func TestFollowerKnowsBetterWhatWasLost(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{SnapshotEvery: 5})
		a.words(t, "a", 12)
		saved := s.save(t, sh)
		f := s.spawn("f:1", sh, tile.Config{Follow: true, SuspectAfter: tile.NeverSuspect})
		all := a.words(t, "b", 20)
		time.Sleep(10 * time.Second)
		played := a.Status().Tick
		a.kill()
		<-a.done
		time.Sleep(5 * time.Second)
		s.lose()
		time.Sleep(time.Hour)
		f.TakeOver(tile.Ordered)
		f.eventually(t, tile.Serving, 30*time.Second)
		require.Len(t, f.reports(), 1)
		i := f.reports()[0]
		assert.GreaterOrEqual(t, i.LostTicks, played-saved.Tick, "of them %d with a word", len(all))
		assert.LessOrEqual(t, i.LostTicks, played-saved.Tick+25)
		assert.False(t, i.Exact)
		require.NoError(t, f.drain())
	})
}

// What a stream has lost is reported by the owner that restores it from a checkpoint that is later.
func TestLossIsReportedWhereTheStreamEndsBeforeTheCheckpoint(t *testing.T) {
	for _, class := range []tile.Durability{tile.Checkpointed, tile.WriteThrough} {
		onShard(t, func(t *testing.T, s *shard, sh *shelf) {
			s.acks = 0
			a := s.spawn("a:1", sh, tile.Config{SnapshotEvery: 5, ConfirmEvery: never, Durability: class})
			a.words(t, "a", 12)
			saved := s.save(t, sh)
			a.words(t, "b", 3)
			a.kill()
			<-a.done
			played := a.Status().Tick
			s.fail(0)
			b := s.spawn("b:1", sh, tile.Config{TakeOver: true, Durability: class})
			b.eventually(t, tile.Serving, 10*time.Second)
			require.Len(t, b.reports(), 1)
			i := b.reports()[0]
			if class == tile.WriteThrough {
				assert.Zero(t, i.LostTicks)
				assert.True(t, i.Exact)
				assert.Equal(t, played, i.SnapshotTick, "the journal's last")
			} else {
				assert.GreaterOrEqual(t, i.LostTicks, played-saved.Tick)
				assert.Equal(t, saved.Tick, i.SnapshotTick)
				assert.False(t, i.Exact)
			}
			require.NoError(t, b.drain())
		})
	}
}
