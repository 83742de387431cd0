package durable

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// entries are batches of one event each, in a chain.
func entries(t *testing.T, events ...string) (all []fence.Entry) {
	t.Helper()
	var at fence.Position
	for _, e := range events {
		payload, _, err := (&stream.Batch{Events: [][]byte{[]byte(e)}}).Encode()
		require.NoError(t, err)
		c := fence.Commit{Tile: 7, Epoch: 1, Contact: "a:1", Prev: at, Payload: payload}
		all, at = append(all, c.Entry()), c.Next()
	}
	return all
}

func TestDurableStateAgainstTheStream(t *testing.T) {
	at := func(e fence.Epoch, s fence.Seq) fence.Position { return fence.Position{Epoch: e, Seq: s, Chain: 1} }
	const jump = fence.RebaseJump
	assert.Equal(t, StreamReaches, Compare(at(2, 10), at(2, 10)))
	assert.Equal(t, StreamReaches, Compare(at(3, 10), at(2, 9)))
	assert.Equal(t, Ahead, Compare(at(2, 10), at(2, 11)))
	assert.Equal(t, Ahead, Compare(at(2, 10), at(2, 10+2*jump)), "it was long without replicas")
	assert.Equal(t, Ahead, Compare(at(2, 10), at(3, 5)))
	assert.Equal(t, Ahead, Compare(at(2, 10), at(3, 10+jump)), "a later owner has rebased")
	assert.Equal(t, StreamWentOn, Compare(at(3, 10), at(2, 11)))

	tail := entries(t, "a", "b", "c")
	h := &stream.Recovery{Entries: tail}
	how, ok := CompareThrough(h, tail[2].Position, tail[1].Position)
	assert.True(t, ok && how == StreamReaches)
	_, ok = CompareThrough(h, at(9, 9), tail[1].Position)
	assert.False(t, ok, "another history was replayed")
	how, ok = CompareThrough(h, tail[1].Position, tail[2].Position)
	assert.True(t, ok && how == Ahead, "what came after the replayed position does not count")
	events := []fence.Entry{tail[0], tail[1]}
	events[1].Position = at(5, 2)
	how, ok = CompareThrough(&stream.Recovery{Entries: events}, at(5, 2), tail[2].Position)
	assert.True(t, ok && how == StreamWentOn, "a later owner has committed events without it")
}

func TestJournalsTailContinuesTheCheckpoint(t *testing.T) {
	tail := entries(t, "a", "b", "c")
	got, err := continuing(7, fence.Position{}, tail)
	require.NoError(t, err)
	assert.Len(t, got, 3)
	_, err = continuing(7, tail[0].Position, tail[2:])
	assert.ErrorIs(t, err, stream.ErrGap)
	got, err = continuing(7, fence.Position{Epoch: 2, Seq: 9, Chain: 9}, tail)
	require.NoError(t, err)
	assert.Empty(t, got, "left from a history that a later owner has replaced")
	tail[1].Tick++
	_, err = continuing(7, fence.Position{}, tail)
	assert.ErrorIs(t, err, fence.ErrCorrupt)
}

// onlyRead is a journal that may not be written to.
type onlyRead struct {
	*testing.T
	err error
}

func (j onlyRead) Seal(context.Context, fence.TileID, fence.Epoch) error {
	j.Error("sealed")
	return nil
}

func (j onlyRead) Base(context.Context, fence.TileID, fence.Snapshot) error {
	j.Error("a base was laid")
	return nil
}

func (j onlyRead) Tail(context.Context, fence.TileID, fence.Seq) ([]fence.Entry, error) {
	return nil, j.err
}

// TestALookAtTheJournalWritesNothing, whatever the journal answers.
func TestALookAtTheJournalWritesNothing(t *testing.T) {
	down := errors.New("down")
	for _, err := range []error{nil, down} {
		s := Store{Tile: 7, Journal: onlyRead{t, err}, Reading: time.Second, Writing: time.Second}
		require.ErrorIs(t, s.Readable(t.Context(), 3), err)
	}
	require.NoError(t, (&Store{Tile: 7}).Readable(t.Context(), 3), "it does not write through")
}
