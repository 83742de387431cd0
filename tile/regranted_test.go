package tile_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/tile"
)

// sleepers are processes of one tile that sleep and wake, over stores that are set back.
type sleepers struct {
	*testing.T
	w         *world
	authority *restorable
	lines     []*line
	owners    []*runner
}

func newSleepers(t *testing.T) *sleepers {
	return &sleepers{T: t, w: newWorld(t), authority: &restorable{now: memfence.NewAuthority()}}
}

// takes starts another process, which takes the tile.
func (s *sleepers) takes(cfg tile.Config) *runner {
	s.Helper()
	l := &line{w: s.w}
	cfg.TakeOver = true
	r := startOn(s.T, l.seams(s.authority), fmt.Sprintf("%c:1", 'a'+len(s.lines)), cfg)
	s.lines, s.owners = append(s.lines, l), append(s.owners, r)
	return r
}

func (s *sleepers) sleep(i int) { s.lines[i].set(func(l *line) { l.paused = make(chan struct{}) }) }

func (s *sleepers) wake(i int) {
	s.lines[i].set(func(l *line) {
		if l.paused != nil {
			close(l.paused)
			l.paused = nil
		}
	})
}

func (s *sleepers) copy() (c memfence.State) {
	s.w.store.Update(testTile, func(now *memfence.State) {
		c = *now
		c.Entries = slices.Clone(now.Entries)
	})
	return c
}

// setBack makes every copy an older one, and the authority when the tile was its first owner's.
func (s *sleepers) setBack(to memfence.State) {
	time.Sleep(time.Second)
	s.w.store.Update(testTile, func(now *memfence.State) { *now = to })
	s.authority.restore(s.T, true)
}

// end lets all of them end.
func (s *sleepers) end() {
	for i, r := range s.owners {
		s.wake(i)
		r.stop()
		<-r.done
	}
}

// TestAnEpochThatWasGrantedTwice: an owner sleeps. Its tile is set back to before its predecessor, whose epoch is
// granted again to another, which goes on. By its numbers alone that one's history would be a part of the sleeper's.
func TestAnEpochThatWasGrantedTwice(t *testing.T) {
	for _, words := range []int{1, 8} {
		t.Run(fmt.Sprint(words), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSleepers(t)
				defer s.end()
				s.takes(tile.Config{}).say(t, "x", "one")
				s.sleep(0)
				before := s.copy()
				b := s.takes(tile.Config{})
				for _, word := range []string{"b1", "b2", "b3"} {
					b.say(t, word, word)
				}
				s.sleep(1)
				c := s.takes(tile.Config{})
				c.say(t, "z", "c1")
				s.sleep(2)
				s.setBack(before)
				d := s.takes(tile.Config{})
				for i := range words {
					d.say(t, "", fmt.Sprint("d", i))
				}
				require.EqualValues(t, 2, d.Status().Epoch)
				confirmed := s.w.history()
				s.wake(2)
				time.Sleep(20 * time.Second)
				assert.Equal(t, tile.StoodDown, c.Status().State)
				assert.Equal(t, confirmed, s.w.history())
			})
		})
	}
}

// TestAnOwnersEarlierEpochIsGrantedToAnother: an owner has held two epochs, and sleeps. Its tile is set back to before
// both, and another owner is granted the first of them, has its batches confirmed, and dies.
func TestAnOwnersEarlierEpochIsGrantedToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleepers(t)
		defer s.end()
		s.takes(tile.Config{}).say(t, "x", "one")
		s.sleep(0)
		before := s.copy()
		b := s.takes(tile.Config{})
		b.say(t, "y", "b1")
		require.EqualValues(t, 2, b.Status().Epoch)
		s.authority.restore(t, true)
		s.w.store.Update(testTile, func(now *memfence.State) { now.Owner = fence.Owner{} })
		b.say(t, "z", "b2")
		require.EqualValues(t, 3, b.Status().Epoch, "the authority had forgotten it")
		s.sleep(1)
		s.setBack(before)
		d := s.takes(tile.Config{})
		for i := range 3 {
			d.say(t, "", fmt.Sprint("d", i))
		}
		require.EqualValues(t, 2, d.Status().Epoch)
		confirmed := s.w.history()
		s.sleep(2)
		s.w.store.Update(testTile, func(now *memfence.State) { now.Owner = fence.Owner{} })
		s.wake(1)
		b.say(t, "", "b3")
		assert.Equal(t, append(confirmed, "b3"), s.w.history())
	})
}

