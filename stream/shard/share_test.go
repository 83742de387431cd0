package shard_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/shard"
	"github.com/tilefence/tilefence/stream/shard/memshard"
)

// target is a Target that notes what it has.
type target struct {
	mu     sync.Mutex
	has    map[fence.TileID]bool
	refuse error
}

func newTarget() *target { return &target{has: map[fence.TileID]bool{}} }

func (g *target) Add(tiles ...fence.TileID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuse != nil {
		return g.refuse
	}
	for _, t := range tiles {
		g.has[t] = true
	}
	return nil
}

func (g *target) Remove(tiles ...fence.TileID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range tiles {
		delete(g.has, t)
	}
}

func (g *target) tiles() (tiles []fence.TileID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.has {
		tiles = append(tiles, t)
	}
	slices.Sort(tiles)
	return tiles
}

// world is a Lister whose tiles change.
type world struct {
	mu    sync.Mutex
	tiles []fence.TileID
	fail  error
	calls int
}

func (w *world) list(ctx context.Context, low, high fence.TileID) ([]fence.TileID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if w.fail != nil {
		return nil, w.fail
	}
	return shard.Fixed(w.tiles)(ctx, low, high)
}

func (w *world) set(fail error, tiles ...fence.TileID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail, w.tiles = fail, tiles
}

func run(t *testing.T, leases shard.Leases, r shard.Ranges, list shard.Lister, to shard.Target, cfg *shard.ShareConfig) (*shard.Share, func()) {
	t.Helper()
	s, err := shard.NewShare(leases, "test", r, list, to, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// TestSharesDivideTheTiles: two targets have all tiles between them, and no tile twice; then one has all.
func TestSharesDivideTheTiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tiles []fence.TileID
		for i := range 100 {
			tiles = append(tiles, fence.TileID(i*37+1))
		}
		r, err := shard.Cut(tiles, 8)
		require.NoError(t, err)
		store, a, b := memshard.New(), newTarget(), newTarget()
		one, stopOne := run(t, store, r, shard.Fixed(tiles), a, nil)
		_, stopTwo := run(t, store, r, shard.Fixed(tiles), b, nil)
		time.Sleep(2 * ttl)
		require.Len(t, a.tiles(), 50)
		all := append(a.tiles(), b.tiles()...)
		slices.Sort(all)
		require.Equal(t, tiles, all)
		stats := one.Stats()
		require.Equal(t, 4, stats.Shards)
		require.Equal(t, 50, stats.Tiles)
		require.Len(t, one.Held(), 4)
		stopTwo()
		require.Empty(t, b.tiles(), "at its end it has removed everything")
		time.Sleep(ttl)
		require.Equal(t, tiles, a.tiles())
		stopOne()
		require.Zero(t, one.Stats().Tiles)
	})
}

// TestShareFollowsTheList: tiles come and go; one that a single list lacks stays.
func TestShareFollowsTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, to := &world{}, newTarget()
		w.set(nil, 1, 1500, 2500)
		s, stop := run(t, memshard.New(), ranges(t, 3), w.list, to, nil)
		synctest.Wait()
		require.Equal(t, []fence.TileID{1, 1500, 2500}, to.tiles())
		w.set(nil, 1, 2, 2500)
		time.Sleep(shard.DefaultRefreshTiles)
		synctest.Wait()
		require.Equal(t, []fence.TileID{1, 2, 1500, 2500}, to.tiles())
		w.set(nil, 1, 2, 1500, 2500)
		time.Sleep(shard.DefaultRefreshTiles)
		synctest.Wait()
		w.set(nil, 1, 2, 2500)
		time.Sleep(shard.DefaultRefreshTiles)
		synctest.Wait()
		require.Equal(t, []fence.TileID{1, 2, 1500, 2500}, to.tiles(), "not two lists in a row")
		time.Sleep(shard.DefaultRefreshTiles)
		synctest.Wait()
		require.Equal(t, []fence.TileID{1, 2, 2500}, to.tiles())
		require.Equal(t, 3, s.Stats().Tiles)
		stop()
	})
}

// TestShareWhenTheListFails: what is known stays, and it is tried again sooner.
func TestShareWhenTheListFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, to := &world{}, newTarget()
		w.set(errors.New("no"), 5)
		s, stop := run(t, memshard.New(), ranges(t, 1), w.list, to, nil)
		time.Sleep(shard.DefaultRetryList / 2)
		require.Empty(t, to.tiles())
		w.set(nil, 5)
		time.Sleep(shard.DefaultRetryList)
		require.Equal(t, []fence.TileID{5}, to.tiles())
		w.set(errors.New("no"))
		time.Sleep(5 * shard.DefaultRefreshTiles)
		require.Equal(t, []fence.TileID{5}, to.tiles())
		require.Greater(t, s.Stats().ListErrors, uint64(30))
		require.Equal(t, 1, s.Stats().Tiles)

		to.mu.Lock()
		to.refuse = errors.New("no")
		to.mu.Unlock()
		w.set(nil, 5, 6)
		time.Sleep(5 * time.Second)
		require.Positive(t, s.Stats().AddErrors)
		to.mu.Lock()
		to.refuse = nil
		to.mu.Unlock()
		time.Sleep(2 * shard.DefaultRetryList)
		require.Equal(t, []fence.TileID{5, 6}, to.tiles())
		stop()
	})
}

