package viewcachetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
)

func deadRebuilder(s *story) {
	s.played()
	const lease = 500 * time.Millisecond
	began := time.Now()
	g, err := s.Lock(s.Context(), s.tile, viewstore.Version{}, lease) // and never again a word from it
	require.NoError(s, err)
	require.NotZero(s, g.Token)
	c := s.cache(s.Backend.Store, never)
	s.view(c, fence.Position{})
	require.Greater(s, time.Since(began), lease/2)
	require.Zero(s, c.Stats().NotShared, "it took the lock itself")
	require.EqualValues(s, 1, c.Stats().Rebuilds)

	// With a version at hand no reader waits.
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
	g, err := s.Lock(s.Context(), s.tile, viewstore.Version{}, time.Minute) // it renews, and gets nowhere
	require.NoError(s, err)
	require.NotZero(s, g.Token)
	c := s.cache(s.Backend.Store, never)
	began := time.Now()
	_, err = c.View(s.Context(), s.tile, fence.Position{})
	require.ErrorIs(s, err, viewcache.ErrNotShared)
	require.Less(s, time.Since(began), 5*time.Second, "of the minute that the lock lasts, it waits two seconds")
	ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = c.View(ctx, s.tile, fence.Position{})
	require.ErrorIs(s, err, context.DeadlineExceeded)
}

// free fails if the lock of the tile is held.
func (s *story) free() {
	s.Helper()
	newest, _, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	g, err := s.Lock(s.Context(), s.tile, newest, time.Minute)
	require.NoError(s, err)
	require.NotZero(s, g.Token, "the lock is held")
	require.NoError(s, s.Unlock(s.Context(), s.tile, g.Token))
}

func failedRebuild(s *story) {
	s.played()
	down := errors.New("the log is down")
	s.log.Before = func(context.Context) error { return down }
	_, err := s.cache(s.Backend.Store, never).View(s.Context(), s.tile, fence.Position{})
	require.ErrorIs(s, err, down)
	s.free()
}

// leavingRebuilder: a relay drains while it reads the log, or when it has read it.
func leavingRebuilder(s *story) {
	s.played()
	ctx, leave := context.WithCancel(s.Context())
	s.log.Before = func(ctx context.Context) error {
		leave()
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := s.cache(s.Backend.Store, never).View(ctx, s.tile, fence.Position{})
	require.ErrorIs(s, err, context.Canceled)
	s.free()

	s.log.Before = nil
	ctx, leave = context.WithCancel(s.Context())
	c, err := viewcache.New(s.Backend.Store, &leavingLog{s.log, leave}, Keys, nil)
	require.NoError(s, err)
	v, err := c.View(ctx, s.tile, fence.Position{})
	require.NoError(s, err)
	require.Equal(s, s.Head(s.tile), v.Position)
	s.free()
}

// leavingLog is the log of a reader that leaves when it has read a tile.
type leavingLog struct {
	stream.Log
	leave context.CancelFunc
}

// Read implements stream.Log.
func (l *leavingLog) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	defer l.leave()
	return l.Log.Read(ctx, cursors)
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
	r := seed.Rand(s.T)
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
		require.Equal(s, s.Head(s.tile), s.view(c, fence.Position{}).Position)
		require.EqualValues(s, 1, c.Stats().Corrupt, "round %d", i)
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
	for viewstore.GroupOf(s.tile) != viewstore.GroupOf(other) || s.tile == other {
		s.tile++
	}
	s.played()
	s.ticks(1)
	head := s.Head(s.tile)
	for name, p := range map[string]viewstore.Put{
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
		require.Equal(s, viewstore.Stored, verdict, name)
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
	waittest.Until(s, func() bool {
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
	c, err := viewcache.New(store, s.log, Keys, &viewcache.Config{Fresh: always, Timeout: 50 * time.Millisecond})
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
	waittest.Until(s, func() bool {
		_, err := c.View(s.Context(), s.tile, fence.Position{})
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
}

// hangsMeanwhile: a relay that has read a view does not wait for more than one call that would give it to others.
func hangsMeanwhile(s *story) {
	s.played()
	store := &Broken{Store: s.Backend.Store}
	c, err := viewcache.New(store, s.log, Keys, &viewcache.Config{Timeout: 50 * time.Millisecond})
	require.NoError(s, err)
	s.log.Before = func(context.Context) error {
		store.Hang.Store(true)
		return nil
	}
	s.view(c, fence.Position{})
	require.EqualValues(s, 1, store.Hung.Load())
}

// busyRelay: a relay that reads as many tiles as it may leaves the next one to a relay that has time.
func busyRelay(s *story) {
	const most = 16
	release := make(chan struct{})
	log := &Log{Log: s.log.Log, Before: func(ctx context.Context) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	store := &Broken{Store: s.Backend.Store}
	busy, err := viewcache.New(store, log, Keys, nil)
	require.NoError(s, err)
	var work errgroup.Group
	for i := range most + 1 {
		tile := s.tile + fence.TileID(i)
		_, err := s.Commit(s.Context(), tile)
		require.NoError(s, err)
		if i == most {
			waittest.Until(s, func() bool { return log.Reads.Load()+log.Snapshots.Load() >= most }, 10*time.Second,
				time.Millisecond)
		}
		work.Go(func() error {
			_, err := busy.View(s.Context(), tile, fence.Position{})
			return err
		})
	}
	waittest.Until(s, func() bool { return store.Looks.Load() > most }, 10*time.Second, time.Millisecond)
	v, err := s.cache(s.Backend.Store, always).View(s.Context(), s.tile+most, fence.Position{})
	require.NoError(s, err)
	require.Equal(s, s.Head(s.tile+most), v.Position)
	close(release)
	require.NoError(s, work.Wait())
	require.EqualValues(s, most, busy.Stats().Rebuilds, "the other one read it")
}
