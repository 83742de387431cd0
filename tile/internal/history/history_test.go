package history

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// letters is a game whose state is the events it has folded.
type letters struct{ state string }

func (l *letters) Restore(b []byte) error    { l.state = string(b); return nil }
func (l *letters) Snapshot() ([]byte, error) { return []byte(l.state), nil }
func (l *letters) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if string(e) == "!" {
			return errors.New("not a letter")
		}
		l.state += string(e)
	}
	return nil
}

func (l *letters) Divided() bool { return false }

func newHistory() (*History, *letters) {
	rules := &letters{}
	return New(7, rules, 100, 8<<20), rules
}

// entries are batches of one event and one action each, in a chain.
func entries(t *testing.T, from fence.Position, words ...string) (all []fence.Entry) {
	t.Helper()
	for i, w := range words {
		payload, private, err := (&stream.Batch{Events: [][]byte{[]byte(w)},
			Resolutions: []stream.Resolution{{ActionID: w, Outcome: stream.Applied}}}).Encode()
		require.NoError(t, err)
		c := fence.Commit{Tile: 7, Epoch: 1, Contact: "a:1", Prev: from, Tick: fence.Tick(10 * (i + 1)),
			Payload: payload, Private: private}
		all = append(all, c.Entry())
		from = c.Next()
	}
	return all
}

func TestHistoryReplaysSnapshotAndTail(t *testing.T) {
	h, rules := newHistory()
	tail := entries(t, fence.Position{}, "a", "b", "c")
	require.NoError(t, h.Replay(nil, tail[:2]))
	blob, err := h.Blob()
	require.NoError(t, err)
	assert.Equal(t, 2, h.GameBytes)

	other, state := newHistory()
	other.Seen = 25
	s := h.Snapshot(h.Position, "a:1", blob)
	require.NoError(t, s.Verify(7))
	require.NoError(t, other.Replay(&s, tail[2:]))
	assert.Equal(t, "abc", state.state)
	assert.Equal(t, "ab", rules.state)
	assert.Equal(t, tail[2].Position, other.Position)
	assert.Equal(t, fence.Tick(30), other.Tick)
	assert.Positive(t, other.Bound.Added)
	for _, id := range []string{"a", "b", "c"} {
		o, ok := other.Actions.Outcome(id)
		assert.True(t, ok && o == stream.Applied, id)
	}
	other.Seen = 200
	require.NoError(t, other.Replay(&s, nil))
	assert.Equal(t, fence.Tick(200), other.Tick, "ticks that were seen are not played again")
	assert.Empty(t, other.Actions.order, "outcomes expire by the tick that the tile has come to")
}

func TestHistoryRefusesWhatItCannotRead(t *testing.T) {
	h, _ := newHistory()
	assert.ErrorIs(t, h.Replay(&fence.Snapshot{Blob: []byte{9}}, nil), fence.ErrCorrupt)
	assert.ErrorIs(t, h.Replay(nil, []fence.Entry{{Payload: []byte{9}}}), fence.ErrCorrupt)
	assert.ErrorContains(t, h.Replay(nil, entries(t, fence.Position{}, "!")), "not a letter")
}

