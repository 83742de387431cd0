package viewcachetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

// Backend is a store that a Cache is tested on, and how to empty it.
type Backend struct {
	viewstore.Store
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

// RunCache tests a viewcache.Cache on a back end: what may happen to the cache and to the relays that use it. inMemory
// is for a back end that lies in this process: stories that wait long run in a bubble of package synctest, where that
// takes no time.
func RunCache(t *testing.T, inMemory bool, open func(t *testing.T, limits *viewstore.Limits) Backend) {
	waits := []string{"AStoreThatHangsCostsABoundedTime", "AHungRebuilderIsNotWaitedForLong",
		"ALateRebuilderOverwritesNothing"}
	tell := func(name string, limits *viewstore.Limits, run func(s *story)) {
		inside := func(t *testing.T) {
			mem := memfence.New()
			s := &story{T: t, Backend: open(t, limits), World: &World{Store: mem, Bytes: 100}, mem: mem,
				log: &Log{Log: memstream.New(mem)}, tile: fence.TileID(rand.Uint64()>>1 | 1)}
			run(s)
		}
		if inMemory && slices.Contains(waits, name) {
			t.Run(name, func(t *testing.T) { synctest.Test(t, inside) })
		} else {
			t.Run(name, inside)
		}
	}
	tell("OneRebuildAVersion", nil, oneRebuild)
	tell("AVersionIsExtended", nil, extended)
	tell("AnotherHistoryIsReadAnew", nil, anotherHistory)
	tell("ATailFollowsAPosition", nil, tails)
	tell("AnInventedTileLeavesNothing", nil, invented)
	tell("ADeadRebuilderIsReplaced", nil, deadRebuilder)
	tell("AHungRebuilderIsNotWaitedForLong", nil, hungRebuilder)
	tell("AFailedRebuildEndsItsLock", nil, failedRebuild)
	tell("ARebuilderThatLeavesEndsItsLock", nil, leavingRebuilder)
	tell("ALostAnnouncementCostsADelay", nil, lostAnnouncement)
	tell("ALateRebuilderOverwritesNothing", nil, lateRebuilder)
	tell("AStragglerReadsTheVersionItFound", nil, straggler)
	tell("AFlushRestartsNothing", nil, flushed)
	tell("DamageIsAMiss", nil, damage)
	tell("AnothersBytesAreAMiss", nil, foreign)
	tell("WhatHasNoTagIsRefused", nil, forged)
	tell("AMissingPartIsAMiss", nil, missingPart)
	tell("AStoreThatIsDownCostsNoTime", nil, down)
	tell("AStoreThatHangsCostsABoundedTime", nil, hangs)
	tell("AStoreThatHangsInARebuild", nil, hangsMeanwhile)
	tell("ARebuildHoldsUpNoOtherTile", nil, otherTiles)
	tell("ABusyRelayLeavesTheLock", nil, busyRelay)
	tell("TimeDecidesNothing", &viewstore.Limits{Budget: 16 << 20, Grace: 50 * time.Millisecond}, audited)
}

// Keys are those of the relays that share views in tests.
var Keys = [][]byte{[]byte("the relays of a test")}

// cache is the cache of one more relay. It takes a slow store for a slow store, not for one that hangs.
func (s *story) cache(on viewstore.Store, fresh time.Duration) *viewcache.Cache {
	s.Helper()
	c, err := viewcache.New(on, s.log, Keys, &viewcache.Config{Fresh: fresh, Timeout: 10 * time.Second})
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

// extended is also what the hook says of each rebuild.
func extended(s *story) {
	s.played()
	var rebuilt []viewcache.RebuildInfo
	c, err := viewcache.New(s.Backend.Store, s.log, Keys, &viewcache.Config{Fresh: never, Timeout: 10 * time.Second,
		Hooks: viewcache.Hooks{Rebuilt: func(i viewcache.RebuildInfo) { rebuilt = append(rebuilt, i) }}})
	require.NoError(s, err)
	s.view(c, fence.Position{})
	calls := s.log.Calls()
	s.ticks(2)
	require.Equal(s, s.Head(s.tile), s.view(c, fence.Position{}).Position)
	_, err = s.TakeOver(s.Context(), s.tile)
	require.NoError(s, err)
	v := s.view(c, fence.Position{})
	require.Equal(s, s.Head(s.tile), v.Position)
	require.Equal(s, fence.Epoch(2), v.Owner.Epoch)
	require.Equal(s, calls+2, s.log.Calls(), "one call for each")
	s.view(c, fence.Position{})
	require.Equal(s, calls+3, s.log.Calls(), "nothing followed, which took one call to know")
	require.EqualValues(s, 1, c.Stats().Whole)
	require.Len(s, rebuilt, 4)
	for i, info := range rebuilt {
		require.Positive(s, info.Took)
		info.Took = 0
		verdict := viewstore.Stored.String()
		if i == 3 {
			verdict = viewstore.Confirmed.String()
		}
		require.Equal(s, viewcache.RebuildInfo{Tile: s.tile, Position: info.Position, Whole: i == 0, Verdict: verdict},
			info)
	}
	require.Equal(s, s.Head(s.tile), rebuilt[3].Position)
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

	// The store has lost the last batches: what it has is handed out, what it had stays until a rebuild replaces it.
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

	// The dead owner's hash has ended, and then everything: no old word is confirmed.
	s.mem.Update(s.tile, func(st *memfence.State) { st.Owner = fence.Owner{} })
	require.False(s, s.view(c, fence.Position{}).Owner.Present())
	s.mem.Update(s.tile, func(st *memfence.State) { *st = memfence.State{} })
	v, err = c.View(s.Context(), s.tile, fence.Position{})
	require.NoError(s, err)
	require.Zero(s, v.Position)
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
	g, err := s.Lock(s.Context(), s.tile, viewstore.Version{}, time.Minute)
	require.NoError(s, err)
	require.NotZero(s, g.Token, "the lock ended with its holder")
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
	// Before it waits it looks once, and when it has waited for long enough once more.
	waittest.Until(s, func() bool { return store.Looks.Load() > 2 }, 10*time.Second, time.Millisecond,
		"it does not look for itself")
	close(release)
	require.NoError(s, <-done)
	require.NoError(s, <-seen)
	require.EqualValues(s, 1, deaf.Stats().Waits)
	require.Zero(s, deaf.Stats().Rebuilds)
	require.EqualValues(s, 2, s.log.Calls())
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
	for viewstore.GroupOf(s.tile) != viewstore.GroupOf(first) || s.tile == first {
		s.tile++ // of the same group
	}
	s.played()
	free, err := viewcache.New(s.Backend.Store, s.log.Log, Keys, nil)
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
			s.Empty(s.Flush)
		}
	})
	for i := range relays {
		fresh := []time.Duration{never, time.Millisecond, 20 * time.Millisecond, always}[i]
		c := s.cache(s.Backend.Store, fresh)
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					s.auditOne(c, fresh, s.tile+fence.TileID(rand.IntN(tiles)))
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
func (s *story) auditOne(c *viewcache.Cache, fresh time.Duration, tile fence.TileID) {
	var need fence.Position
	if rand.IntN(2) == 0 {
		need = s.Head(tile)
	}
	r := s.Begin(tile, fresh+RebuildLimit)
	v, err := c.View(s.Context(), tile, need)
	if err == nil {
		err = r.Audit(&v)
	}
	if err != nil && !errors.Is(err, viewcache.ErrNotShared) {
		s.Error(err)
	}
	if err == nil && !v.Stale && earlier(v.Position, need) {
		s.Errorf("a view of tile %s ends at %s and had to reach %s", tile, v.Position, need)
	}
}
