package history

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// capitals is letters in another encoding. It reads both.
type capitals struct{ letters }

func (c *capitals) Snapshot() ([]byte, error) { return []byte(strings.ToUpper(c.state)), nil }
func (c *capitals) Restore(b []byte) error    { c.state = strings.ToLower(string(b)); return nil }

// said is an entry whose owner says that its state was game before it.
func said(t *testing.T, from fence.Position, game, word string) fence.Entry {
	t.Helper()
	b := stream.Batch{Events: [][]byte{[]byte(word)}, StateSum: stream.SumState([]byte(game))}
	payload, private, err := b.Encode()
	require.NoError(t, err)
	c := fence.Commit{Tile: 7, Epoch: 1, Contact: "a:1", Prev: from, Tick: 50, Payload: payload, Private: private}
	return c.Entry()
}

// after is a history of "ab", and the position where it ends.
func after(t *testing.T, game Game) (*History, fence.Position) {
	t.Helper()
	h := New(7, game, 100, 8<<20)
	require.NoError(t, h.Replay(nil, entries(t, fence.Position{}, "a", "b")))
	return h, h.Position
}

func snapshotAt(at fence.Position, game string) *fence.Snapshot {
	return &fence.Snapshot{Position: at, Blob: stream.AppendSnapshot(nil, []byte(game), []byte{0})}
}

func TestStateIsComparedWithWhatTheOwnerSays(t *testing.T) {
	h, at := after(t, &letters{})
	require.True(t, h.Extend(&stream.Chunk{Entries: []fence.Entry{said(t, at, "ab", "c")}}))
	assert.Nil(t, h.Divergence)
	assert.Equal(t, 1, h.Agreed)

	rules := &letters{}
	h, at = after(t, rules)
	e := said(t, at, "aXb", "c")
	require.True(t, h.Extend(&stream.Chunk{Entries: []fence.Entry{e}}), "it continues the stream all the same")
	require.NotNil(t, h.Divergence)
	assert.Equal(t, &Divergence{At: at, Tick: 20, Owner: 1, Own: []byte("ab")}, h.Divergence)
	assert.False(t, h.Divergence.Recoded(), "nothing is known of the owner's state yet")

	require.NoError(t, h.Replay(snapshotAt(fence.Position{Epoch: 1, Seq: 1}, "a"), nil))
	assert.Nil(t, h.Divergence.Stored, "a snapshot of another position")
	require.NoError(t, h.Replay(snapshotAt(at, "aXb"), []fence.Entry{e}))
	assert.Equal(t, "aXb", string(h.Divergence.Stored))
	assert.False(t, h.Divergence.Recoded())
	assert.Equal(t, "aXbc", rules.state, "it goes on from the owner's")
}

func TestStatesThatAreOnlyEncodedOtherwiseAreTold(t *testing.T) {
	h, at := after(t, &capitals{})
	e := said(t, at, "ab", "c")
	require.True(t, h.Extend(&stream.Chunk{Entries: []fence.Entry{e}}))
	require.NotNil(t, h.Divergence)
	require.NoError(t, h.Replay(snapshotAt(at, "ab"), nil))
	assert.True(t, h.Divergence.Recoded())

	h.Divergence, h.Recoded = nil, 1
	require.True(t, h.Extend(&stream.Chunk{Entries: []fence.Entry{e}}))
	assert.Nil(t, h.Divergence, "this owner is not compared any more")
}

func TestWhatWasRestoredIsNoAgreement(t *testing.T) {
	h, at := after(t, &letters{})
	require.NoError(t, h.Replay(snapshotAt(at, "ab"), nil))
	require.True(t, h.Extend(&stream.Chunk{Entries: []fence.Entry{said(t, at, "ab", "c")}}))
	assert.Nil(t, h.Divergence)
	assert.Zero(t, h.Agreed)
}

func TestSumIsOfTheEndOfTheHistory(t *testing.T) {
	h, _ := after(t, &letters{})
	assert.Zero(t, h.StateSum(), "no snapshot was encoded")
	_, err := h.Blob()
	require.NoError(t, err)
	assert.Equal(t, stream.SumState([]byte("ab")), h.StateSum())
	h.Position.Seq++
	assert.Zero(t, h.StateSum())
}
