package tile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

func TestBatchIsInTheJournalBeforeItIsAcknowledged(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough, SnapshotEvery: 10})
		a.eventually(t, tile.Serving, time.Second)
		assert.Equal(t, sh.durableEnd(), a.Status().Position, "before it serves")
		a.reach.set(func(_ context.Context, op string, applied bool) error {
			if op == "append" && applied {
				time.Sleep(30 * time.Millisecond)
			}
			return nil
		})
		for i := range 25 {
			a.words(t, fmt.Sprint(i, "."), 1)
			require.Equal(t, a.Status().Position, sh.durableEnd())
			if i%7 == 0 {
				s.save(t, sh)
			}
		}
		for _, c := range a.committed() {
			if !c.Refresh {
				assert.Equal(t, 30*time.Millisecond, c.Journaling)
				assert.Equal(t, tile.WriteThrough, c.Durability)
			}
		}
		appends := a.reach.calls("append")
		time.Sleep(5 * time.Second)
		assert.Equal(t, appends, a.reach.calls("append"), "a tick that only refreshes costs the journal nothing")
		require.NoError(t, a.drain())
	})
}

var errJournal = errors.New("journal is down")

// Each call of a take-over's and of a tick's fails three times: before it is applied, after it, or because it was lost
// on its way, which only the wait for its answer tells.
func TestJournalThatFailsDelaysAndLosesNothing(t *testing.T) {
	for _, op := range []string{"seal", "get", "tail", "put", "append"} {
		for how, fails := range map[string]struct {
			applied bool
			err     error
		}{"refused": {false, errJournal}, "answer lost": {true, errJournal}, "request lost": {false, errRequestLost}} {
			onShard(t, func(t *testing.T, s *shard, sh *shelf) {
				a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
				all := a.words(t, "a", 3)
				a.kill()
				<-a.done
				s.lose()
				b := s.equip("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
				left := 3
				var mu sync.Mutex
				b.reach.set(func(_ context.Context, o string, after bool) error {
					mu.Lock()
					defer mu.Unlock()
					if o == op && after == fails.applied && left > 0 {
						left--
						return fails.err
					}
					return nil
				})
				b.start()
				all = append(all, b.words(t, "b", 3)...)
				assert.Zero(t, left, "%s was not asked as often", op)
				require.NoError(t, b.drain())
				assert.Equal(t, all, s.w.history(), "%s %s", op, how)
			})
		}
	}
}

// An append that was lost on its way is not acknowledged before it is in the journal. The mutant takes a lost answer
// for success; that it loses the word shows that the test would see it.
func TestAppendThatWasLostIsNotAcknowledged(t *testing.T) {
	for _, mutant := range []bool{false, true} {
		onShard(t, func(t *testing.T, s *shard, sh *shelf) {
			a := s.equip("a:1", sh, tile.Config{Durability: tile.WriteThrough})
			a.reach.forgives = mutant
			a.start()
			all := a.words(t, "a", 2)
			lost := 0
			a.reach.set(func(_ context.Context, op string, applied bool) error {
				if op == "append" && !applied && lost == 0 {
					lost++
					return errRequestLost
				}
				return nil
			})
			all = append(all, a.words(t, "lost", 1)...)
			require.Equal(t, 1, lost)
			a.kill()
			<-a.done
			s.lose()
			b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
			b.eventually(t, tile.Serving, time.Minute)
			require.NoError(t, b.drain())
			if mutant {
				all = all[:2]
			}
			assert.Equal(t, all, b.rules.Words, "mutant %v", mutant)
		})
	}
}

// A follower that suspects the owner looks at the journal, and leaves no trace there: by the missing seal the owner
// learns that the durable store was restored to an older state, and makes it whole again.
func TestFollowersProbeDoesNotHideALostSeal(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		all := a.words(t, "a", 1)
		old := sh.snapshot()
		all = append(all, a.words(t, "b", 4)...)
		asked, look := make(chan struct{}), make(chan struct{})
		f := s.spawn("f:1", sh, tile.Config{Durability: tile.WriteThrough, Follow: true,
			Pace: func(context.Context, tile.Status, tile.Suspicion) (func(), error) {
				close(asked)
				<-look
				return nil, nil
			}})
		f.eventually(t, tile.Following, time.Second)
		time.Sleep(time.Second)
		a.pause()
		<-asked
		a.resume()
		older := memcheckpoint.New()
		require.NoError(t, older.Put(t.Context(), testTile, old))
		sh.Backend = older
		time.Sleep(2 * time.Second) // the owner hash moves again
		tails := f.reach.calls("tail")
		close(look)
		time.Sleep(2 * time.Second)
		require.Greater(t, f.reach.calls("tail"), tails, "the follower looked")
		require.Equal(t, tile.Following, f.Status().State)
		require.Zero(t, f.reach.calls("seal"))
		f.stop()
		<-f.done

		all = append(all, a.words(t, "c", 3)...)
		require.Equal(t, a.Status().Position, sh.durableEnd())
		a.kill()
		s.lose()
		b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
		all = append(all, b.words(t, "d", 1)...)
		require.NoError(t, b.drain())
		assert.Equal(t, all, b.rules.Words)
	})
}

