package viewcachetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

// Backend is a store that a Cache is tested on, and how to empty it.
type Backend struct {
	viewcache.Store
	Flush func()
}

// story is a coordination store and a store of views.
type story struct {
	*testing.T
	Backend
	*World
	mem  *memfence.Store
	log  *Log
	tile fence.TileID
}

// RunCache tests a viewcache.Cache on a back end: what may happen to the cache and to those who use it.
func RunCache(t *testing.T, open func(t *testing.T, limits *viewcache.Limits) Backend) {
	tell := func(name string, limits *viewcache.Limits, run func(s *story)) {
		t.Run(name, func(t *testing.T) {
			mem := memfence.New()
			s := &story{T: t, Backend: open(t, limits), World: &World{Store: mem, Bytes: 100}, mem: mem,
				log: &Log{Log: memstream.New(mem)}, tile: fence.TileID(rand.Uint64()>>1 | 1)}
			run(s)
		})
	}
	tell("OneRebuildAVersion", nil, oneRebuild)
	tell("AVersionIsExtended", nil, extended)
	tell("AnotherHistoryIsReadAnew", nil, anotherHistory)
	tell("ATailFollowsAPosition", nil, tails)
	tell("AnInventedTileLeavesNothing", nil, invented)
	tell("ADeadRebuilderIsReplaced", nil, deadRebuilder)
	tell("AHungRebuilderIsNotWaitedForLong", nil, hungRebuilder)
	tell("ALostAnnouncementCostsADelay", nil, lostAnnouncement)
	tell("ALateRebuilderOverwritesNothing", nil, lateRebuilder)
	tell("AStragglerReadsTheVersionItFound", nil, straggler)
	tell("AFlushRestartsNothing", nil, flushed)
	tell("DamageIsAMiss", nil, damage)
	tell("AnothersBytesAreAMiss", nil, foreign)
	tell("AMissingPartIsAMiss", nil, missingPart)
	tell("AStoreThatIsDownCostsNoTime", nil, down)
	tell("AStoreThatHangsCostsABoundedTime", nil, hangs)
	tell("ARebuildHoldsUpNoOtherTile", nil, otherTiles)
	tell("TimeDecidesNothing", &viewcache.Limits{Budget: 16 << 20, Grace: 50 * time.Millisecond}, audited)
}

// cache is the cache of one more relay. It takes a slow store for a slow store, not for one that hangs.
func (s *story) cache(on viewcache.Store, fresh time.Duration) *viewcache.Cache {
	s.Helper()
	c, err := viewcache.New(on, s.log, &viewcache.Config{Fresh: fresh, Timeout: 10 * time.Second})
	require.NoError(s, err)
	return c
}

// ticks commits batches.
func (s *story) ticks(n int) {
	s.Helper()
	for range n {
		_, err := s.Commit(s.Context(), s.tile)
		require.NoError(s, err)
	}
}

// played is a tile with a snapshot and a tail.
func (s *story) played() {
	s.Helper()
	s.ticks(3)
	require.NoError(s, s.Snapshot(s.Context(), s.tile))
	s.ticks(3)
}

// view reads a view and audits it.
func (s *story) view(c *viewcache.Cache, need fence.Position) viewcache.View {
	s.Helper()
	v, err := c.View(s.Context(), s.tile, need)
	require.NoError(s, err)
	require.NoError(s, s.Audit(s.tile, &v))
	return v
}

const (
	always = time.Hour       // everything is fresh
	never  = time.Nanosecond // nothing is
)

func oneRebuild(s *story) {
	s.log.Before = func(context.Context) error { // so that the others come meanwhile
		time.Sleep(5 * time.Millisecond)
		return nil
	}
	s.played()
	for version := range int64(5) {
		var wg sync.WaitGroup
		head := s.Head(s.tile)
		for range 8 {
			c := s.cache(s.Backend.Store, always)
			for range 4 {
				wg.Go(func() {
					v, err := c.View(s.Context(), s.tile, head)
					if err != nil || v.Position != head || s.Audit(s.tile, &v) != nil {
						s.Errorf("at %s: %v, %v", v.Position, err, s.Audit(s.tile, &v))
					}
				})
			}
		}
		wg.Wait()
		// The first is read whole, the others are extended.
		require.EqualValues(s, 1, s.log.Snapshots.Load(), "version %d", version)
		require.EqualValues(s, 1+version, s.log.Reads.Load(), "32 readers, one rebuild")
		require.Zero(s, s.log.Lasts.Load())
		s.ticks(1)
	}
}

