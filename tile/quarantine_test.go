package tile_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// choke panics at the word poison.
func choke(events [][]byte) {
	if slices.ContainsFunc(events, func(e []byte) bool { return string(e) == "poison" }) {
		panic("no rule for it")
	}
}

// poisoned is a tile whose owner has committed water, and then well, poison and wine in one tick, at the sequence
// returned, and has ended.
func (w *world) poisoned(cfg tile.Config) fence.Seq {
	cfg.SnapshotEvery = 1000
	owner := w.fragile("a:1", cfg, &brittle{apply: choke})
	owner.say(w.t, "1", "water")
	assert.Empty(w.t, owner.outcomes("well", "poison", "wine"), "they are committed, and the owner cannot say so")
	<-owner.done
	require.ErrorIs(w.t, owner.err, tile.ErrRules)
	require.NotErrorIs(w.t, owner.err, tile.ErrQuarantined, "its own state may be to blame")
	require.ErrorContains(w.t, owner.err, "Apply panicked")
	require.Len(w.t, owner.failures(), 1)
	last, err := w.log.Last(w.t.Context(), testTile)
	require.NoError(w.t, err)
	return last.Seq
}

// quarantine is the tile's, and the grant that it is.
func (w *world) quarantine() (fence.Grant, fence.Quarantine) {
	g, err := w.authority.Lookup(w.t.Context(), testTile)
	require.NoError(w.t, err)
	q, ok := fence.ParseQuarantine(g.Contact)
	require.True(w.t, ok, "it is quarantined: %+v", g)
	return g, q
}

// lift is what tilectl quarantine skip does.
func (w *world) lift(skip ...fence.EventRef) {
	g, q := w.quarantine()
	q.Lifted, q.Skip = true, append(q.Skip, skip...)
	contact, err := q.Contact()
	require.NoError(w.t, err)
	_, err = w.authority.Promote(w.t.Context(), fence.Claim{Tile: testTile, Contact: contact, ID: fence.NewClaimID(),
		Expected: g.Epoch})
	require.NoError(w.t, err)
}

// TestAHistoryThatCannotBeFoldedIsQuarantined: by the first process that replays it to own the tile. The quarantine
// names the event, other processes leave the tile alone, and its clients are told. When it is released, rules that are
// repaired go on with all that was committed.
func TestAHistoryThatCannotBeFoldedIsQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		seq := w.poisoned(tile.Config{})
		var seen []*tile.QuarantinedError
		cfg := tile.Config{TakeOver: true}
		cfg.Hooks.Quarantined = func(e *tile.QuarantinedError) { seen = append(seen, e) }
		again := w.fragile("a:1", cfg, &brittle{apply: choke})
		<-again.done
		require.ErrorIs(t, again.err, tile.ErrQuarantined)
		require.ErrorIs(t, again.err, tile.ErrRules)
		require.Len(t, seen, 1)
		g, q := w.quarantine()
		assert.Equal(t, seq, q.At.Seq)
		assert.NotZero(t, q.At.Index, "the event is found, among those of its batch")
		assert.Equal(t, "Apply: no rule for it", q.Reason)
		assert.Equal(t, "a:1", q.By)
		assert.EqualValues(t, 3, g.Epoch, "its owners', and one of its own")
		_, err := again.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("x")})
		refused, ok := errors.AsType[*tile.QuarantinedError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, q, refused.Quarantine)
		require.NotNil(t, again.Status().Quarantine)

		for range 3 {
			other := w.start("b:1", tile.Config{TakeOver: true})
			<-other.done
			require.ErrorIs(t, other.err, tile.ErrQuarantined)
			require.NotErrorIs(t, other.err, tile.ErrRules, "it has not even tried")
		}
		now, _ := w.quarantine()
		require.Equal(t, g, now, "no epochs are wasted on it")

		require.NoError(t, w.authority.Release(t.Context(), g))
		repaired := w.start("b:1", tile.Config{})
		assert.Equal(t, stream.Applied, repaired.say(t, "poison", "poison"), "as it was decided")
		require.NoError(t, repaired.drain())
		words := w.history()
		slices.Sort(words)
		assert.Equal(t, []string{"poison", "water", "well", "wine"}, words)
	})
}