// A journal that hangs freezes its tile. No client is answered, the owner hash goes on moving, so that followers do
// not take the owner for dead, and a drain ends in time.
func TestJournalThatHangsFreezesTheTile(t *testing.T) {
	hang := func(ctx context.Context, op string, applied bool) error {
		if op == "append" && !applied {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		a.words(t, "a", 2)
		f := s.spawn("f:1", sh, tile.Config{Durability: tile.WriteThrough, Follow: true})
		f.eventually(t, tile.Following, time.Second)
		time.Sleep(5 * time.Second)
		a.reach.set(hang)
		said := make(chan stream.Outcome, 1)
		go func() {
			o, err := a.Submit(context.Background(), tile.Intent{Tile: testTile, ActionID: "x", Body: []byte("x")})
			assert.NoError(t, err)
			said <- o.Outcome
		}()
		for range 60 {
			time.Sleep(time.Second)
			require.Empty(t, said)
			require.Equal(t, tile.Serving, a.Status().State)
			require.Equal(t, tile.Following, f.Status().State, "the owner is not silent")
		}
		o, err := s.w.store.Owner(t.Context(), testTile)
		require.NoError(t, err)
		assert.True(t, o.Present())
		a.reach.set(nil)
		assert.Equal(t, stream.Applied, <-said)
		a.words(t, "b", 2)
		time.Sleep(10 * time.Second)
		require.Equal(t, tile.Following, f.Status().State)

		a.reach.set(hang)
		lost := make(chan error, 1)
		go func() {
			_, err := a.Submit(context.Background(), tile.Intent{Tile: testTile, ActionID: "y", Body: []byte("y")})
			lost <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		require.ErrorIs(t, a.drain(), tile.ErrUnreleased)
		assert.Less(t, time.Since(began), 7*time.Second)
		assert.ErrorIs(t, <-lost, tile.ErrUnresolved)
	})
}

// A follower that cannot write to the journal does not take a tile, which it could only freeze.
func TestFollowerWithoutAJournalLeavesTheTileAlone(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		all := a.words(t, "a", 2)
		f := s.spawn("f:1", sh, tile.Config{Durability: tile.WriteThrough, Follow: true})
		f.eventually(t, tile.Following, time.Second)
		f.reach.set(func(context.Context, string, bool) error { return errJournal })
		time.Sleep(3 * time.Second)
		f.TakeOver(tile.Ordered)
		time.Sleep(time.Minute)
		g, err := s.w.authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		assert.Equal(t, "a:1", g.Contact, "it has not even asked for it")
		all = append(all, a.words(t, "b", 2)...)
		f.reach.set(nil)
		a.kill()
		f.eventually(t, tile.Serving, time.Minute)
		all = append(all, f.words(t, "c", 1)...)
		require.NoError(t, f.drain())
		assert.Equal(t, all, s.w.history())
	})
}

// zombieAndSuccessor gives an owner whose master is old and does not know it, and is refused by nothing but the
// journal, and a successor on the new master. at is where in its boot, by the name of a call to the journal, the
// successor is when the owner commits once more; acks are the shard's.
func zombieAndSuccessor(t *testing.T, at string, applied bool, acks int) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		s.acks = acks
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		all := a.words(t, "a", 3)
		s.fail(s.later())
		s.asksZombie(a, true)
		b := s.equip("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
		asked, late := false, false
		b.reach.set(func(_ context.Context, op string, after bool) error {
			if op == at && after == applied && !asked {
				asked = true
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := a.Submit(ctx, tile.Intent{Tile: testTile, ActionID: "late", Body: []byte("late")})
				late = err == nil
			}
			return nil
		})
		b.start()
		all2 := b.words(t, "b", 2)
		require.True(t, asked)
		if late {
			all = append(all, "late")
		}
		b.reach.set(nil)
		b.kill()
		<-b.done
		s.lose()
		c := s.spawn("c:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
		c.words(t, "c", 1)
		require.NoError(t, c.drain())
		assert.Equal(t, append(append(all, all2...), "c0"), s.w.history(), "acknowledged: %v", late)
		a.stop()
		<-a.done
		if !late {
			assert.ErrorIs(t, a.err, tile.ErrSuperseded)
		}
	})
}

