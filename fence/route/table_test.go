package route_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// anEntry draws from few tiles, epochs and contacts, so that entries meet. Two holders of one epoch are
// among them, which no right authority makes.
func anEntry(t *rapid.T) route.Entry {
	return route.Entry{
		Tile:    fence.TileID(rapid.IntRange(1, 5).Draw(t, "tile")),
		Epoch:   fence.Epoch(rapid.IntRange(1, 4).Draw(t, "epoch")),
		Contact: rapid.SampledFrom([]string{"", "a:1", "b:1", "c:1"}).Draw(t, "contact"),
	}
}

func someEntries(t *rapid.T, label string) []route.Entry {
	return rapid.SliceOfN(rapid.Custom(anEntry), 0, 12).Draw(t, label)
}

func tableOf(parts ...[]route.Entry) *route.Table {
	table := new(route.Table)
	for _, p := range parts {
		table.Learn(p...)
	}
	return table
}

// TestLearningIsAJoin: order, grouping and repetition do not matter, and nothing that was learned is lost
// to anything but what supersedes it.
func TestLearningIsAJoin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := someEntries(t, "a"), someEntries(t, "b"), someEntries(t, "c")
		join := func(x, y []route.Entry) []route.Entry { return tableOf(x, y).Snapshot() }
		require.Equal(t, join(a, b), join(b, a), "commutative")
		require.Equal(t, join(join(a, b), c), join(a, join(b, c)), "associative")
		require.Equal(t, tableOf(a).Snapshot(), join(a, a), "idempotent")
		require.Equal(t, join(a, b), join(join(a, b), a), "absorbing")
		for _, e := range slices.Concat(a, b) {
			kept, known := tableOf(a, b).Lookup(e.Tile)
			require.True(t, known)
			require.False(t, e.Supersedes(kept), "%v is kept, %v was learned", kept, e)
		}
	})
}

// TestSupersedesIsATotalOrder of a tile's entries.
func TestSupersedesIsATotalOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anEntry(t), anEntry(t), anEntry(t)
		a.Tile, b.Tile, c.Tile = 1, 1, 1
		require.False(t, a.Supersedes(a))
		if a != b {
			require.NotEqual(t, a.Supersedes(b), b.Supersedes(a))
		}
		if a.Supersedes(b) && b.Supersedes(c) {
			require.True(t, a.Supersedes(c))
		}
	})
}

func TestWhatSupersedesWhat(t *testing.T) {
	t.Parallel()
	inOrder := []route.Entry{{1, 1, "b"}, {1, 1, ""}, {1, 2, "a"}, {1, 2, "b"}, {1, 2, ""}, {1, 3, "a"},
		{1, fence.MaxNumber, "a"}}
	for i, lower := range inOrder {
		for j, higher := range inOrder {
			assert.Equal(t, j > i, higher.Supersedes(lower), "%v over %v", higher, lower)
		}
	}
}

// TestTableAgainstAMap: the table is what a plain map would be, at every size it grows through.
func TestTableAgainstAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, model := new(route.Table), map[fence.TileID]route.Entry{}
		news := 0
		for range rapid.IntRange(0, 30).Draw(t, "batches") {
			var batch []route.Entry
			base := rapid.Uint64Range(1, 300).Draw(t, "base")
			for i := range rapid.Uint64Range(0, 60).Draw(t, "length") {
				e := anEntry(t)
				e.Tile = fence.TileID(0x8500000fffffff | (base+i*7)<<28) // as H3 indexes of one resolution differ
				batch = append(batch, e)
			}
			var want []route.Entry
			for _, e := range batch {
				if was, known := model[e.Tile]; !known || e.Supersedes(was) {
					model[e.Tile] = e
					want = append(want, e)
				}
			}
			require.Equal(t, want, table.Learn(batch...))
			news += len(want)
		}
		held := 0
		for id, want := range model {
			got, known := table.Lookup(id)
			require.True(t, known)
			require.Equal(t, want, got)
			if want.Held() {
				held++
			}
		}
		for id := range fence.TileID(100) {
			_, known := table.Lookup(id)
			require.False(t, known, "%v was never learned", id)
		}
		all := table.Snapshot()
		require.Len(t, all, len(model))
		require.True(t, slices.IsSortedFunc(all, func(a, b route.Entry) int {
			return int(int64(a.Tile) - int64(b.Tile))
		}))
		stats := table.Stats()
		require.Equal(t, []int{len(model), held, news}, []int{stats.Known, stats.Held, int(stats.News)})
	})
}

func TestTheTableRefusesWhatIsNotValid(t *testing.T) {
	t.Parallel()
	table := new(route.Table)
	for _, e := range []route.Entry{{}, {0, 1, "a"}, {1, 0, "a"}, {1, fence.MaxNumber + 1, "a"},
		{1, 1, strings.Repeat("x", fence.MaxContact+1)}, {1, 1, "a\x00"}, {1, 1, "\xff"}} {
		require.ErrorIs(t, e.Validate(), fence.ErrInvalidArgument, "%v", e)
		require.Empty(t, table.Learn(e))
	}
	require.Empty(t, table.Snapshot())
	_, known := table.Lookup(0)
	require.False(t, known)
	longest := route.Entry{Tile: 1, Epoch: fence.MaxNumber, Contact: strings.Repeat("x", fence.MaxContact)}
	require.Equal(t, []route.Entry{longest}, table.Learn(longest))
	_, known = table.Lookup(0)
	require.False(t, known)
}

