package fence_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func TestAreaSets(t *testing.T) {
	t.Parallel()
	every, some := fence.Areas(), fence.Areas(3, 200, 3)
	assert.True(t, every.All() && every.Has(0) && every.Has(255))
	assert.Nil(t, every.List())
	assert.False(t, some.All())
	assert.Equal(t, []fence.Area{0, 3, 200}, some.List())
	assert.True(t, some.Has(0) && some.Has(3) && some.Has(200))
	assert.False(t, some.Has(4))
	more, any := fence.Areas(3, 7).Without(some)
	assert.True(t, any)
	assert.Equal(t, []fence.Area{7}, more.List())
	assert.False(t, more.Has(0), "area 0 was seen before")
	_, any = some.Without(every)
	assert.False(t, any)
	_, any = some.Without(some)
	assert.False(t, any)
	rest, any := every.Without(some)
	assert.True(t, any)
	assert.Len(t, rest.List(), 253)

	all := make([]fence.Area, 256)
	for i := range all {
		all[i] = fence.Area(i)
	}
	assert.Equal(t, every, fence.Areas(all...), "one set, one value")
}

// partsOf is a list of parts in three areas.
func partsOf() (list []byte, content map[fence.Area][]byte) {
	content = map[fence.Area][]byte{0: []byte("all"), 4: bytes.Repeat([]byte("four"), 50), 255: {9}}
	list = fence.AppendPart(nil, 0, content[0])
	list = fence.AppendPart(list, 1, nil)
	list = fence.AppendPart(list, 4, content[4])
	return fence.AppendPart(list, 255, content[255]), content
}

func TestParts(t *testing.T) {
	t.Parallel()
	list, content := partsOf()
	require.NoError(t, fence.CheckParts(list))
	got, whole := map[fence.Area][]byte{}, []byte(nil)
	for p := range fence.Parts(list) {
		got[p.Area] = p.Content
		whole = append(whole, p.Whole...)
	}
	assert.Equal(t, content, got)
	assert.Equal(t, list, whole)
	require.NoError(t, fence.CheckParts(nil))

	for name, bad := range map[string][]byte{
		"cut short": {1, 5, 'a'}, "empty part": {1, 0}, "no length": {1}, "long length": {1, 0x81, 0, 'a'},
		"descending": {2, 1, 'a', 1, 1, 'b'}, "twice": {2, 1, 'a', 2, 1, 'b'},
	} {
		var format *fence.FormatError
		require.ErrorAs(t, fence.CheckParts(bad), &format, name)
		var whole []byte
		for p := range fence.Parts(bad) {
			whole = append(whole, p.Whole...)
		}
		assert.Equal(t, bad, whole, "%s: nothing is left out of the sum", name)
	}
}

// TestChainOfSomeParts: a watcher of some areas checks the chain, and every change to what it was sent shows.
func TestChainOfSomeParts(t *testing.T) {
	t.Parallel()
	list, _ := partsOf()
	e := fence.NewEntry(fence.Entry{Tile: 7, Kind: fence.KindBatch, Position: fence.Position{Epoch: 1, Seq: 1}, Tick: 3,
		Payload: list, Private: []byte("owners")})
	for _, areas := range []fence.AreaSet{fence.Areas(), fence.Areas(4), fence.Areas(4, 255), fence.Areas(17)} {
		w := e.Watched(areas)
		require.NoError(t, w.Verify(), "%v", areas.List())
		for p := range fence.Parts(w.Payload) {
			assert.True(t, areas.Has(p.Area))
		}
		again := w.Watched(fence.Areas(17))
		require.NoError(t, again.Verify(), "of what was selected, parts can be selected again")
		for i := range w.Payload {
			damaged := w
			damaged.Payload = bytes.Clone(w.Payload)
			damaged.Payload[i] ^= 4
			require.Error(t, damaged.Verify(), "byte %d of %v", i, areas.List())
		}
		damaged := w
		damaged.Rest++
		require.Error(t, damaged.Verify())
	}
	assert.Equal(t, e.Payload, new(e.Watched(fence.AreaSet{})).Payload)
}

func FuzzParts(f *testing.F) {
	list, _ := partsOf()
	f.Add(list)
	f.Add([]byte{1, 5})
	f.Fuzz(func(t *testing.T, list []byte) {
		var again []byte
		for p := range fence.Parts(list) {
			again = append(again, p.Whole...)
		}
		require.True(t, bytes.Equal(list, again))
		selected, rest := fence.SelectParts(list, fence.Areas(1, 2, 3))
		require.Equal(t, fence.SumParts(list), fence.SumParts(selected)+rest)
		if fence.CheckParts(list) != nil {
			return
		}
		again = again[:0]
		for p := range fence.Parts(list) {
			again = fence.AppendPart(again, p.Area, p.Content)
		}
		require.True(t, bytes.Equal(list, again), "one list has one encoding")
	})
}