func TestZombieOwnerAcknowledgesNothingThatItsSuccessorMisses(t *testing.T) {
	for _, at := range []string{"seal", "get", "tail", "put", "append"} {
		for _, applied := range []bool{false, true} {
			for _, acks := range []int{0, 10} { // the new master lacks what was committed, or has it
				t.Run(fmt.Sprint(at, applied, acks), func(t *testing.T) { zombieAndSuccessor(t, at, applied, acks) })
			}
		}
	}
}

// The durable store is restored to an older state under a living owner, which has acknowledged more since: to one
// before the owner sealed the journal, or to one of the owner's own epoch, where only what the next batch follows
// tells.
func TestDurableStoreRestoredUnderALivingOwner(t *testing.T) {
	for name, restore := range map[string]func(checkpoint.Backend, fence.Snapshot) error{
		"before its seal": func(st checkpoint.Backend, old fence.Snapshot) error {
			return st.Put(t.Context(), testTile, old)
		},
		"of the same epoch": func(st checkpoint.Backend, old fence.Snapshot) error {
			return st.Base(t.Context(), testTile, old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onShard(t, func(t *testing.T, s *shard, sh *shelf) {
				a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
				all := a.words(t, "a", 1)
				old := sh.snapshot()
				all = append(all, a.words(t, "c", 5)...)
				synctest.Wait()
				require.Equal(t, a.Status().Epoch, old.Epoch)
				older := memcheckpoint.New()
				require.NoError(t, restore(older, old))
				sh.Backend = older
				all = append(all, a.words(t, "b", 3)...)
				require.Equal(t, a.Status().Position, sh.durableEnd())
				require.Equal(t, old.Epoch, a.Status().Epoch, "another base is enough")
				a.kill()
				s.lose()
				b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
				all = append(all, b.words(t, "d", 1)...)
				require.NoError(t, b.drain())
				assert.Equal(t, all, b.rules.Words)
			})
		})
	}
}

// The durable store comes back with what another owner wrote under the same epoch, to whom a restored authority had
// granted it: later than this owner's state, or at the same place. The owner does not offer its own base for ever. It
// goes on from what is durable, which that other owner may have acknowledged.
func TestDurableStoreHasAnotherOwnersState(t *testing.T) {
	for name, ahead := range map[string]fence.Seq{"at the same place": 0, "later": 7} {
		t.Run(name, func(t *testing.T) {
			onShard(t, func(t *testing.T, s *shard, sh *shelf) {
				a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
				a.words(t, "a", 3)
				synctest.Wait()
				theirs := sh.snapshot()
				theirs.Position = a.Status().Position
				theirs.Seq, theirs.Chain = theirs.Seq+ahead, theirs.Chain+1
				foreign := memcheckpoint.New()
				require.NoError(t, foreign.Put(t.Context(), testTile, theirs))
				sh.Backend = foreign
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := a.Submit(ctx, tile.Intent{Tile: testTile, ActionID: "b", Body: []byte("b")})
				require.NoError(t, err, "the tile stalls: %+v", a.Status())
				require.Equal(t, a.Status().Position, sh.durableEnd())
				require.Greater(t, a.Status().Epoch, theirs.Epoch)
				require.NoError(t, a.drain())
				assert.Equal(t, "b", a.rules.Words[len(a.rules.Words)-1])
			})
		})
	}
}

// The authority is restored with it: the owner goes on under an epoch above its own.
func TestDurableStoreAndAuthorityPutBack(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		all := a.words(t, "a", 3)
		synctest.Wait()
		older := memcheckpoint.New()
		require.NoError(t, older.Put(t.Context(), testTile, sh.snapshot()))
		sh.Backend = older
		s.w.authority.Authority = memfence.NewAuthority()
		all = append(all, a.words(t, "b", 2)...)
		require.Equal(t, a.Status().Position, sh.durableEnd())
		require.Greater(t, a.Status().Epoch, fence.Epoch(1))
		require.NoError(t, a.drain())
		assert.Equal(t, all, a.rules.Words)
	})
}