func extended(s *story) {
	s.played()
	c := s.cache(s.Backend.Store, never)
	s.view(c, fence.Position{})
	calls := s.log.Calls()
	s.ticks(2)
	require.Equal(s, s.Head(s.tile), s.view(c, fence.Position{}).Position)
	_, err := s.TakeOver(s.Context(), s.tile)
	require.NoError(s, err)
	v := s.view(c, fence.Position{})
	require.Equal(s, s.Head(s.tile), v.Position)
	require.Equal(s, fence.Epoch(2), v.Owner.Epoch)
	require.Equal(s, calls+2, s.log.Calls(), "one call for each")
	s.view(c, fence.Position{})
	require.Equal(s, calls+3, s.log.Calls(), "nothing followed, which took one call to know")
	require.EqualValues(s, 1, c.Stats().Whole)
	s.ticks(stream.DefaultLimit) // the tail is long: it is time for a newer snapshot
	require.NoError(s, s.Snapshot(s.Context(), s.tile))
	s.view(c, fence.Position{})
	require.Empty(s, s.view(c, fence.Position{}).Entries)
	require.EqualValues(s, 2, c.Stats().Whole)
}

func anotherHistory(s *story) {
	s.played()
	c := s.cache(s.Backend.Store, never)
	s.view(c, fence.Position{})

	// The stream was trimmed past the version.
	s.ticks(3)
	require.NoError(s, s.Snapshot(s.Context(), s.tile))
	s.ticks(1)
	s.mem.Update(s.tile, func(st *memfence.State) { st.TrimBelow(st.Snapshot.Seq) })
	require.Equal(s, s.Head(s.tile), s.view(c, fence.Position{}).Position)

	// The store has lost the last batches: what it has is handed out, what it had stays until it is told otherwise.
	had := s.Head(s.tile)
	s.mem.Update(s.tile, func(st *memfence.State) {
		st.Entries = st.Entries[:len(st.Entries)-1]
		st.Owner.Position = st.Entries[len(st.Entries)-1].Position
	})
	v := s.view(c, fence.Position{})
	require.Less(s, v.Position.Seq, had.Seq)
	found, _, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	require.Equal(s, had, found.At)
	c.Forget(s.Context(), s.tile)
	s.view(c, fence.Position{})
	found, _, err = s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	require.Equal(s, v.Position, found.At)
	require.Positive(s, c.Stats().Older)
}

func tails(s *story) {
	s.played()
	c := s.cache(s.Backend.Store, always)
	before := s.view(c, fence.Position{})
	s.ticks(2)
	v, err := c.Tail(s.Context(), s.tile, before.Position, s.Head(s.tile))
	require.NoError(s, err)
	require.Len(s, v.Entries, 2)
	require.Equal(s, s.Head(s.tile), v.Position)
	for _, p := range []fence.Position{before.Snapshot.Position, before.Entries[0].Position} {
		v, err = c.Tail(s.Context(), s.tile, p, fence.Position{})
		require.NoError(s, err)
		require.Equal(s, p, v.Entries[0].Prev)
	}
	v, err = c.Tail(s.Context(), s.tile, at(2, 1, 1), fence.Position{})
	require.NoError(s, err)
	require.Empty(s, v.Entries, "the caller has more than there is")
	_, err = c.Tail(s.Context(), s.tile, at(1, 1, 1), fence.Position{})
	require.ErrorIs(s, err, stream.ErrGap)
	require.EqualValues(s, 3, s.log.Calls())
}

func invented(s *story) {
	c := s.cache(s.Backend.Store, always)
	v := s.view(c, fence.Position{})
	require.Zero(s, v.Position)
	u, err := s.Usage(s.Context())
	require.NoError(s, err)
	require.Zero(s, u)
	g, err := s.Lock(s.Context(), s.tile, viewcache.Version{}, time.Minute)
	require.NoError(s, err)
	require.NotZero(s, g.Token, "the lock ended with its holder")
}

func deadRebuilder(s *story) {
	s.played()
	const lease = 500 * time.Millisecond
	began := time.Now()
	g, err := s.Lock(s.Context(), s.tile, viewcache.Version{}, lease) // and never again a word from it
	require.NoError(s, err)
	require.NotZero(s, g.Token)
	c := s.cache(s.Backend.Store, never)
	s.view(c, fence.Position{})
	require.Greater(s, time.Since(began), lease/2)
	require.Zero(s, c.Stats().NotShared, "it took the lock itself")
	require.EqualValues(s, 1, c.Stats().Rebuilds)

	// With a version at hand nobody waits at all.
	found, _, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	_, err = s.Lock(s.Context(), s.tile, found, time.Minute)
	require.NoError(s, err)
	s.ticks(1)
	waits := c.Stats().Waits
	v := s.view(c, fence.Position{})
	require.Equal(s, waits, c.Stats().Waits)
	require.True(s, v.Stale)
	require.Equal(s, found.At, v.Position)
}

