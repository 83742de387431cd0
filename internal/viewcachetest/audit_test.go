package viewcachetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream/memstream"
)

const (
	fresh  = 50 * time.Millisecond
	within = 1500 * time.Millisecond
)

// brokenCaches change the views that a cache hands out. all are those of the reads so far, the last one included.
var brokenCaches = []struct {
	name, want string
	change     func(v viewcache.View, all []viewcache.View) viewcache.View
}{
	{"none", "", func(v viewcache.View, _ []viewcache.View) viewcache.View { return v }},
	{"empties", "it is empty", func(viewcache.View, []viewcache.View) viewcache.View { return viewcache.View{} }},
	{"truncates", "it lacks", func(v viewcache.View, _ []viewcache.View) viewcache.View {
		v.Entries, v.Position = nil, v.Snapshot.Position
		return v
	}},
	{"truncatesByOne", "", func(v viewcache.View, _ []viewcache.View) viewcache.View { // as a version before
		if n := len(v.Entries); n > 0 {
			v.Position, v.Entries = v.Entries[n-1].Prev, v.Entries[:n-1]
		}
		return v
	}},
	{"stops", "it lacks", func(_ viewcache.View, all []viewcache.View) viewcache.View { return all[0] }},
	{"stopsWhileStale", "it lacks", func(_ viewcache.View, all []viewcache.View) viewcache.View {
		v := all[0]
		v.Stale = true
		return v
	}},
	{"regresses", "it regresses", func(v viewcache.View, all []viewcache.View) viewcache.View {
		if n := len(all); n%10 == 0 {
			return all[n-3]
		}
		return v
	}},
	{"regressesWhileStale", "it regresses", func(v viewcache.View, all []viewcache.View) viewcache.View {
		if n := len(all); n%10 == 0 {
			v = all[n-3]
			v.Stale = true
		}
		return v
	}},
	{"changes", "is not the one committed", func(v viewcache.View, all []viewcache.View) viewcache.View {
		if len(v.Entries) > 0 {
			v.Entries[0].Payload = []byte("x")
		}
		return v
	}},
}

// TestAudit: the auditor finds each broken cache, and nothing wrong with one that works.
func TestAudit(t *testing.T) {
	for _, broken := range brokenCaches {
		t.Run(broken.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAudit(t)
				var all []viewcache.View
				for i := range 100 {
					a.tick(t, i)
					r, v := a.read(t)
					all = append(all, v)
					changed := broken.change(v, all)
					if err := r.Audit(&changed); err != nil {
						require.NotEmpty(t, broken.want, "%v", err)
						require.ErrorContains(t, err, broken.want)
						return
					}
				}
				require.Empty(t, broken.want, "not noticed")
			})
		})
	}
}

// TestAViewMayRegressWhenTheStoreWasEmptied: and not later.
func TestAViewMayRegressWhenTheStoreWasEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudit(t)
		first, old := a.read(t)
		require.NoError(t, first.Audit(&old))
		a.tick(t, 1)
		r, v := a.read(t)
		require.NotEqual(t, old.Position, v.Position)
		require.NoError(t, r.Audit(&v))
		a.Empty(a.store.Flush)
		r, _ = a.read(t)
		require.NoError(t, r.Audit(&old))
		r, v = a.read(t)
		require.NoError(t, r.Audit(&v))
		r, _ = a.read(t)
		require.ErrorContains(t, r.Audit(&old), "it regresses")
	})
}

// TestCompare: a log that is not what was committed is noticed.
func TestCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudit(t)
		compare := func() error { return a.Compare(t.Context(), memstream.New(a.mem), 1) }
		require.NoError(t, compare())
		a.tick(t, 1)
		a.tick(t, 2)
		a.mem.Update(1, func(s *memfence.State) { s.Entries = s.Entries[:len(s.Entries)-1] })
		require.ErrorContains(t, compare(), "the log ends at")
		a.mem.Update(1, func(s *memfence.State) {
			s.Entries = append(s.Entries[:len(s.Entries):len(s.Entries)],
				(&fence.Commit{Tile: 1, Epoch: 1, Prev: s.Entries[len(s.Entries)-1].Position, Tick: 99,
					Payload: []byte("forged")}).Entry())
		})
		require.ErrorContains(t, compare(), "which was not committed")
	})
}

// audit is a cache of one tile that is played.
type audit struct {
	*viewcachetest.World
	mem   *memfence.Store
	store *viewstore.Memory
	cache *viewcache.Cache
}

func newAudit(t *testing.T) *audit {
	mem := memfence.New()
	a := &audit{World: &viewcachetest.World{Store: mem, Bytes: 20}, mem: mem}
	var err error
	a.store, err = viewstore.NewMemory(nil)
	require.NoError(t, err)
	a.cache, err = viewcache.New(a.store, memstream.New(mem), viewcachetest.Keys, &viewcache.Config{Fresh: fresh})
	require.NoError(t, err)
	a.tick(t, 0)
	return a
}

// tick commits a batch; now and then it saves a snapshot or takes the tile over. After it, no version is fresh.
func (a *audit) tick(t *testing.T, i int) {
	_, err := a.Commit(t.Context(), 1)
	if i%50 == 49 {
		_, err = a.TakeOver(t.Context(), 1)
	}
	require.NoError(t, err)
	if i%30 == 0 {
		require.NoError(t, a.Snapshot(t.Context(), 1))
	}
	time.Sleep(2 * fresh)
}

func (a *audit) read(t *testing.T) (viewcachetest.Reading, viewcache.View) {
	r := a.Begin(1, within)
	v, err := a.cache.View(t.Context(), 1, fence.Position{})
	require.NoError(t, err)
	return r, v
}