func TestTableCountsTilesByOwner(t *testing.T) {
	t.Parallel()
	table := tableOf([]route.Entry{{1, 1, "a:1"}, {2, 1, "a:1"}, {3, 1, "b:1"}, {4, 1, "b:1"}})
	require.Equal(t, map[string]int{"a:1": 2, "b:1": 2}, table.Counts())
	table.Learn(route.Entry{Tile: 2, Epoch: 2, Contact: "b:1"}, route.Entry{Tile: 1, Epoch: 1})
	require.Equal(t, map[string]int{"b:1": 3}, table.Counts(), "one has moved, one was released")
	require.Empty(t, new(route.Table).Counts())
}

func TestTwoHoldersOfOneEpochAreCounted(t *testing.T) {
	t.Parallel()
	table := new(route.Table)
	table.Learn(route.Entry{Tile: 1, Epoch: 2, Contact: "a"}, route.Entry{Tile: 1, Epoch: 2},
		route.Entry{Tile: 2, Epoch: 2, Contact: "b"})
	require.Zero(t, table.Stats().Conflicts)
	table.Learn(route.Entry{Tile: 2, Epoch: 2, Contact: "a"})
	require.Equal(t, uint64(1), table.Stats().Conflicts)
}

// TestReadersAmongWriters: a reader sees entries whole, never one of another tile, and never an older one;
// while the table grows many times.
func TestReadersAmongWriters(t *testing.T) {
	t.Parallel()
	const tiles, epochs = 3000, 8
	table := new(route.Table)
	entry := func(id fence.TileID, e fence.Epoch) route.Entry {
		return route.Entry{Tile: id << 20, Epoch: e, Contact: fmt.Sprint(id, "@", e)}
	}
	done := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			last := map[fence.TileID]fence.Epoch{}
			for end := false; !end; {
				select {
				case <-done:
					end = true // and one round more
				default:
				}
				for id := fence.TileID(1); id <= tiles; id++ {
					got, known := table.Lookup(id << 20)
					if !known {
						assert.Zero(t, last[id])
						continue
					}
					assert.Equal(t, entry(id, got.Epoch), got)
					assert.GreaterOrEqual(t, got.Epoch, last[id])
					last[id] = got.Epoch
				}
			}
			assert.Len(t, last, tiles)
		})
	}
	for w := range fence.TileID(2) {
		writers.Go(func() {
			for e := fence.Epoch(1); e <= epochs; e++ {
				for id := 1 + w; id <= tiles; id += 2 - w { // one writes all, the other half of them
					table.Learn(entry(id, e))
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	require.Equal(t, tiles, table.Stats().Known)
	require.Equal(t, tiles, table.Stats().Held)
}

// TestAReaderAtTheWritersHeels looks for each tile in the moment in which it is stored.
func TestAReaderAtTheWritersHeels(t *testing.T) {
	t.Parallel()
	const tiles = 20_000
	table := new(route.Table)
	var writer sync.WaitGroup
	writer.Go(func() {
		for id := fence.TileID(1); id <= tiles; id++ {
			table.Learn(route.Entry{Tile: id, Epoch: fence.Epoch(id), Contact: "a:1"})
		}
	})
	defer writer.Wait()
	for id := fence.TileID(1); id <= tiles; id++ {
		e, known := table.Lookup(id)
		for ; !known; e, known = table.Lookup(id) {
			_ = known // it comes
		}
		require.Equal(t, fence.Epoch(id), e.Epoch)
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	table := new(route.Table)
	table.Learn(route.Entry{Tile: 7, Epoch: 1, Contact: "a:1"})
	router, err := route.NewRouter(table, &owners{}, nil)
	require.NoError(t, err)
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if e, known := table.Lookup(7); !known || e.Contact != "a:1" {
			t.Error(e)
		}
		if contact, err := router.Route(ctx, 7); err != nil || contact != "a:1" {
			t.Error(contact, err)
		}
	}))
}

// A member announces two million tiles that do not exist. The table stays bounded; when the member has gone, the tiles
// of those that live find a place in it, and while it is there they keep theirs.
func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	const most, honest, lies = 6400, 2000, 2_000_000
	alive := map[string]bool{"a:1": true, "z:1": true}
	table := &route.Table{MaxTiles: most, Known: func(c string) bool { return alive[c] }}
	tileOf := func(i int) fence.TileID { return fence.TileID(i+1) << 20 }
	learn := func(contact string, from, to int, e fence.Epoch) {
		for i := from; i < to; i++ {
			table.Learn(route.Entry{Tile: tileOf(i), Epoch: e, Contact: contact})
		}
	}
	has := func(contact string, from, to int) (n int) {
		for i := from; i < to; i++ {
			if e, _ := table.Lookup(tileOf(i)); e.Contact == contact {
				n++
			}
		}
		return n
	}
	learn("a:1", 0, honest, 1)
	learn("z:1", honest, lies, 9)
	assert.Equal(t, honest, has("a:1", 0, honest), "what was there stays")
	assert.LessOrEqual(t, table.Stats().Known, most)
	assert.Len(t, table.Snapshot(), table.Stats().Known)
	assert.Positive(t, table.Stats().Refused)
	learn("a:1", 0, honest, 2)
	assert.Equal(t, honest, has("a:1", 0, honest), "and is kept up to date")

	alive["z:1"] = false
	learn("a:1", lies, lies+honest, 1)
	assert.InDelta(t, honest, has("a:1", lies, lies+honest), honest/10)
	assert.Equal(t, honest, has("a:1", 0, honest))
	s := table.Stats()
	assert.LessOrEqual(t, s.Known, most)
	assert.Equal(t, s.Known, s.Held)
	assert.Positive(t, s.Forgotten)

	for i := range most { // releases make room
		table.Learn(route.Entry{Tile: tileOf(i), Epoch: 100})
	}
	learn("a:1", 2*lies, 2*lies+honest, 1)
	assert.InDelta(t, honest, has("a:1", 2*lies, 2*lies+honest), honest/5)
}