func hungRebuilder(s *story) {
	s.played()
	g, err := s.Lock(s.Context(), s.tile, viewcache.Version{}, time.Minute) // it renews, and gets nowhere
	require.NoError(s, err)
	require.NotZero(s, g.Token)
	c := s.cache(s.Backend.Store, never)
	began := time.Now()
	_, err = c.View(s.Context(), s.tile, fence.Position{})
	require.ErrorIs(s, err, viewcache.ErrNotShared)
	require.Less(s, time.Since(began), 30*time.Second, "of the minute that the lock lasts, it waits two seconds")
	ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = c.View(ctx, s.tile, fence.Position{})
	require.ErrorIs(s, err, context.DeadlineExceeded)
}

func lostAnnouncement(s *story) {
	s.played()
	begun, release := make(chan struct{}), make(chan struct{})
	s.log.Before = func(context.Context) error {
		select {
		case begun <- struct{}{}:
		case <-release:
		}
		<-release
		return nil
	}
	slow := s.cache(s.Backend.Store, never)
	done := make(chan error, 1)
	go func() {
		_, err := slow.View(s.Context(), s.tile, fence.Position{})
		done <- err
	}()
	<-begun
	store := &Broken{Store: s.Backend.Store, Deaf: true}
	deaf := s.cache(store, always)
	seen := make(chan error, 1)
	go func() {
		v, err := deaf.View(s.Context(), s.tile, fence.Position{})
		seen <- errors.Join(err, s.Audit(s.tile, &v))
	}()
	// Before it waits it looks twice, and when it has waited for long enough once more.
	require.Eventually(s, func() bool { return store.Looks.Load() > 3 }, 10*time.Second, time.Millisecond,
		"it does not look for itself")
	close(release)
	require.NoError(s, <-done)
	require.NoError(s, <-seen)
	require.EqualValues(s, 1, deaf.Stats().Waits)
	require.Zero(s, deaf.Stats().Rebuilds)
	require.EqualValues(s, 2, s.log.Calls())
}

func lateRebuilder(s *story) {
	s.played()
	paused, resume := make(chan struct{}), make(chan struct{})
	late := s.cache(&Broken{Store: s.Backend.Store, NoRenewal: true, BeforePut: func() {
		close(paused)
		<-resume
	}}, never)
	done := make(chan viewcache.View, 1)
	go func() {
		v, err := late.View(s.Context(), s.tile, fence.Position{})
		if err != nil {
			s.Error(err)
		}
		done <- v
	}()
	<-paused // it has read the log, and stops for longer than its lock lasts
	s.ticks(2)
	other := s.cache(s.Backend.Store, never)
	require.Equal(s, s.Head(s.tile), s.view(other, fence.Position{}).Position, "another took its place")
	close(resume)
	v := <-done
	require.NoError(s, s.Audit(s.tile, &v))
	require.True(s, v.Stale)
	require.Less(s, v.Position.Seq, s.Head(s.tile).Seq)
	found, _, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	require.Equal(s, s.Head(s.tile), found.At, "what is newer stays")
	require.EqualValues(s, 1, late.Stats().Older)
}

func straggler(s *story) {
	s.played()
	c := s.cache(s.Backend.Store, never)
	s.view(c, fence.Position{})
	old := s.Head(s.tile)
	slow := s.cache(&Broken{Store: s.Backend.Store, BeforeRead: sync.OnceFunc(func() {
		for range 5 { // between the two steps of its read
			s.ticks(1)
			require.NoError(s, s.Snapshot(s.Context(), s.tile))
			s.view(c, fence.Position{})
		}
	})}, always)
	require.Equal(s, old, s.view(slow, fence.Position{}).Position)
	require.Zero(s, slow.Stats().Missing)
}

func flushed(s *story) {
	s.played()
	c := s.cache(s.Backend.Store, always)
	s.view(c, fence.Position{})
	late := &Broken{Store: s.Backend.Store}
	late.BeforePut = func() { // between the read of the log and the put
		late.BeforePut = nil
		s.Flush()
		s.ticks(1)
		s.view(c, s.Head(s.tile))
	}
	v := s.view(s.cache(late, never), fence.Position{})
	require.Less(s, v.Position.Seq, s.Head(s.tile).Seq)
	found, _, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	require.Equal(s, s.Head(s.tile), found.At, "the version did not begin anew, so that the late one still is late")
	s.Flush()
	require.Equal(s, s.Head(s.tile), s.view(c, fence.Position{}).Position)
}

