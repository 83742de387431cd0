package streamtest

import (
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

func deadLettersKept(s *scene) {
	letters, err := s.Log.DeadLetters(s.Context(), s.tile)
	require.NoError(s, err)
	require.Empty(s, letters)
	want := []stream.Poison{
		{Tile: s.tile, Seq: 4, Epoch: 2, Fields: map[string]string{"payload": "\x00\xff any bytes", "\xfe": "",
			"\xff": "x"}, Reason: "bad \"chain\""},
		{Tile: s.tile, Seq: 4, Fields: map[string]string{}, Reason: "the same entry, seen by another bridge"},
		{Tile: s.tile, Seq: 1<<64 - 1, Epoch: fence.MaxNumber, Fields: map[string]string{"epoch": "x"}, Reason: "id"},
	}
	for _, p := range want {
		require.NoError(s, s.Log.DeadLetter(s.Context(), p))
	}
	letters, err = s.Log.DeadLetters(s.Context(), s.tile)
	require.NoError(s, err)
	require.Len(s, letters, len(want))
	for i := range letters {
		require.NotEmpty(s, letters[i].Letter)
		want[i].Letter = letters[i].Letter
	}
	require.Equal(s, want, letters)
	letters[0].Fields["payload"] = "changed by a reader"
	want[1].Fields["more"] = "changed by the writer"
	letters, err = s.Log.DeadLetters(s.Context(), s.tile)
	require.NoError(s, err)
	require.Equal(s, want[0], letters[0])
	require.Empty(s, letters[1].Fields)
	other, err := s.Log.DeadLetters(s.Context(), newTile())
	require.NoError(s, err)
	require.Empty(s, other)
	for _, found := range []bool{true, false} {
		removed, err := s.Log.RemoveDeadLetter(s.Context(), s.tile, want[1].Letter)
		require.NoError(s, err)
		require.Equal(s, found, removed)
	}
	letters, err = s.Log.DeadLetters(s.Context(), s.tile)
	require.NoError(s, err)
	require.Equal(s, []stream.Poison{want[0], want[2]}, letters)
}

func deadLettersBounded(s *scene) {
	const kept, more = 1000, 5
	for i := range kept + more {
		require.NoError(s, s.Log.DeadLetter(s.Context(), stream.Poison{Tile: s.tile, Seq: fence.Seq(i),
			Reason: "full"}))
	}
	letters, err := s.Log.DeadLetters(s.Context(), s.tile)
	require.NoError(s, err)
	require.Len(s, letters, kept)
	for i, p := range letters {
		require.EqualValues(s, more+i, p.Seq)
	}
}

func poisonRead(s *scene) {
	if s.Poison == nil {
		return
	}
	before := s.commit(1, 3)
	want := s.Poison(s.tile)
	require.EqualValues(s, 4, want.Seq)
	s.last = s.readLast()
	require.EqualValues(s, 4, s.last.Seq)
	after := s.commit(1, 2)

	c := s.read(0, 0)
	s.requireEntries(before, c.Entries)
	require.NotNil(s, c.Poison)
	require.NotEmpty(s, c.Poison.Reason)
	want.Reason = c.Poison.Reason
	require.Equal(s, want, *c.Poison)
	require.True(s, c.Owner.Present())
	// A read that ends before it does not meet it; one that starts at it brings nothing else.
	require.Nil(s, s.read(0, 3).Poison)
	c = s.read(3, 0)
	require.Empty(s, c.Entries)
	require.Equal(s, want, *c.Poison)
	// Reading goes on after it.
	c = s.read(c.Poison.Seq, 0)
	require.Nil(s, c.Poison)
	s.requireEntries(after, c.Entries)

	require.NoError(s, s.Log.DeadLetter(s.Context(), want))
	letters, err := s.Log.DeadLetters(s.Context(), s.tile)
	require.NoError(s, err)
	want.Letter = letters[0].Letter
	require.Equal(s, []stream.Poison{want}, letters)
}

// poisonEntry: a dead letter that can be read after all is the entry it was; any other says why it cannot.
func poisonEntry(s *scene) {
	want := s.commit(1, 2)[1]
	whole := stream.Poison{Tile: s.tile, Seq: want.Seq, Epoch: want.Epoch, Reason: "an older reader did not know it",
		Fields: map[string]string{stream.FrameField: string(batchOf(s, want).Frame), "of a later version": "ignored"}}
	require.NoError(s, s.Log.DeadLetter(s.Context(), whole))
	letters, err := s.Log.DeadLetters(s.Context(), s.tile)
	require.NoError(s, err)
	got, err := stream.EntryOf(&letters[0])
	require.NoError(s, err)
	require.Equal(s, batchOf(s, want), got)
	frame := whole.Fields[stream.FrameField]
	for i := range len(frame) {
		bent := []byte(frame)
		bent[i] ^= 1
		for _, bad := range []string{string(bent), frame[:i]} {
			letter := whole
			letter.Fields = map[string]string{stream.FrameField: bad}
			_, err := stream.EntryOf(&letter)
			require.ErrorIs(s, err, fence.ErrCorrupt, "byte %d", i)
		}
	}
	for _, seq := range []fence.Seq{0, 1, 3, fence.MaxNumber + 1} {
		letter := whole
		letter.Seq = seq
		_, err := stream.EntryOf(&letter)
		require.ErrorIs(s, err, fence.ErrCorrupt, seq)
	}
	elsewhere := whole
	elsewhere.Tile++
	_, err = stream.EntryOf(&elsewhere)
	require.ErrorIs(s, err, fence.ErrCorrupt)
}

// batchOf is an entry in the place of another, whose parts are a readable batch.
func batchOf(s *scene, e fence.Entry) fence.Entry {
	s.Helper()
	b := stream.Batch{Events: [][]byte{[]byte("event")}, Resolutions: []stream.Resolution{{ActionID: "a",
		Outcome: stream.Applied}}}
	var err error
	e.Payload, e.Private, err = b.Encode()
	require.NoError(s, err)
	return fence.NewEntry(e)
}

func poisonRecover(s *scene) {
	if s.Poison == nil {
		return
	}
	s.commit(1, 2)
	s.Poison(s.tile)
	s.last = s.readLast()
	_, err := stream.Recover(s.Context(), s.Log, s.tile)
	require.ErrorIs(s, err, fence.ErrCorrupt)
	var corrupt *fence.CorruptError
	require.ErrorAs(s, err, &corrupt)
	require.EqualValues(s, 3, corrupt.At.Seq)
	// Once the owner hash is gone too, nothing says where the tile ends.
	s.DropOwner(s.tile)
	_, err = s.Log.Last(s.Context(), s.tile)
	require.ErrorIs(s, err, fence.ErrCorrupt)
	_, err = s.Store.Commit(s.Context(), fence.Commit{Tile: s.tile, Epoch: 2, Contact: "b:1", Prev: s.last,
		Install: true})
	require.ErrorIs(s, err, fence.ErrCorrupt)
}