// TestShareDiscovers: a hint for a tile that no list has named yet adds it, if its shard is held; unless
// there are too many such. Without further hints and lists it is given up.
func TestShareDiscovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store, broker := &world{}, memshard.New(), memfanout.New()
		a, b := newTarget(), newTarget()
		cfg := &shard.ShareConfig{Hints: broker, MaxUnlisted: 5}
		one, stopOne := run(t, store, ranges(t, 2), w.list, a, cfg)
		_, stopTwo := run(t, store, ranges(t, 2), w.list, b, cfg)
		time.Sleep(2 * ttl)
		require.Equal(t, 2*fanout.HintGroups, broker.HintStats().Subscriptions)
		hint := func(tiles ...fence.TileID) {
			require.NoError(t, broker.PublishHints(t.Context(), tiles))
			synctest.Wait()
		}
		hint(7, 1007)
		both := append(a.tiles(), b.tiles()...)
		slices.Sort(both)
		require.Equal(t, []fence.TileID{7, 1007}, both)
		require.Len(t, a.tiles(), 1)
		hint(1, 2, 3, 4, 5, 6, 1001, 1002, 1003, 1004, 1005, 1006)
		require.Len(t, a.tiles(), 5)
		require.Equal(t, 5, one.Stats().Unlisted)
		require.EqualValues(t, 5, one.Stats().Discovered)
		require.EqualValues(t, 2, one.Stats().Ignored)

		w.set(nil, 7, 1007, 8, 1008)
		for range 10 {
			time.Sleep(shard.DefaultRefreshTiles / 2)
			hint(3, 1003)
		}
		both = append(a.tiles(), b.tiles()...)
		slices.Sort(both)
		require.Equal(t, []fence.TileID{3, 7, 8, 1003, 1007, 1008}, both)
		require.Equal(t, 1, one.Stats().Unlisted)
		stopTwo()
		time.Sleep(ttl)
		hint(3, 1003)
		require.Equal(t, both, a.tiles(), "also after a takeover")
		stopOne()
		require.Zero(t, one.Stats().Unlisted)
		require.Zero(t, broker.HintStats().Subscriptions)
	})
}

// TestLateListIsIgnored: a list that comes after its shard was lost adds nothing.
func TestLateListIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, store := newTarget(), memshard.New()
		link := &link{Leases: store}
		began := make(chan struct{}, 10)
		release := make(chan struct{})
		list := func(context.Context, fence.TileID, fence.TileID) ([]fence.TileID, error) {
			began <- struct{}{}
			<-release
			return []fence.TileID{5}, nil
		}
		cfg := &shard.ShareConfig{Member: shard.MemberConfig{StandDownAfter: ttl}}
		_, stop := run(t, link, ranges(t, 1), list, to, cfg)
		<-began
		link.set(false, errAway)
		time.Sleep(3 * ttl)
		close(release)
		synctest.Wait()
		require.Empty(t, to.tiles())
		link.set(false, nil)
		time.Sleep(ttl)
		require.Equal(t, []fence.TileID{5}, to.tiles())
		stop()
	})
}

// perTile is what a checkpoint.Checkpointer looks like.
type perTile struct{ target }

func (p *perTile) Add(tile fence.TileID) error { return p.target.Add(tile) }
func (p *perTile) Remove(tile fence.TileID)    { p.target.Remove(tile) }

func TestOneByOne(t *testing.T) {
	p := &perTile{*newTarget()}
	to := shard.OneByOne(p)
	require.NoError(t, to.Add(1, 2, 3))
	to.Remove(2)
	require.Equal(t, []fence.TileID{1, 3}, p.tiles())
	p.refuse = errors.New("no")
	require.ErrorIs(t, to.Add(4), p.refuse)
}

func TestFixed(t *testing.T) {
	list := shard.Fixed([]fence.TileID{9, 1, 5, 7})
	for _, test := range []struct {
		low, high fence.TileID
		want      []fence.TileID
	}{{0, 100, []fence.TileID{1, 5, 7, 9}}, {1, 5, []fence.TileID{1, 5}}, {2, 8, []fence.TileID{5, 7}}, {6, 6, []fence.TileID{}}, {10, 20, []fence.TileID{}}} {
		got, err := list(t.Context(), test.low, test.high)
		require.NoError(t, err)
		require.Equal(t, test.want, got)
	}
}

// records is an authority with a record of each of n tiles, 10 apart.
type records int

func (n records) List(_ context.Context, after fence.TileID, limit int) (page []fence.Grant, err error) {
	for t := (after/10 + 1) * 10; t <= fence.TileID(n)*10 && len(page) < limit; t += 10 {
		page = append(page, fence.Grant{Tile: t})
	}
	return page, nil
}

func TestRecorded(t *testing.T) {
	list := shard.Recorded(records(5000))
	for _, test := range []struct {
		low, high fence.TileID
		want      int
	}{{0, 1 << 62, 5000}, {0, 9, 0}, {10, 10, 1}, {11, 100_000, 4999}, {100, 25_000, 2491}, {60_000, 1 << 62, 0}} {
		got, err := list(t.Context(), test.low, test.high)
		require.NoError(t, err)
		require.Len(t, got, test.want)
	}
}

func TestShareArguments(t *testing.T) {
	try := func(list shard.Lister, to shard.Target, group string, cfg *shard.ShareConfig) {
		t.Helper()
		_, err := shard.NewShare(memshard.New(), group, shard.Ranges{}, list, to, cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	list := shard.Fixed(nil)
	try(nil, newTarget(), "g", nil)
	try(list, nil, "g", nil)
	try(list, newTarget(), "a b", nil)
	for _, cfg := range []shard.ShareConfig{{RefreshTiles: -1}, {ListTimeout: -1}, {RetryList: -1}, {MaxUnlisted: -1}, {Member: shard.MemberConfig{TTL: -1}}} {
		try(list, newTarget(), "g", &cfg)
	}
}