func damage(s *story) {
	s.played()
	s.view(s.cache(s.Backend.Store, always), fence.Position{})
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range 300 {
		broken := &Broken{Store: s.Backend.Store, Change: func(b []byte) []byte {
			switch at := r.IntN(max(len(b), 1)); {
			case len(b) == 0:
				return nil
			case r.IntN(3) == 0:
				return b[:at]
			case r.IntN(3) == 0:
				return append(b, b[at:]...)
			default:
				b[at] ^= 1 << r.IntN(8)
				return b
			}
		}}
		c := s.cache(broken, always)
		require.Equal(s, s.Head(s.tile), s.view(c, fence.Position{}).Position, "seed %d", seed)
		require.EqualValues(s, 1, c.Stats().Corrupt, "round %d, seed %d", i, seed)
	}
}

// foreign: whole values that are not what they should be.
func foreign(s *story) {
	s.played()
	c := s.cache(s.Backend.Store, never)
	s.view(c, fence.Position{})
	first, _, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	base, tail, err := s.Values(s.Context(), s.tile, first, true)
	require.NoError(s, err)
	other := s.tile
	for viewcache.GroupOf(s.tile) != viewcache.GroupOf(other) || s.tile == other {
		s.tile++
	}
	s.played()
	s.ticks(1)
	head := s.Head(s.tile)
	for name, p := range map[string]viewcache.Put{
		"another tile's":           {At: head, Base: first.Base, Tail: tail, Snapshot: base},
		"another version's":        {Tile: other, At: at(9, 9, 9), Base: first.Base, Tail: tail, Snapshot: base},
		"a tail for a base":        {Tile: other, At: first.At, Base: first.Base, Tail: tail, Snapshot: tail},
		"a base for a tail":        {Tile: other, At: first.At, Base: first.Base, Tail: base, Snapshot: base},
		"nothing of ours":          {At: head, Tail: []byte("GET / HTTP/1.1")},
		"the place of another one": {Tile: other, At: first.At, Base: at(1, 2, 3), Tail: tail, Snapshot: base},
	} {
		if p.Tile == 0 {
			p.Tile = s.tile
		}
		s.Flush()
		verdict, err := s.Put(s.Context(), p)
		require.NoError(s, err, name)
		require.Equal(s, viewcache.Stored, verdict, name)
		c := s.cache(s.Backend.Store, always)
		v, err := c.View(s.Context(), p.Tile, fence.Position{})
		require.NoError(s, err, name)
		require.NoError(s, s.Audit(p.Tile, &v), name)
		require.Equal(s, s.Head(p.Tile), v.Position, name)
		require.EqualValues(s, 1, c.Stats().Corrupt, name)
		v, err = c.View(s.Context(), p.Tile, fence.Position{})
		require.NoError(s, err, name)
		require.NoError(s, s.Audit(p.Tile, &v), name)
		require.EqualValues(s, 1, c.Stats().Hits, "%s: it was replaced", name)
	}
}

func missingPart(s *story) {
	s.played()
	s.view(s.cache(s.Backend.Store, always), fence.Position{})
	c := s.cache(&Broken{Store: s.Backend.Store, Change: func([]byte) []byte { return nil }}, always)
	require.Equal(s, s.Head(s.tile), s.view(c, fence.Position{}).Position)
	require.EqualValues(s, 1, c.Stats().Missing)
	require.Zero(s, c.Stats().Corrupt)
}

func down(s *story) {
	s.played()
	store := &Broken{Store: s.Backend.Store}
	store.Down.Store(true)
	c := s.cache(store, always)
	began := time.Now()
	for range 1000 {
		_, err := c.View(s.Context(), s.tile, fence.Position{})
		require.ErrorIs(s, err, viewcache.ErrNotShared)
	}
	require.LessOrEqual(s, c.Stats().Failures, 4+uint64(time.Since(began)/time.Second),
		"it is left alone for a second after three failures")
	store.Down.Store(false)
	require.Eventually(s, func() bool {
		v, err := c.View(s.Context(), s.tile, fence.Position{})
		return err == nil && s.Audit(s.tile, &v) == nil
	}, 5*time.Second, 10*time.Millisecond, "and used again soon after it is back")

	// It fails between the read of the log and the put: the view is handed out all the same.
	broken := &Broken{Store: s.Backend.Store}
	broken.BeforePut = func() { broken.Down.Store(true) }
	s.ticks(1)
	require.Equal(s, s.Head(s.tile), s.view(s.cache(broken, never), fence.Position{}).Position)
}

