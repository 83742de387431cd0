package tile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// onShard runs a test in a bubble, with a shard and a shelf of its own.
func onShard(t *testing.T, f func(*testing.T, *shard, *shelf)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, newShard(newWorld(t), rand.New(rand.NewPCG(1, 2))), newShelf())
	})
}

// words says n words, each acknowledged.
func (r *restorer) words(t *testing.T, prefix string, n int) (all []string) {
	t.Helper()
	for i := range n {
		word := fmt.Sprintf("%s%d", prefix, i)
		require.Equal(t, stream.Applied, r.say(t, word, word))
		all = append(all, word)
	}
	return all
}

// save puts the tile's snapshot on the shelf, as a Checkpointer does.
func (s *shard) save(t *testing.T, sh *shelf) fence.Snapshot {
	t.Helper()
	snap, found, err := s.w.log.Snapshot(t.Context(), testTile)
	require.NoError(t, err)
	require.True(t, found)
	sh.checkpoint(snap)
	return snap
}

var classes = []tile.Durability{tile.Checkpointed, tile.Replicated, tile.WriteThrough}

// What is lost in each class by each loss, against what the class promises. The last five words were acknowledged
// after the last checkpoint; in the first row the replicas have had nothing since.
func TestWhatIsLostIsWhatWasPromised(t *testing.T) {
	const before, after = 12, 5
	for name, loss := range map[string]struct {
		do    func(s *shard, owner *restorer)
		keeps map[tile.Durability]bool // of what was acknowledged since the checkpoint
	}{
		"owner": {
			func(_ *shard, owner *restorer) { owner.kill() },
			map[tile.Durability]bool{tile.Checkpointed: true, tile.Replicated: true, tile.WriteThrough: true},
		},
		"master": {
			func(s *shard, _ *restorer) { s.fail(0) },
			map[tile.Durability]bool{tile.Checkpointed: true, tile.Replicated: true, tile.WriteThrough: true},
		},
		"owner and master": {
			func(s *shard, owner *restorer) { owner.kill(); s.fail(0) },
			map[tile.Durability]bool{tile.Replicated: true, tile.WriteThrough: true},
		},
		"coordination": {
			func(s *shard, _ *restorer) { s.lose() },
			map[tile.Durability]bool{tile.Checkpointed: true, tile.Replicated: true, tile.WriteThrough: true},
		},
		"coordination and owner": {
			func(s *shard, owner *restorer) { owner.kill(); s.lose() },
			map[tile.Durability]bool{tile.WriteThrough: true},
		},
	} {
		for _, class := range classes {
			t.Run(name+"/"+class.String(), func(t *testing.T) {
				onShard(t, func(t *testing.T, s *shard, sh *shelf) {
					s.acks = 0
					cfg := tile.Config{Durability: class, SnapshotEvery: 4, ConfirmEvery: 3}
					a := s.spawn("a:1", sh, cfg)
					kept := a.words(t, "early", before)
					time.Sleep(5 * time.Second) // snapshot, and confirmation
					saved := s.save(t, sh)
					cfg.SnapshotEvery, cfg.ConfirmEvery = never, never
					require.NoError(t, a.drain())
					b := s.spawn("b:1", sh, cfg)
					late := b.words(t, "late", after)
					require.Equal(t, class, b.Status().Durability)
					died := time.Now()

					loss.do(s, b)
					if name == "master" || name == "coordination" {
						b.words(t, "alive", 1) // its owner lives, and puts back what was lost
						late = append(late, "alive0")
						require.NoError(t, b.drain())
					} else {
						<-b.done
					}
					c := s.spawn("c:1", sh, tile.Config{Durability: class, TakeOver: true})
					c.words(t, "again", 1)
					if loss.keeps[class] {
						kept = append(kept, late...)
					}
					require.NoError(t, c.drain())
					assert.Equal(t, append(kept, "again0"), s.w.history())

					reports := append(b.reports(), c.reports()...)
					switch {
					case name == "coordination":
						require.Len(t, reports, 1)
						assert.True(t, reports[0].FromMemory && reports[0].Exact)
						assert.Zero(t, reports[0].LostTicks)
					case name == "coordination and owner" && class == tile.WriteThrough:
						require.Len(t, reports, 1)
						assert.True(t, reports[0].Exact)
						assert.Zero(t, reports[0].LostTicks)
					case name == "coordination and owner":
						require.Len(t, reports, 1)
						assert.Equal(t, saved.Position, reports[0].From)
						assert.GreaterOrEqual(t, reports[0].LostTicks, fence.Tick(after))
						assert.GreaterOrEqual(t, reports[0].LostFor, died.Sub(saved.Taken))
						assert.False(t, reports[0].Exact)
					}
				})
			})
		}
	}
}

func TestUnconfirmedBatchIsNotAcknowledged(t *testing.T) {
	for replicas, down := range map[int][2]bool{fence.AllReplicas: {true, false}, 2: {false, true}, 1: {true, true}} {
		for _, slow := range []bool{false, true} {
			onShard(t, func(t *testing.T, s *shard, sh *shelf) {
				a := s.spawn("a:1", sh, tile.Config{Durability: tile.Replicated, Replicas: replicas, ConfirmEvery: 3})
				a.words(t, "a", 3)
				f := s.spawn("f:1", sh, tile.Config{Durability: tile.Replicated, Follow: true})
				if slow {
					// from a store that does not answer it cannot tell that the owner lives
					require.NoError(t, f.drain())
				}
				time.Sleep(5 * time.Second)
				s.mu.Lock()
				s.cut, s.slow = down, slow
				s.mu.Unlock()
				said := make(chan struct{})
				go func() {
					defer close(said)
					a.say(t, "x", "x")
				}()
				time.Sleep(30 * time.Second)
				select {
				case <-said:
					t.Fatal("acknowledged, and on the master only")
				default:
				}
				require.True(t, a.Status().Pending)
				if !slow {
					require.Equal(t, tile.Following, f.Status().State, "its owner is not silent")
				}
				s.mu.Lock()
				s.cut, s.slow = [2]bool{}, false
				s.mu.Unlock()
				<-said
				synctest.Wait() // the answer comes before the hook
				i := slices.IndexFunc(a.committed(),
					func(c tile.CommitInfo) bool { return c.Confirming > 20*time.Second })
				assert.True(t, slow || i >= 0)
				require.NoError(t, f.drain())
				require.NoError(t, a.drain())
			})
		}
	}
}