// TestAnOwnerGoesOnAboveTheCheckpoint: an owner that slept goes on from memory, or where it was, since every copy is
// lost that came after, and a later owner's checkpoint is there. What it commits from then on is not replaced by that
// at the next take-over.
func TestAnOwnerGoesOnAboveTheCheckpoint(t *testing.T) {
	for _, left := range []bool{false, true} {
		for _, known := range []bool{true, false} {
			name := fmt.Sprintf("its own history is left=%t, the authority knows it=%t", left, known)
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testAboveTheCheckpoint(t, left, known) })
			})
		}
	}
}

func testAboveTheCheckpoint(t *testing.T, left, known bool) {
	s := newSleepers(t)
	defer s.end()
	var d durable
	s.w.more.Checkpoint = d.read
	var cfg tile.Config
	a := s.takes(cfg)
	a.say(t, "x", "one")
	s.sleep(0)
	var before memfence.State
	if left {
		before = s.copy()
		before.Owner = fence.Owner{}
	}
	b := s.takes(cfg)
	b.say(t, "y", "b1")
	s.sleep(1)
	c := s.takes(cfg)
	c.say(t, "z", "c1")
	require.NoError(t, c.drain())
	var err error
	d.snap, d.found, err = s.w.log.Snapshot(t.Context(), testTile)
	require.NoError(t, err)
	require.EqualValues(t, 3, d.snap.Epoch)
	s.setBack(before)
	s.authority.restore(t, known)
	s.wake(0)
	for i := range 30 {
		a.say(t, "", fmt.Sprint("a", i))
	}
	require.Greater(t, a.Status().Epoch, d.snap.Epoch)
	confirmed := s.w.history()
	s.sleep(0)
	time.Sleep(time.Second)
	e := s.takes(cfg)
	e.say(t, "", "e1")
	assert.Equal(t, append(confirmed, "e1"), s.w.history())
}

// TestAnOwnerKnowsItsHistoryAfterManyAttempts: an owner that could not decide for long whether another has gone on in
// its place still knows what is its own.
func TestAnOwnerKnowsItsHistoryAfterManyAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleepers(t)
		defer s.end()
		early := s.takes(tile.Config{})
		early.say(t, "x", "one")
		s.sleep(0)
		before := s.copy()
		l := &line{w: s.w}
		s.lines = append(s.lines, l)
		seams := l.seams(s.authority)
		store := &doubtful{Store: seams.Store}
		asks := &interrupted{Authority: seams.Authority}
		seams.Store, seams.Authority = store, asks
		late := startOn(t, seams, "b:1", tile.Config{TakeOver: true})
		s.owners = append(s.owners, late)
		late.say(t, "y", "two")
		replica := s.copy() // goes down here
		late.say(t, "y2", "three")
		s.sleep(1)
		store.doubts.Store(true)
		asks.meanwhile = func() {
			s.wake(0)
			early.say(t, "z", "other")
			s.sleep(0)
		}
		s.setBack(before)
		s.wake(1)
		time.Sleep(15 * time.Second)
		replica.Owner = fence.Owner{} // the master dies, and the replica comes back in its place
		s.w.store.Update(testTile, func(now *memfence.State) { *now = replica })
		store.doubts.Store(false)
		time.Sleep(20 * time.Second)
		assert.Equal(t, tile.Serving, late.Status().State)
		assert.Equal(t, []string{"one", "two", "three"}, s.w.history())
	})
}