func hangs(s *story) {
	s.played()
	store := &Broken{Store: s.Backend.Store}
	s.view(s.cache(store, always), fence.Position{})
	c, err := viewcache.New(store, s.log, &viewcache.Config{Fresh: always, Timeout: 50 * time.Millisecond})
	require.NoError(s, err)
	store.Hang.Store(true)
	view := func() {
		if _, err := c.View(s.Context(), s.tile, fence.Position{}); !errors.Is(err, viewcache.ErrNotShared) {
			s.Errorf("not %v", err)
		}
	}
	var wg sync.WaitGroup
	for range 16 { // those under way wait for one timeout
		wg.Go(view)
	}
	wg.Wait()
	var failed []time.Time
	for n := c.Stats().Failures; len(failed) < 2; time.Sleep(5 * time.Millisecond) {
		if view(); c.Stats().Failures > n {
			n = c.Stats().Failures
			failed = append(failed, time.Now())
		}
	}
	require.Greater(s, failed[1].Sub(failed[0]), time.Second, "after that one read a second waits for one")
	store.Hang.Store(false)
	require.Eventually(s, func() bool {
		_, err := c.View(s.Context(), s.tile, fence.Position{})
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
}

func otherTiles(s *story) {
	first := s.tile
	s.played()
	release := make(chan struct{})
	s.log.Before = func(context.Context) error {
		<-release
		return nil
	}
	done := make(chan error, 1)
	c := s.cache(s.Backend.Store, never)
	go func() {
		_, err := c.View(s.Context(), first, fence.Position{})
		done <- err
	}()
	for s.log.Calls() == 0 {
		time.Sleep(time.Millisecond)
	}
	for viewcache.GroupOf(s.tile) != viewcache.GroupOf(first) || s.tile == first {
		s.tile++ // of the same group
	}
	s.played()
	free, err := viewcache.New(s.Backend.Store, s.log.Log, nil)
	require.NoError(s, err)
	s.view(free, fence.Position{})
	require.Zero(s, free.Stats().Waits)
	close(release)
	require.NoError(s, <-done)
}

// audited lets everything happen at once, and has every view audited.
func audited(s *story) {
	const relays, tiles = 4, 3
	ctx, cancel := context.WithTimeout(s.Context(), 1500*time.Millisecond)
	defer cancel()
	var reads atomic.Int64
	var wg sync.WaitGroup
	for t := range fence.TileID(tiles) {
		tile := s.tile + t
		_, err := s.Commit(s.Context(), tile)
		require.NoError(s, err)
		wg.Go(func() { s.own(ctx, tile) })
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			s.Flush()
		}
	})
	for i := range relays {
		c := s.cache(s.Backend.Store, []time.Duration{never, time.Millisecond, 20 * time.Millisecond, always}[i])
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					s.auditOne(c, s.tile+fence.TileID(rand.IntN(tiles)))
					reads.Add(1)
				}
			})
		}
	}
	wg.Wait()
	s.Logf("%d views", reads.Load())
	require.Positive(s, reads.Load())
}

// own does to a tile what its owners do, until ctx ends.
func (s *story) own(ctx context.Context, tile fence.TileID) {
	for ctx.Err() == nil {
		var err error
		switch rand.IntN(20) {
		case 0:
			_, err = s.TakeOver(s.Context(), tile)
		case 1:
			err = s.Snapshot(s.Context(), tile)
		case 2:
			s.mem.Update(tile, func(st *memfence.State) {
				if st.Snapshot != nil {
					st.TrimBelow(st.Snapshot.Seq)
				}
			})
		default:
			_, err = s.Commit(s.Context(), tile)
		}
		if err != nil {
			s.Error(err)
		}
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
	}
}

// auditOne reads one view, whichever it is given or one that reaches the head.
func (s *story) auditOne(c *viewcache.Cache, tile fence.TileID) {
	var need fence.Position
	if rand.IntN(2) == 0 {
		need = s.Head(tile)
	}
	v, err := c.View(s.Context(), tile, need)
	if err == nil {
		err = s.Audit(tile, &v)
	}
	if err != nil && !errors.Is(err, viewcache.ErrNotShared) {
		s.Error(err)
	}
	if err == nil && !v.Stale && (v.Position.Epoch < need.Epoch || v.Position.Seq < need.Seq) {
		s.Errorf("a view of tile %s ends at %s and had to reach %s", tile, v.Position, need)
	}
}