// A game can demand that what was paid for is on the replicas before it is answered, and that nothing else waits.
func TestActionsAreReplicatedAndMovementIsNot(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		s.acks = 0 // replicas get nothing but what an owner waits for
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.ReplicatedActions, ConfirmEvery: 1000})
		all := a.words(t, "paid", 3)
		moved, err := a.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("moved")})
		require.NoError(t, err)
		require.Equal(t, stream.Applied, moved.Outcome)
		s.mu.Lock()
		s.cut = [2]bool{true, true}
		s.mu.Unlock()
		_, err = a.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("moved on")})
		require.NoError(t, err, "it waits for no replica")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = a.Submit(ctx, tile.Intent{Tile: testTile, ActionID: "x", Body: []byte("x")})
		require.Error(t, err, "acknowledged, and on the master only")
		a.kill()
		<-a.done
		s.mu.Lock()
		s.cut = [2]bool{}
		s.mu.Unlock()
		s.fail(0)
		b := s.spawn("b:1", sh, tile.Config{Durability: tile.ReplicatedActions, TakeOver: true})
		b.eventually(t, tile.Serving, time.Minute)
		require.NoError(t, b.drain())
		assert.Subset(t, b.rules.Words, all)
		assert.NotContains(t, b.rules.Words, "moved on")
	})
}

// With fewer replicas than all, one that is down stops no tile; its batches are kept until all have them.
func TestEnoughReplicasAreEnough(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.Replicated, Replicas: 1, ConfirmEvery: 3})
		all := a.words(t, "a", 3)
		s.mu.Lock()
		s.cut[0] = true
		s.mu.Unlock()
		all = append(all, a.words(t, "b", 9)...)
		assert.GreaterOrEqual(t, a.Status().Kept, 9)
		s.fail(0) // the one that has missed them: the owner puts them back
		all = append(all, a.words(t, "c", 1)...)
		time.Sleep(5 * time.Second)
		assert.Less(t, a.Status().Kept, 3)
		require.NoError(t, a.drain())
		assert.Equal(t, all, s.w.history())
	})
}

func TestHandOverInEachClass(t *testing.T) {
	for _, class := range classes {
		for _, warm := range []bool{false, true} {
			onShard(t, func(t *testing.T, s *shard, sh *shelf) {
				var b *restorer
				cfg := tile.Config{Durability: class}
				s.w.more.Handover = func(ctx context.Context, h tile.Handover) error {
					if warm {
						return b.accept(ctx, h)
					}
					b = s.spawn("b:1", sh, tile.Config{Durability: class, TakeOver: true})
					b.eventually(t, tile.Serving, 4*time.Second)
					return nil
				}
				a := s.spawn("a:1", sh, cfg)
				all := a.words(t, "a", 3)
				if warm {
					b = s.spawn("b:1", sh, tile.Config{Durability: class, Follow: true})
					b.eventually(t, tile.Following, time.Second)
					time.Sleep(time.Second)
				}
				require.NoError(t, a.Drain(t.Context(), "b:1"))
				<-a.done
				require.NoError(t, a.err)
				all = append(all, b.words(t, "b", 2)...)
				require.Empty(t, b.reports())
				require.NoError(t, b.drain())
				assert.Equal(t, all, s.w.history())
			})
		}
	}
}

func TestDurabilityArguments(t *testing.T) {
	w := newWorld(t)
	r := &reach{shelf: newShelf()}
	seams := w.with(tile.Seams{Journal: r, Checkpoint: r.read}).seams()
	for name, some := range map[string]tile.Seams{
		"seams.Journal": {Checkpoint: r.read}, "seams.Checkpoint": {Journal: r}} {
		_, err := tile.New(testTile, "a", w.with(some).seams(), &ledgerRules{},
			&tile.Config{Durability: tile.WriteThrough})
		var argument *fence.ArgumentError
		if assert.ErrorAs(t, err, &argument) {
			assert.Equal(t, name, argument.Field)
		}
	}
	for name, cfg := range map[string]tile.Config{
		"class":    {Durability: 5},
		"negative": {Durability: -1},
		"replicas": {Durability: tile.Replicated, Replicas: -2},
		"timeout":  {Durability: tile.WriteThrough, Timeouts: tile.Timeouts{JournalTimeout: -1}},
		"patience": {Durability: tile.WriteThrough, Timeouts: tile.Timeouts{JournalTimeout: 2 * time.Second},
			SuspectAfter: 2 * time.Second},
	} {
		_, err := tile.New(testTile, "a", seams, &ledgerRules{}, &cfg)
		assert.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	assert.Equal(t, "checkpointed replicated write-through durability(7)",
		fmt.Sprint(tile.Checkpointed, " ", tile.Replicated, " ", tile.WriteThrough, " ", tile.Durability(7)))
}