// The successor seals between the commit that the zombie takes and the append.
func TestSealBetweenCommitAndAppend(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		all := a.words(t, "a", 3)
		s.fail(s.later())
		s.asksZombie(a, true)
		sealed := make(chan struct{})
		a.reach.set(func(_ context.Context, op string, applied bool) error {
			if op == "append" && !applied {
				<-sealed
			}
			return nil
		})
		answered := make(chan error, 1)
		go func() {
			_, err := a.Submit(context.Background(),
				tile.Intent{Tile: testTile, ActionID: "late", Body: []byte("late")})
			answered <- err
		}()
		time.Sleep(time.Second)
		b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
		all = append(all, b.words(t, "b", 1)...)
		close(sealed)
		var unresolved *tile.UnresolvedError
		require.ErrorAs(t, <-answered, &unresolved)
		assert.Equal(t, "b:1", unresolved.Contact)
		<-a.done
		require.ErrorIs(t, a.err, tile.ErrSuperseded)
		assert.Equal(t, "b:1", a.Status().Successor.Contact)
		require.NoError(t, b.drain())
		assert.Equal(t, all, s.w.history())
	})
}

// A claimant of an earlier release installs itself on a stream that has lost what the journal has, and dies before it
// has restored it. Its stream looks later than the journal, and is not.
func TestClaimantThatDiedBeforeItRestoredHidesNothing(t *testing.T) {
	for lost := range 3 {
		onShard(t, func(t *testing.T, s *shard, sh *shelf) {
			a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
			all := a.words(t, "a", 4)
			a.kill()
			<-a.done
			s.w.loseTail(lost)
			g, err := s.w.authority.Promote(t.Context(), fence.Claim{Tile: testTile, Contact: "b:1",
				ID: fence.NewClaimID(), Expected: a.Status().Epoch})
			require.NoError(t, err)
			_, claim, err := (&stream.Batch{Claim: g.ID}).Encode()
			require.NoError(t, err)
			state := s.state()
			_, err = s.w.store.Commit(t.Context(), fence.Commit{Tile: testTile, Epoch: g.Epoch, Contact: "b:1",
				Prev: state.Last(), Private: claim, Install: true})
			require.NoError(t, err)
			c := s.spawn("c:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
			all = append(all, c.words(t, "c", 2)...)
			require.NoError(t, c.drain())
			assert.Equal(t, all, s.w.history(), "lost %d", lost)
		})
	}
}

// A Checkpointer that was paused puts, at last, a snapshot of a history that is void: one that an owner wrote to an
// old master when it tried to repair itself there. It has a higher sequence than the tile.
func TestLateCheckpointOfAVoidHistoryHidesNothing(t *testing.T) {
	for _, at := range []string{"seal", "tail", "put", "append"} {
		t.Run(at, func(t *testing.T) {
			onShard(t, func(t *testing.T, s *shard, sh *shelf) {
				a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
				all := a.words(t, "a", 3)
				s.fail(s.later())
				s.asksZombie(a, true)
				s.mu.Lock() // what it met there
				foreign := s.zombie.Last()
				foreign.Chain++
				s.zombie.Owner.Position = foreign
				s.zombie.Entries[len(s.zombie.Entries)-1].Position = foreign
				s.mu.Unlock()
				time.Sleep(3 * time.Second)
				require.Equal(t, tile.Healing, a.Status().State)
				s.mu.Lock()
				void := *s.zombie.Snapshot
				s.mu.Unlock()
				require.Greater(t, void.Seq, foreign.Seq)
				a.kill()
				<-a.done
				b := s.equip("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
				done := false
				b.reach.set(func(_ context.Context, op string, applied bool) error {
					if op == at && !applied && !done {
						done = true
						sh.checkpoint(void)
					}
					return nil
				})
				b.start()
				all = append(all, b.words(t, "b", 3)...)
				require.True(t, done)
				b.kill()
				<-b.done
				s.lose()
				c := s.spawn("c:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
				all = append(all, c.words(t, "c", 1)...)
				require.NoError(t, c.drain())
				assert.Equal(t, all, s.w.history())
			})
		})
	}
}

// The replay reads the new master, which lacks what the journal has; when the claimant looks whether the stream has
// it, it meets the old master, which does; and it writes to the new one.
func TestStreamIsJudgedAsItWasReplayed(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		s.acks = 0
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough, ConfirmEvery: 1000})
		all := a.words(t, "a", 4)
		a.kill()
		<-a.done
		s.fail(s.later())
		b := s.equip("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
		b.onSnapshot(func() {
			b.onSnapshot(func() {
				s.readsZombie(b, true)
				b.onSnapshot(func() { s.readsZombie(b, false) })
			})
		})
		b.start()
		all = append(all, b.words(t, "b", 1)...)
		require.NoError(t, b.drain())
		assert.Equal(t, all, s.w.history())
	})
}

