package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
)

// memoryViews is a store of views that a test can make fail.
type memoryViews struct {
	*viewstore.Memory
	t      testing.TB
	down   atomic.Bool
	caches []*viewcache.Cache
}

func newMemoryViews(t testing.TB) *memoryViews {
	m, err := viewstore.NewMemory(&viewstore.Limits{Budget: 16 << 20, Grace: 20 * time.Millisecond})
	require.NoError(t, err)
	return &memoryViews{Memory: m, t: t}
}

// cache is the cache of one more relay.
func (m *memoryViews) cache(log stream.Log) *viewcache.Cache {
	c, err := viewcache.New(m, log, viewcachetest.Keys, &viewcache.Config{Fresh: 20 * time.Millisecond})
	require.NoError(m.t, err)
	m.caches = append(m.caches, c)
	return c
}

func (m *memoryViews) Lock(
	ctx context.Context, tile fence.TileID, seen viewstore.Version, lease time.Duration,
) (viewstore.Grant, error) {
	if m.down.Load() {
		return viewstore.Grant{}, errors.New("the store of views is down")
	}
	return m.Memory.Lock(ctx, tile, seen, lease)
}

// trouble is what may happen to a cache.
func (m *memoryViews) trouble(r *rand.Rand, tile fence.TileID) {
	switch r.IntN(4) {
	case 0:
		m.Flush()
	case 1:
		m.Corrupt(tile, func(b []byte) []byte {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			return b
		})
	default:
		m.down.Store(r.IntN(3) == 0)
	}
}

func (m *memoryViews) log() {
	for _, c := range m.caches {
		m.t.Logf("%+v", c.Stats())
	}
}

// TestRelaysShareColdReads: what one relay has read, the others are given.
func TestRelaysShareColdReads(t *testing.T) {
	w, views := newWorld(t), newMemoryViews(t)
	o := w.claim(tileA, 1)
	o.tickOn(3)
	o.snapshot()
	o.tickOn(3)
	var relays []*server
	var shared atomic.Uint64
	for range 4 {
		cfg := still()
		cfg.Hooks.Repaired = func(i RepairInfo) {
			if i.Shared {
				shared.Add(1)
			}
		}
		c, err := viewcache.New(views, w.log, viewcachetest.Keys, &viewcache.Config{Fresh: time.Minute})
		require.NoError(t, err)
		cfg.Views = c
		relays = append(relays, w.serve(cfg))
	}
	w.log.reads.Store(0)
	var watchers []*watcher
	for range 5 {
		for _, s := range relays {
			watchers = append(watchers, s.watch(t, nil, tileA))
		}
	}
	for _, c := range watchers {
		c.reaches(o)
	}
	require.EqualValues(t, 1, w.log.snapshots.Load())
	require.EqualValues(t, 1, w.log.reads.Load())
	require.Zero(t, w.log.lasts.Load())

	// A relay that restarts reads nothing, and one that lacks a frame is given the tail that another has read.
	relays[0].stop()
	cfg := still()
	own, err := viewcache.New(views, w.log, viewcachetest.Keys,
		&viewcache.Config{Fresh: time.Nanosecond}) // it asks whether there is more
	require.NoError(t, err)
	cfg.Views = own
	again := w.serve(cfg)
	o.tickOn(1) // the relays that run have it
	c := again.watch(t, nil, tileA)
	c.reaches(o)
	require.EqualValues(t, 1, w.log.snapshots.Load())
	require.EqualValues(t, 2, w.log.reads.Load(), "what follows the cached version")
	o.commit() // its frame is lost
	o.tickOn(1)
	for _, c := range append(watchers[1:4:4], c) {
		c.reaches(o)
		require.EqualValues(t, 1, c.Stats().Syncs, "it came as frames")
	}
	require.EqualValues(t, 1, w.log.snapshots.Load())
	require.EqualValues(t, 3, w.log.reads.Load(), "one relay read what was lost")
	for _, s := range relays[1:] {
		require.EqualValues(t, 2, s.Stats().Shared)
		require.EqualValues(t, 2, s.Stats().Repairs)
	}
	require.EqualValues(t, 1+3*2, shared.Load())
}

// TestRelayWithoutItsViews: joins and repairs go on while the store of views is down, and when it is back.
func TestRelayWithoutItsViews(t *testing.T) {
	w, views := newWorld(t), newMemoryViews(t)
	views.down.Store(true)
	cfg := still()
	cfg.Views = views.cache(w.log)
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	o.commit()
	o.tickOn(1)
	c.reaches(o)
	require.Zero(t, s.Stats().Shared)
	views.down.Store(false)
	eventually(t, func() bool {
		o.commit()
		o.tickOn(1)
		c.reaches(o)
		return s.Stats().Shared > 0
	}, "it is used again")
}

// disputes are Views that call a function when the relay has made them forget.
type disputes struct {
	Views
	forgot func()
}

func (d *disputes) Forget(ctx context.Context, tile fence.TileID) {
	d.Views.Forget(ctx, tile)
	d.forgot()
}

// TestADisputeWhileAnotherIsSettled: the store's history is replaced once more after the relay has read it and before
// it has adopted it. The next reading is of the store as well: what relays share may be of the history in between.
func TestADisputeWhileAnotherIsSettled(t *testing.T) {
	w := newWorld(t)
	o := w.claim(tileA, 1)
	o.tickOn(2)
	o.snapshot()
	o.tickOn(2)
	full := make(chan RepairInfo, 8)
	cfg, views := still(), &disputes{Views: newMemoryViews(t).cache(w.log)}
	cfg.Views = views
	cfg.Hooks.Repaired = func(i RepairInfo) {
		if i.Kind == "full" {
			full <- i
		}
	}
	s := w.serve(cfg)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	h := s.hubs.find(tileA)
	replace := func(lost int, epoch fence.Epoch) *owner { // and compare the relay with the store
		w.setBack(tileA, lost)
		next := w.claim(tileA, epoch)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.compareEnd(next.at)
		return next
	}
	var last *owner
	views.forgot = func() {
		if last == nil {
			last = replace(1, 3)
		}
	}
	replace(2, 2)
	require.False(t, (<-full).Shared)
	last.tickOn(1)
	c.reaches(last)
	require.False(t, (<-full).Shared, "the second dispute is forgotten")
}

// TestADisputedViewIsReplaced: a failover loses batches that the cached view has, and nobody appends them again. Relays
// that load the cached view converge on what was kept, and nobody is given the other after.
func TestADisputedViewIsReplaced(t *testing.T) {
	w, views := newWorld(t), newMemoryViews(t)
	o := w.claim(tileA, 1)
	o.tickOn(2)
	o.snapshot()
	before := *o
	o.tickOn(2)
	cfg := quick()
	cfg.Views, cfg.BehindGrace = views.cache(w.log), 50*time.Millisecond
	s := w.serve(cfg)
	s.watch(t, nil, tileA).reaches(o)
	s.stop()

	w.setBack(tileA, 2)
	next, second := *cfg, views.cache(w.log)
	next.Views = second
	s = w.serve(&next)
	c := s.watch(t, nil, tileA)
	c.reaches(&before)
	more, third := *cfg, views.cache(w.log)
	more.Views = third
	w.serve(&more).watch(t, nil, tileA).reaches(&before)
	v, ok, err := views.Find(t.Context(), tileA)
	require.NoError(t, err)
	if ok && second.Stats().Hits+third.Stats().Hits > 0 { // else it was too old to be given to anybody
		require.Equal(t, before.at, v.At)
	}
}
