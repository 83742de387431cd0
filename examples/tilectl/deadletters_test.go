package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// poisonOf is a committed entry as a bridge puts it aside.
func poisonOf(id fence.TileID, e *fence.Entry) stream.Poison {
	return stream.Poison{Tile: id, Seq: e.Seq, Epoch: e.Epoch, Reason: "put aside",
		Fields: map[string]string{stream.FrameField: string(e.Frame)}}
}

// putAside makes dead letters of the tile's entries and of one that cannot be read, and returns the entries.
func (b *board) putAside(id fence.TileID, n int) []fence.Entry {
	b.Helper()
	b.own(id, "10.0.0.1:7000", n)
	chunks, err := b.log.Read(b.Context(), []stream.Cursor{{Tile: id}})
	require.NoError(b, err)
	for i := range chunks[0].Entries {
		require.NoError(b, b.log.DeadLetter(b.Context(), poisonOf(id, &chunks[0].Entries[i])))
		if i == 0 {
			require.NoError(b, b.log.DeadLetter(b.Context(),
				stream.Poison{Tile: id, Seq: 9, Epoch: 2, Reason: "field chain: bad",
					Fields: map[string]string{"chain": "\xff"}}))
		}
	}
	return chunks[0].Entries
}

// listen collects the frames published for a tile.
func listen(t *testing.T, s fanout.Subscriber, id fence.TileID) func() []fence.Position {
	var mu sync.Mutex
	var got []fence.Position
	stop, err := s.Subscribe(t.Context(), id, func(data []byte) {
		f, err := fence.DecodeEntry(data)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && f.Tile == id && f.Verify() == nil {
			got = append(got, f.Position)
		}
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	return func() []fence.Position {
		mu.Lock()
		defer mu.Unlock()
		return append([]fence.Position{}, got...)
	}
}

func (b *board) letters(id fence.TileID) []stream.Poison {
	b.Helper()
	letters, err := b.log.DeadLetters(b.Context(), id)
	require.NoError(b, err)
	return letters
}

func TestDeadLetters(t *testing.T) {
	b := newBoard(t)
	b.putAside(first, 1)
	out, _, err := b.tilectl(t.Context(), "deadletters 85283083fffffff")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^\S+ +1 +1 +readable .* put aside$`, lines[1])
	require.Regexp(t, `^\S+ +9 +2 +.*cut short.* \["chain"\(1\)\] +field chain: bad$`, lines[2])
	out, _, err = b.tilectl(t.Context(), "deadletters -json 85283083fffffff")
	require.NoError(t, err)
	var row letterRow
	require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&row))
	require.Equal(t, b.letters(first)[0].Letter, row.Letter)
	require.Equal(t, b.letters(first)[0].Fields[stream.FrameField], string(row.Fields[stream.FrameField]))
}

func TestReplay(t *testing.T) {
	b := newBoard(t)
	entries := b.putAside(first, 3)
	heard := listen(t, b.fanout, first)

	out, _, err := b.tilectl(t.Context(), "deadletters replay 85283083fffffff -dry-run")
	require.ErrorIs(t, err, errKept)
	require.Equal(t, 3, strings.Count(out, "would be published"))
	require.Len(t, b.letters(first), 4)

	last := b.letters(first)[3]
	_, _, err = b.tilectl(t.Context(), "deadletters replay 85283083fffffff "+last.Letter+" nobody")
	require.ErrorContains(t, err, `no dead letter "nobody"`)
	out, _, err = b.tilectl(t.Context(), "deadletters replay 85283083fffffff "+last.Letter)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out, "published"))
	require.Len(t, b.letters(first), 3)

	out, _, err = b.tilectl(t.Context(), "deadletters replay 85283083fffffff")
	require.ErrorIs(t, err, errKept)
	require.Equal(t, 2, strings.Count(out, "published"))
	require.Contains(t, out, "cut short")
	kept := b.letters(first)
	require.Len(t, kept, 1)
	require.EqualValues(t, 9, kept[0].Seq)
	waittest.Until(t, func() bool { return len(heard()) == 3 }, waitFor, poll)
	require.Equal(t, []fence.Position{entries[2].Position, entries[0].Position, entries[1].Position}, heard())
}

// TestReplayKeepsWhatIsNoBatch: what can be read as an entry, and is one, but holds nothing a client understands.
func TestReplayKeepsWhatIsNoBatch(t *testing.T) {
	b := newBoard(t)
	c := fence.Commit{Tile: first, Epoch: 1, Contact: "10.0.0.1:7000", Tick: 1,
		Payload: []byte("\xffnot a batch"), Install: true}
	_, err := b.store.Commit(t.Context(), c)
	require.NoError(t, err)
	chunks, err := b.log.Read(t.Context(), []stream.Cursor{{Tile: first}})
	require.NoError(t, err)
	require.NoError(t, b.log.DeadLetter(t.Context(), poisonOf(first, &chunks[0].Entries[0])))
	_, _, err = b.tilectl(t.Context(), "deadletters replay 85283083fffffff")
	require.ErrorIs(t, err, errKept)
	require.Len(t, b.letters(first), 1)
}

// down is a fan-out that is out of reach.
type down struct{}

func (down) Publish(context.Context, []fanout.Message) (int, error) {
	return 0, errors.New("fan-out is down")
}

// TestReplayKeepsWhatWasNotHandedOver: the first failure ends it, and nothing is removed.
func TestReplayKeepsWhatWasNotHandedOver(t *testing.T) {
	b := newBoard(t)
	b.putAside(first, 3)
	b.publisher = down{}
	out, _, err := b.tilectl(t.Context(), "deadletters replay 85283083fffffff")
	require.ErrorContains(t, err, "fan-out is down")
	require.Contains(t, out, "failed: ")
	require.Equal(t, 2, strings.Count(out, "not tried"))
	require.Len(t, b.letters(first), 4)
}

func TestDrop(t *testing.T) {
	b := newBoard(t)
	b.putAside(first, 2)
	all := b.letters(first)
	out, _, err := b.tilectl(t.Context(), "deadletters drop 85283083fffffff -dry-run")
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(out, "would be dropped"))
	for _, answer := range []string{"", "no\n", "y\n"} {
		b.answers = answer
		_, errs, err := b.tilectl(t.Context(), "deadletters drop 85283083fffffff")
		require.ErrorContains(t, err, "nothing was removed")
		require.Contains(t, errs, "3 dead letters of tile 85283083fffffff will be deleted unread")
	}
	require.Equal(t, all, b.letters(first))
	b.answers = "yes\n"
	_, _, err = b.tilectl(t.Context(), "deadletters drop 85283083fffffff "+all[1].Letter)
	require.NoError(t, err)
	require.Equal(t, []stream.Poison{all[0], all[2]}, b.letters(first))
	b.answers = ""
	out, errs, err := b.tilectl(t.Context(), "deadletters drop 85283083fffffff -yes")
	require.NoError(t, err)
	require.Empty(t, errs)
	require.Equal(t, 2, strings.Count(out, "dropped"))
	require.Empty(t, b.letters(first))
	_, _, err = b.tilectl(t.Context(), "deadletters drop 85283083fffffff")
	require.NoError(t, err, "nothing to ask about")
}