// Entries that a later owner has replaced are left in the journal, and are no gap.
func TestLeftoversInTheJournalAreNoGap(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		a.words(t, "a", 12)
		a.kill()
		<-a.done
		s.w.loseTail(10)
		plain := s.spawn("p:1", newShelf(), tile.Config{TakeOver: true}) // of another class: it does not see them
		plain.words(t, "p", 1)
		require.NoError(t, plain.drain())
		all := s.w.history()
		s.save(t, sh)
		require.NotEmpty(t, sh.tail())
		b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteThrough})
		all = append(all, b.words(t, "b", 2)...)
		b.kill()
		<-b.done
		s.lose()
		c := s.spawn("c:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
		all = append(all, c.words(t, "c", 1)...)
		require.NoError(t, c.drain())
		assert.Equal(t, all, s.w.history())
	})
}

// A journal that lacks an entry is not passed over: what was acknowledged is gone, and an operator has to know.
func TestHoleInTheJournalEndsTheBoot(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		a.words(t, "a", 4)
		a.kill()
		<-a.done
		require.NoError(t, sh.Truncate(t.Context(), testTile, a.Status().Position.Seq-2))
		b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
		b.eventually(t, tile.Stopped, time.Minute)
		<-b.done
		require.ErrorIs(t, b.err, stream.ErrGap)
		require.Equal(t, 3, b.reach.calls("tail"), "a checkpoint may have come between")
	})
}

// Where an owner of another class has served without what the journal has, its state stands.
func TestWhatAnotherClassHasServedStands(t *testing.T) {
	for _, saved := range []bool{false, true} {
		t.Run(fmt.Sprint("saved ", saved), func(t *testing.T) { servedByAnotherClass(t, saved) })
	}
}

func servedByAnotherClass(t *testing.T, saved bool) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		a.words(t, "a", 6)
		a.kill()
		<-a.done
		s.w.loseTail(4)
		plain := s.spawn("p:1", newShelf(), tile.Config{TakeOver: true})
		plain.words(t, "p", 2)
		if saved {
			require.NoError(t, plain.drain())
		} else {
			plain.kill()
			<-plain.done
		}
		all := s.w.history()
		c := s.spawn("c:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
		all = append(all, c.words(t, "c", 1)...)
		require.NoError(t, c.drain())
		assert.Equal(t, all, s.w.history())
		assert.Contains(t, all, "p1")
	})
}

// An owner that repairs its history has the repaired one in the durable store before it serves again.
func TestRepairedHistoryIsDurableBeforeItIsServed(t *testing.T) {
	for name, spoil := range map[string]func(*shard){
		"fork": func(s *shard) {
			s.w.store.Update(testTile, func(m *memfence.State) {
				e := &m.Entries[len(m.Entries)-1]
				e.Chain++
				m.Owner.Position = e.Position
			})
		},
		"everything lost": func(s *shard) { s.lose() },
	} {
		t.Run(name, func(t *testing.T) {
			onShard(t, func(t *testing.T, s *shard, sh *shelf) {
				a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
				all := a.words(t, "a", 3)
				down := true
				var mu sync.Mutex
				a.reach.set(func(_ context.Context, op string, _ bool) error {
					mu.Lock()
					defer mu.Unlock()
					if down && op == "put" {
						return errJournal
					}
					return nil
				})
				spoil(s)
				said := make(chan struct{})
				go func() {
					defer close(said)
					a.say(t, "after", "after")
				}()
				time.Sleep(20 * time.Second)
				require.Equal(t, tile.Healing, a.Status().State)
				mu.Lock()
				down = false
				mu.Unlock()
				<-said
				require.Equal(t, a.Status().Position, sh.durableEnd())
				a.kill()
				<-a.done
				s.lose()
				b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteThrough, TakeOver: true})
				b.words(t, "b", 1)
				require.NoError(t, b.drain())
				assert.Equal(t, append(all, "after", "b0"), s.w.history())
			})
		})
	}
}

