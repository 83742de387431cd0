package tile_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// dividedRules keep words by area: the first byte of a word, as a digit, is its area.
type dividedRules struct {
	ledgerRules
	broken bool
}

func (r *dividedRules) Area(event []byte) fence.Area { return fence.Area(event[0] - '0') }

func (r *dividedRules) Snapshot() ([]byte, error) {
	if r.broken {
		return []byte("\x05not a list"), nil
	}
	areas := map[fence.Area][]string{}
	for _, w := range r.Words {
		areas[r.Area([]byte(w))] = append(areas[r.Area([]byte(w))], w)
	}
	var list []byte
	for _, a := range slices.Sorted(maps.Keys(areas)) {
		list = fence.AppendPart(list, a, []byte(strings.Join(areas[a], " ")))
	}
	return list, nil
}

func (r *dividedRules) Restore(snapshot []byte) error {
	r.Words = nil
	for p := range fence.Parts(snapshot) {
		r.Words = append(r.Words, strings.Split(string(p.Content), " ")...)
	}
	return nil
}

// TestDividedRules: a tick's events are committed and applied by area, and the snapshot is a list of parts.
func TestDividedRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &dividedRules{}
		p, err := tile.New(testTile, "a:1", w.seams(), rules, nil)
		require.NoError(t, err)
		r := launch(w.t, p, nil)
		synctest.Wait()
		for _, word := range []string{"9a", "2a", "0a", "9b", "2b"} {
			go func() { _, _ = p.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte(word)}) }()
			synctest.Wait() // in this order, in one tick
		}
		assert.Equal(t, stream.Applied, r.say(t, "", "1a"))
		assert.Equal(t, "0a 1a 2a 2b 9a 9b", strings.Join(rules.Words, " "))

		h, err := stream.Recover(t.Context(), w.log, testTile)
		require.NoError(t, err)
		last := h.Entries[len(h.Entries)-1]
		some := last.Watched(fence.Areas(2))
		require.NoError(t, some.Verify())
		b, err := stream.DecodeBatch(&some)
		require.NoError(t, err)
		assert.Equal(t, [][]byte{[]byte("0a"), []byte("2a"), []byte("2b")}, b.Events)
		assert.Equal(t, []fence.Area{0, 2, 2}, b.Areas)

		require.NoError(t, r.drain())
		s, found, err := w.log.Snapshot(t.Context(), testTile)
		require.NoError(t, err)
		require.True(t, found)
		require.True(t, stream.Divided(s.Blob))
		game, _, err := stream.OpenSnapshot(s.Blob)
		require.NoError(t, err)
		next := &dividedRules{}
		require.NoError(t, next.Restore(game))
		assert.Equal(t, rules.Words, next.Words)
	})
}

// TestDividedSnapshotMustBeAList: rules that break their promise lose no tick and save nothing that cannot be read.
func TestDividedSnapshotMustBeAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var refused []error
		rules := &dividedRules{}
		p, err := tile.New(testTile, "a:1", w.seams(),
			rules, &tile.Config{SnapshotEvery: 1, Hooks: tile.Hooks{
				Snapshotted: func(i tile.SnapshotInfo) { refused = append(refused, i.Err) }}})
		require.NoError(t, err)
		r := launch(w.t, p, nil)
		synctest.Wait()
		rules.broken = true
		assert.Equal(t, stream.Applied, r.say(t, "", "1a"))
		assert.Equal(t, stream.Applied, r.say(t, "", "1b"))
		_ = r.drain()
		require.NotEmpty(t, refused)
		var format *fence.FormatError
		require.ErrorAs(t, refused[0], &format)
		s, _, err := w.log.Snapshot(t.Context(), testTile)
		require.NoError(t, err)
		game, _, err := stream.OpenSnapshot(s.Blob)
		require.NoError(t, err)
		assert.Empty(t, game, "the one of the start")
	})
}