func TestHistoryIsExtendedByWhatContinuesIt(t *testing.T) {
	tail := entries(t, fence.Position{}, "a", "b", "c")
	owner := func(at fence.Position) fence.Owner { return fence.Owner{Epoch: 1, Contact: "a:1", Position: at} }
	for name, c := range map[string]struct {
		chunk stream.Chunk
		want  bool
	}{
		"to the end":            {stream.Chunk{Entries: tail[1:], Owner: owner(tail[2].Position)}, true},
		"without an owner hash": {stream.Chunk{Entries: tail[1:]}, true},
		"the hash is ahead":     {stream.Chunk{Entries: tail[1:2], Owner: owner(tail[2].Position)}, true},
		"the hash is behind":    {stream.Chunk{Entries: tail[1:], Owner: owner(tail[0].Position)}, false},
		"a gap":                 {stream.Chunk{Entries: tail[2:], Owner: owner(tail[2].Position)}, false},
		"a rebase": {stream.Chunk{Entries: []fence.Entry{{Prev: tail[0].Position,
			Kind: fence.KindRebase}}}, false},
		"an entry out of chain": {stream.Chunk{Entries: []fence.Entry{{Prev: tail[0].Position,
			Payload: tail[1].Payload}}}, false},
		"an entry that is bad":   {stream.Chunk{Entries: entries(t, tail[0].Position, "!")}, false},
		"an unreadable entry":    {stream.Chunk{Entries: tail[1:2], Poison: &stream.Poison{}}, false},
		"nothing, and no change": {stream.Chunk{Owner: owner(tail[0].Position)}, true},
	} {
		h, _ := newHistory()
		require.NoError(t, h.Replay(nil, tail[:1]))
		assert.Equal(t, c.want, h.Extend(&c.chunk), name)
	}
	h, _ := newHistory()
	require.NoError(t, h.Replay(nil, tail[:1]))
	ahead := stream.Chunk{Owner: owner(tail[2].Position)}
	for range stuckBeforeReload - 1 {
		assert.True(t, h.Extend(&ahead), "entries may follow")
	}
	assert.False(t, h.Extend(&ahead), "the stream is gone")
}

func TestKeptBatchesStayWithinTheirBound(t *testing.T) {
	k := Kept{Limit: 3 * (entryOverhead + 10)}
	at := fence.Position{}
	var all []fence.Position
	var forgotten []fence.Position
	for range 5 {
		c := fence.Commit{Tile: 7, Epoch: 1, Prev: at, Payload: make([]byte, 10)}
		gone, first := k.Add(c)
		assert.Equal(t, len(forgotten) == 0 && len(gone) > 0, first)
		forgotten = append(forgotten, gone...)
		all = append(all, at)
		at = c.Next()
	}
	assert.Equal(t, all[1:3], forgotten)
	lost, ok := k.After(all[3])
	require.True(t, ok)
	assert.Len(t, lost, 2)
	_, ok = k.After(all[0])
	assert.False(t, ok, "it was forgotten")
	k.Add(fence.Commit{Prev: at, Payload: make([]byte, 10_000)})
	assert.Len(t, k.Batches, 1, "the last one is kept whatever its size")
	k.Clear()
	assert.Zero(t, k.Bytes)
	assert.Empty(t, k.Batches)
}

// TestDepartureIsKnownByPositions: a history is another one where a position differs, if only by its chain. A restored
// authority grants numbers again.
func TestDepartureIsKnownByPositions(t *testing.T) {
	at := func(epoch fence.Epoch, seq fence.Seq, chain fence.Chain) fence.Position {
		return fence.Position{Epoch: epoch, Seq: seq, Chain: chain}
	}
	h := &History{}
	assert.True(t, h.Departed(at(1, 1, 1)), "nothing was read")
	for i := range fence.Seq(3) {
		h.reads(at(1+fence.Epoch(i), 10+i, 100+fence.Chain(i)))
	}
	assert.False(t, h.Departed(at(1, 10, 100)))
	assert.False(t, h.Departed(at(2, 11, 101)), "the end was lost")
	assert.False(t, h.Departed(at(3, 12, 102)))
	assert.True(t, h.Departed(at(2, 11, 7)), "another owner was granted its epoch, and has committed as much")
	assert.True(t, h.Departed(at(3, 12, 7)))
	assert.True(t, h.Departed(at(2, 13, 7)))
	assert.True(t, h.Departed(at(4, 11, 7)), "a later owner")
	assert.False(t, h.Departed(at(1, 9, 7)), "before the first that was read, it cannot be known")
	assert.True(t, h.Departed(at(2, 9, 7)), "but for a later owner")
	h.Presents(at(4, 13, 103))
	assert.False(t, h.Departed(at(4, 13, 103)), "its own")
	assert.True(t, h.Departed(at(4, 13, 7)))
	assert.Equal(t, at(3, 12, 102), h.Position)
	for i := range fence.Seq(3 * pathKept) {
		h.reads(at(3, 13+i, fence.Chain(i)))
	}
	assert.False(t, h.Departed(h.Position))
	assert.False(t, h.Departed(at(3, h.Position.Seq-pathKept+1, fence.Chain(2*pathKept))), "64 are kept")
	assert.LessOrEqual(t, len(h.path), 2*pathKept)
}