// forgotten gives an owner that was paused while a successor served, and died, and an authority that was restored to
// when it knew of no successor. spoil is what happens to the store before the owner wakes.
func forgotten(t *testing.T, s *shard, sh *shelf, cfg tile.Config, spoil func()) (a *restorer, all []string) {
	a = s.spawn("a:1", sh, cfg)
	all = a.words(t, "a", 3)
	record, err := s.w.authority.Lookup(t.Context(), testTile)
	require.NoError(t, err)
	a.pause()
	cfg.TakeOver = true
	b := s.spawn("b:1", sh, cfg)
	all = append(all, b.words(t, "b", 6)...)
	b.kill()
	<-b.done
	spoil()
	s.w.authority.Authority = memfence.NewAuthority()
	_, err = s.w.authority.Claim(t.Context(), fence.Claim{Tile: testTile, Contact: record.Contact, ID: record.ID})
	require.NoError(t, err)
	a.resume()
	return a, all
}

// What a successor has acknowledged that the authority has forgotten is in the journal, and counts, whether or not
// the store has it.
func TestOwnerDoesNotOverruleWhoSealedAfterIt(t *testing.T) {
	for name, spoil := range map[string]func(*shard){
		"all lost": (*shard).lose, "end lost": func(s *shard) { s.fail(0) }, "nothing lost": func(*shard) {},
	} {
		t.Run(name, func(t *testing.T) {
			onShard(t, func(t *testing.T, s *shard, sh *shelf) {
				s.acks = 0
				a, all := forgotten(t, s, sh, tile.Config{Durability: tile.WriteThrough, ConfirmEvery: never},
					func() { spoil(s) })
				all = append(all, a.insist(t, "late"))
				require.NoError(t, a.drain())
				assert.Equal(t, all, s.w.history())
			})
		})
	}
}

// insist says a word to a tile that may send it away for a while: to a later owner that the authority has forgotten.
func (r *restorer) insist(t *testing.T, word string) string {
	t.Helper()
	for {
		_, err := r.Submit(t.Context(), tile.Intent{Tile: testTile, ActionID: word, Body: []byte(word)})
		if err == nil {
			return word
		}
		require.ErrorIs(t, err, tile.ErrRedirect)
		time.Sleep(100 * time.Millisecond)
	}
}

// An owner that repairs its history finds that another has sealed the journal after it, and cannot ask the
// authority who has the tile. It waits for the answer.
func TestOwnerWaitsForTheAuthorityWhoSealedAfterIt(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteThrough})
		all := a.words(t, "a", 3)
		var once sync.Once
		a.reach.set(func(ctx context.Context, op string, applied bool) error {
			if op == "seal" && !applied {
				once.Do(func() {
					assert.NoError(t, sh.Backend.Seal(ctx, testTile, a.Status().Epoch+10))
					a.line.set(func(l *line) { l.authority = true })
				})
			}
			return nil
		})
		s.w.store.Update(testTile, func(m *memfence.State) {
			e := &m.Entries[len(m.Entries)-1]
			e.Chain++
			m.Owner.Position = e.Position
		})
		time.Sleep(time.Minute)
		require.Equal(t, tile.Healing, a.Status().State, "%v", a.err)
		a.line.set(func(l *line) { l.authority = false })
		all = append(all, a.words(t, "b", 1)...)
		require.NoError(t, a.drain())
		assert.Equal(t, all, a.rules.Words)
	})
}

// An owner that takes its tile back from the history of a later one, and finds the store emptied meanwhile, goes on
// from the checkpoint, and not from nothing.
func TestHistoryLostWhileItIsTakenBack(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a, all := forgotten(t, s, sh, tile.Config{SnapshotEvery: 4}, func() { s.save(t, sh) })
		a.onSnapshot(s.lose)
		a.insist(t, "late")
		require.NoError(t, a.drain())
		history := s.w.history()
		require.Greater(t, len(history), 3)
		assert.Equal(t, all[:len(history)-1], history[:len(history)-1])
		assert.Equal(t, "late", history[len(history)-1])
		require.Len(t, a.reports(), 1)
	})
}