// TestFollowersQuarantineWhatNoneCanFold: if the owner is silent for twice as long as they wait for the tile. One that
// can fold it has taken it by then.
func TestFollowersQuarantineWhatNoneCanFold(t *testing.T) {
	for name, able := range map[string]bool{"none": false, "one": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				owner := w.fragile("a:1", tile.Config{}, &brittle{apply: choke})
				unable := w.fragile("b:1", tile.Config{Follow: true}, &brittle{apply: choke})
				other := &brittle{apply: choke}
				if able {
					other.apply = nil
				}
				third := w.fragile("c:1", tile.Config{Follow: true}, other)
				owner.say(t, "", "water")
				time.Sleep(2 * time.Second)
				assert.Empty(t, owner.outcomes("poison"))
				<-owner.done
				time.Sleep(time.Minute)
				if able {
					assert.Equal(t, tile.Serving, third.Status().State)
					assert.Equal(t, tile.Following, unable.Status().State)
					assert.Nil(t, unable.Status().Quarantine)
					require.NoError(t, unable.drain())
					require.NoError(t, third.drain())
					return
				}
				<-unable.done
				<-third.done
				require.ErrorIs(t, unable.err, tile.ErrQuarantined)
				require.ErrorIs(t, third.err, tile.ErrQuarantined)
				g, q := w.quarantine()
				assert.Equal(t, 1, q.At.Index)
				assert.EqualValues(t, 2, g.Epoch, "two followers set it once")
			})
		})
	}
}

// TestAnEventIsLeftOut: by the next owner, and so by every reader of the tile from then on. What the rest of its
// batch did stays, and so do the outcomes.
func TestAnEventIsLeftOut(t *testing.T) {
	for _, durability := range []tile.Durability{tile.Checkpointed, tile.WriteThrough} {
		t.Run(durability.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				cfg := tile.Config{TakeOver: true, Durability: durability}
				if durability == tile.WriteThrough {
					d := memcheckpoint.New()
					w.more.Journal, w.more.Checkpoint = d, d.Get
				}
				w.poisoned(cfg)
				again := w.fragile("a:1", cfg, &brittle{apply: choke})
				<-again.done
				before, q := w.quarantine()
				w.lift(q.At)
				follower := w.fragile("c:1", tile.Config{Follow: true}, &brittle{apply: choke})
				owner := w.fragile("b:1", cfg, &brittle{apply: choke})
				assert.Equal(t, stream.Applied, owner.say(t, "poison", "poison"), "the outcome stands")
				assert.Equal(t, stream.Applied, owner.say(t, "", "bread"))
				assert.Greater(t, owner.Status().Epoch, before.Epoch+1)
				words := w.history()
				assert.Equal(t, "bread", words[len(words)-1])
				slices.Sort(words)
				assert.Equal(t, []string{"bread", "water", "well", "wine"}, words)
				time.Sleep(5 * time.Second)
				assert.Equal(t, owner.Status().Position, follower.Status().Position)
				assert.Nil(t, follower.Status().Quarantine)
				require.NoError(t, follower.drain())
				require.NoError(t, owner.drain())
			})
		})
	}
}

// TestARewoundTileWritesThrough: its journal has what the operator has discarded, and the next owner leaves it there.
func TestARewoundTileWritesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(t), memcheckpoint.New()
		w.more.Journal, w.more.Checkpoint = d, d.Get
		cfg := tile.Config{TakeOver: true, Durability: tile.WriteThrough}
		w.poisoned(cfg)
		again := w.fragile("a:1", cfg, &brittle{apply: choke})
		<-again.done
		g, _ := w.quarantine()
		snap, found, err := w.log.Snapshot(t.Context(), testTile)
		require.NoError(t, err)
		require.True(t, found)
		last, err := w.log.Last(t.Context(), testTile)
		require.NoError(t, err)
		g, err = w.authority.Promote(t.Context(), fence.Claim{Tile: testTile, Contact: "tilectl",
			ID: fence.NewClaimID(), Expected: g.Epoch})
		require.NoError(t, err)
		_, err = w.store.Rebase(t.Context(), fence.Rebase{Tile: testTile, Epoch: g.Epoch, Contact: "tilectl",
			Seq: last.Seq + fence.RebaseJump, Tick: snap.Tick, Blob: snap.Blob})
		require.NoError(t, err)
		require.NoError(t, w.authority.Release(t.Context(), g))
		owner := w.fragile("b:1", cfg, &brittle{apply: choke})
		owner.say(t, "", "bread")
		assert.Equal(t, []string{"bread"}, w.history(), "of the first snapshot, which was empty")
		require.NoError(t, owner.drain())
	})
}

// TestTwoEventsAreLeftOut: the quarantine after the first remembers what was to be left out.
func TestTwoEventsAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.poisoned(tile.Config{})
		fails := func() {
			p := w.fragile("a:1", tile.Config{TakeOver: true}, &brittle{apply: func(events [][]byte) {
				choke(events)
				if slices.ContainsFunc(events, func(e []byte) bool { return string(e) == "water" }) {
					panic("wet")
				}
			}})
			<-p.done
			require.ErrorIs(t, p.err, tile.ErrQuarantined)
		}
		fails()
		_, first := w.quarantine()
		w.lift(first.At)
		fails()
		_, second := w.quarantine()
		require.NotEqual(t, first.At, second.At)
		require.Equal(t, []fence.EventRef{first.At}, second.Skip)
		w.lift(second.At)
		p := w.fragile("a:1", tile.Config{}, &brittle{apply: choke})
		p.say(t, "", "bread")
		require.NoError(t, p.drain())
		words := w.history()
		slices.Sort(words)
		assert.Equal(t, []string{"bread", "well", "wine"}, words)
	})
}

// TestAQuarantineThatIsLost: the authority was restored to a state before it, or the process that was to leave events
// out died before it had. The tile is tried again, and quarantined again; nothing that was committed is lost.
func TestAQuarantineThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.poisoned(tile.Config{})
		fails := func() fence.Quarantine {
			p := w.fragile("a:1", tile.Config{TakeOver: true}, &brittle{apply: choke})
			<-p.done
			require.ErrorIs(t, p.err, tile.ErrQuarantined)
			_, q := w.quarantine()
			return q
		}
		first := fails()
		w.lift(first.At)
		g, _ := w.quarantine()
		_, err := w.authority.Promote(t.Context(), fence.Claim{Tile: testTile, Contact: "dead:1",
			ID: fence.NewClaimID(), Expected: g.Epoch})
		require.NoError(t, err)
		require.Equal(t, first, fails())
		w.lift(first.At)
		p := w.start("b:1", tile.Config{})
		p.say(t, "", "bread")
		require.NoError(t, p.drain())
		assert.Len(t, w.history(), 4)
	})
}

// TestAnOwnerThatLives: followers that cannot fold what it commits quarantine the tile while it is paused. It goes on
// when it is back, since no process has taken the tile from it; and gives way when an operator lifts the quarantine.
func TestAnOwnerThatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		owner := w.start("a:1", tile.Config{})
		owner.say(t, "", "poison")
		g, err := w.authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		contact, err := fence.Quarantine{At: fence.EventRef{Seq: 2, Index: 1}, By: "b:1", Reason: "Apply"}.Contact()
		require.NoError(t, err)
		_, err = w.authority.Promote(t.Context(), fence.Claim{Tile: testTile, Contact: contact, ID: fence.NewClaimID(),
			Expected: g.Epoch})
		require.NoError(t, err)
		owner.say(t, "", "water")
		w.lift()
		next := w.start("c:1", tile.Config{})
		next.say(t, "", "wine")
		<-owner.done
		require.ErrorIs(t, owner.err, tile.ErrSuperseded)
		assert.Equal(t, []string{"poison", "water", "wine"}, w.history())
		require.NoError(t, next.drain())
	})
}

// TestAWarmFollowerLeavesAnEventOut: one whose rules can fold the event has folded it long ago.
func TestAWarmFollowerLeavesAnEventOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		follower := w.start("b:1", tile.Config{Follow: true, SuspectAfter: tile.NeverSuspect})
		w.poisoned(tile.Config{})
		again := w.fragile("c:1", tile.Config{TakeOver: true}, &brittle{apply: choke})
		<-again.done
		_, q := w.quarantine()
		time.Sleep(5 * time.Second)
		w.lift(q.At)
		follower.TakeOver(tile.Ordered)
		time.Sleep(5 * time.Second)
		follower.say(t, "", "bread")
		words := w.history()
		slices.Sort(words)
		assert.Equal(t, []string{"bread", "water", "well", "wine"}, words, "the operator wants it left out")
		require.NoError(t, follower.drain())
	})
}

// TestWhatWasToBeLeftOutIsForgotten by a follower that claimed the tile and did not come to serve it: another process
// has folded the event and served the tile since.
func TestWhatWasToBeLeftOutIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		cfg := tile.Config{Follow: true, SuspectAfter: tile.NeverSuspect}
		cfg.BootTimeout = time.Second
		follower := w.process("b:1", cfg)
		w.poisoned(tile.Config{})
		again := w.fragile("c:1", tile.Config{TakeOver: true}, &brittle{apply: choke})
		<-again.done
		_, q := w.quarantine()
		w.lift(q.At)
		follower.line.set(func(l *line) { l.readOnly = true })
		follower.TakeOver(tile.Ordered)
		time.Sleep(10 * time.Second)
		g, err := w.authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		require.Equal(t, "b:1", g.Contact, "it has claimed the tile")
		require.Equal(t, tile.Following, follower.Status().State, "in vain")

		other := w.process("d:1", tile.Config{TakeOver: true})
		other.say(t, "", "bread")
		words := w.history()
		require.Contains(t, words, "poison", "its rules can fold it, and no operator has let it be left out")
		other.kill()
		follower.line.set(func(l *line) { l.readOnly = false })
		follower.TakeOver(tile.Ordered)
		follower.eventually(t, tile.Serving, time.Minute)
		assert.Equal(t, words, w.history(), "what was served stays")
	})
}
