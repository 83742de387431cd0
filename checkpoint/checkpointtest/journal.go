package checkpointtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// JournalHarness is one empty journal as the suite sees it.
type JournalHarness struct {
	Journal checkpoint.Journal
	// Other is a second handle on the same data, as another process would have; Journal itself where the back
	// end knows only one.
	Other checkpoint.Journal
	// Damage changes a byte of the payload stored for an entry, behind the journal's back.
	Damage func(t *testing.T, tile fence.TileID, seq fence.Seq)
}

// RunJournal runs the suite of checkpoint.Journal. open gives each test a journal of its own; it may stop the
// test if it cannot.
func RunJournal(t *testing.T, open func(t *testing.T) JournalHarness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, h JournalHarness)
	}{
		{"Empty", testJournalEmpty},
		{"Seal", testSeal},
		{"AppendNeedsSeal", testAppendNeedsSeal},
		{"Stale", testStale},
		{"Entries", testEntries},
		{"PayloadSizes", testPayloadSizes},
		{"Again", testAgain},
		{"Replace", testReplace},
		{"Order", testTailOrder},
		{"Truncate", testTruncate},
		{"JournalTiles", testJournalTiles},
		{"Head", testJournalHead},
		{"Arguments", testJournalArguments},
		{"Corrupt", testCorruptEntry},
		{"Damaged", testDamagedEntry},
		{"Aliasing", testJournalAliasing},
		{"Cancelled", testJournalCancelled},
		{"Model", testJournalModel},
		{"Zombie", testZombie},
		{"Successors", testSuccessors},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
			if h.Other == nil {
				h.Other = h.Journal
			}
			c.run(t, h)
		})
	}
}

// entry returns a valid entry that follows prev at the next sequence.
func entry(tile fence.TileID, epoch fence.Epoch, prev fence.Position, payload []byte) fence.Entry {
	return entryAt(tile, epoch, prev.Seq+1, prev, payload)
}

// entryAt is entry with the sequence chosen.
func entryAt(tile fence.TileID, epoch fence.Epoch, seq fence.Seq, prev fence.Position, payload []byte) fence.Entry {
	e := fence.Entry{Tile: tile, Kind: fence.KindBatch, Prev: prev, Tick: fence.Tick(seq % 1000),
		At: time.UnixMilli(1_700_000_000_000 + int64(seq%1000)), Payload: payload, Private: payload[:len(payload)%7]}
	e.Epoch, e.Seq = epoch, seq
	return fence.NewEntry(e)
}

func seal(t *testing.T, j checkpoint.Journal, tile fence.TileID, epoch fence.Epoch) {
	t.Helper()
	require.NoError(t, j.Seal(t.Context(), tile, epoch))
}

func appended(t *testing.T, j checkpoint.Journal, tile fence.TileID, e fence.Entry) {
	t.Helper()
	require.NoError(t, j.Append(t.Context(), tile, e))
}

// run appends n entries after prev and returns them.
func run(t *testing.T, j checkpoint.Journal, tile fence.TileID, epoch fence.Epoch, prev fence.Position, n int) []fence.Entry {
	t.Helper()
	var entries []fence.Entry
	for range n {
		e := entry(tile, epoch, prev, []byte("batch after "+prev.String()))
		appended(t, j, tile, e)
		entries, prev = append(entries, e), e.Position
	}
	return entries
}

// tailIs requires that the journal holds exactly these entries after a sequence.
func tailIs(t *testing.T, j checkpoint.Journal, tile fence.TileID, after fence.Seq, want ...fence.Entry) {
	t.Helper()
	got, err := j.Tail(t.Context(), tile, after)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, fence.Checksum(want[i].Frame), fence.Checksum(got[i].Frame), "frame at %s", want[i].Position)
		decoded, err := fence.DecodeEntry(want[i].Frame)
		require.NoError(t, err)
		require.Equal(t, decoded, got[i])
	}
}

// isSealed requires a refusal because of the seal, with the facts.
func isSealed(t *testing.T, err error, sealed, presented fence.Epoch) {
	t.Helper()
	var refused *checkpoint.SealedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, checkpoint.SealedError{Tile: tile, Sealed: sealed, Presented: presented}, *refused)
	require.ErrorIs(t, err, checkpoint.ErrSealed)
	assert.Equal(t, presented < sealed, errors.Is(err, fence.ErrStale))
}

func testJournalEmpty(t *testing.T, h JournalHarness) {
	tailIs(t, h.Journal, tile, 0)
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, 100))
	head, err := h.Journal.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	assert.Equal(t, checkpoint.JournalHead{Tile: tile}, head)
	seal(t, h.Journal, tile, 1)
	tailIs(t, h.Other, tile, 0)
}

func testSeal(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 3)
	seal(t, h.Other, tile, 3)
	isSealed(t, h.Journal.Seal(t.Context(), tile, 2), 3, 2)
	isSealed(t, h.Other.Seal(t.Context(), tile, 1), 3, 1)
	seal(t, h.Other, tile, 10) // numbers, not text
	isSealed(t, h.Journal.Seal(t.Context(), tile, 9), 10, 9)
	seal(t, h.Journal, tile, fence.MaxNumber)
	isSealed(t, h.Journal.Seal(t.Context(), tile, fence.MaxNumber-1), fence.MaxNumber, fence.MaxNumber-1)
	head, err := h.Other.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	assert.Equal(t, checkpoint.JournalHead{Tile: tile, Sealed: fence.MaxNumber}, head)
}

func testAppendNeedsSeal(t *testing.T, h JournalHarness) {
	isSealed(t, h.Journal.Append(t.Context(), tile, entry(tile, 1, fence.Position{}, nil)), 0, 1)
	seal(t, h.Journal, tile, 2)
	isSealed(t, h.Journal.Append(t.Context(), tile, entry(tile, 3, fence.Position{}, nil)), 2, 3)
	tailIs(t, h.Journal, tile, 0)
}

// testStale sees that an owner who has been replaced is refused whatever he presents, what he has stored
// before included.
func testStale(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 4)
	old := run(t, h.Journal, tile, 4, fence.Position{}, 3)
	seal(t, h.Other, tile, 5)
	for _, e := range []fence.Entry{old[0], old[2], entry(tile, 4, old[2].Position, []byte("late"))} {
		isSealed(t, h.Journal.Append(t.Context(), tile, e), 5, 4)
	}
	next := run(t, h.Other, tile, 5, old[2].Position, 2)
	isSealed(t, h.Journal.Append(t.Context(), tile, entry(tile, 4, old[2].Position, []byte("late"))), 5, 4)
	isSealed(t, h.Journal.Append(t.Context(), tile, entryAt(tile, 4, 99, fence.Position{Epoch: 4, Seq: 98}, nil)), 5, 4)
	tailIs(t, h.Journal, tile, 0, append(old, next...)...)
}

// testEntries keeps every field, at its limits too.
func testEntries(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, fence.MaxNumber)
	bare := entryAt(tile, fence.MaxNumber, 1, fence.Position{}, nil)
	bare.Tick, bare.At = 0, time.Time{}
	bare = fence.NewEntry(bare)

	full := entryAt(tile, fence.MaxNumber, fence.MaxNumber,
		fence.Position{Epoch: fence.MaxNumber, Seq: fence.MaxNumber - 1, Chain: 1<<64 - 1}, noise(3000))
	full.Tick, full.At = fence.MaxNumber, time.UnixMilli(fence.MaxNumber)
	full = fence.NewEntry(full)

	rebase := entryAt(tile, fence.MaxNumber, 5000, fence.Position{}, nil)
	rebase.Kind, rebase.Private = fence.KindRebase, []byte("marker")
	rebase = fence.NewEntry(rebase)

	for _, e := range []fence.Entry{bare, full, rebase} {
		appended(t, h.Journal, tile, e)
	}
	tailIs(t, h.Other, tile, 0, bare, rebase, full)
}

// testPayloadSizes goes around the limits where back ends may change how they store a payload.
func testPayloadSizes(t *testing.T, h JournalHarness) {
	const item = 400 << 10 // DynamoDB's limit of one item
	seal(t, h.Journal, tile, 1)
	var want []fence.Entry
	at := fence.Position{}
	for _, n := range []int{0, 1, 2048, 384<<10 - 1, 384 << 10, 384<<10 + 1, item, 2*384<<10 + 1, fence.MaxPayload, 10} {
		e := entry(tile, 1, at, noise(n))
		appended(t, h.Journal, tile, e)
		want, at = append(want, e), e.Position
	}
	tailIs(t, h.Other, tile, 0, want...)
	tailIs(t, h.Journal, tile, want[7].Seq, want[8:]...)
	require.NoError(t, h.Other.Truncate(t.Context(), tile, want[8].Seq))
	tailIs(t, h.Journal, tile, 0, want[9])
}

func testAgain(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 2)
	old := run(t, h.Journal, tile, 2, fence.Position{}, 3)
	big := entry(tile, 2, old[2].Position, noise(500<<10))
	for _, e := range append(slices.Clone(old), big, big, old[1]) {
		appended(t, h.Other, tile, e)
	}
	tailIs(t, h.Journal, tile, 0, append(old, big)...)

	for _, e := range []fence.Entry{old[0], old[2], big} {
		other := entryAt(tile, 2, e.Seq, e.Prev, []byte("another history"))
		err := h.Other.Append(t.Context(), tile, other)
		var forked *checkpoint.ForkedError
		require.ErrorAs(t, err, &forked)
		assert.Equal(t, checkpoint.ForkedError{Tile: tile, Stored: e.Position, Presented: other.Position}, *forked)
		require.ErrorIs(t, err, fence.ErrForked)
	}
	tailIs(t, h.Journal, tile, 0, append(old, big)...)
}

// testReplace replaces entries of a lower epoch, large by small and small by large.
func testReplace(t *testing.T, h JournalHarness) {
	sizes := []int{10, 1 << 20, 500 << 10, 20, 900 << 10}
	var want []fence.Entry
	at := fence.Position{Epoch: 1, Seq: 6, Chain: 9}
	first := entry(tile, 3, at, []byte("stays"))
	seal(t, h.Journal, tile, 3)
	appended(t, h.Journal, tile, first)
	for i, n := range sizes {
		epoch := fence.Epoch(10 + i)
		seal(t, h.Journal, tile, epoch)
		e := entry(tile, epoch, first.Position, noise(n))
		appended(t, h.Other, tile, e)
		want = []fence.Entry{first, e}
		tailIs(t, h.Journal, tile, 0, want...)
	}
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, want[1].Seq))
	tailIs(t, h.Other, tile, 0)
}

// testTailOrder appends in no order, with sequences that text would order otherwise.
func testTailOrder(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	byID := map[fence.Seq]fence.Entry{}
	sequences := []fence.Seq{100, 9, 10, 1, 1 << 40, 255, 256, 99, 1<<40 + 1, fence.MaxNumber}
	for _, seq := range sequences {
		byID[seq] = entryAt(tile, 1, seq, fence.Position{Epoch: 1, Seq: seq - 1, Chain: 5}, []byte{byte(seq)})
		appended(t, h.Journal, tile, byID[seq])
	}
	slices.Sort(sequences)
	for i := -1; i < len(sequences); i++ {
		after := fence.Seq(0)
		if i >= 0 {
			after = sequences[i]
		}
		var want []fence.Entry
		for _, seq := range sequences[i+1:] {
			want = append(want, byID[seq])
		}
		tailIs(t, h.Other, tile, after, want...)
	}
	tailIs(t, h.Journal, tile, 256, byID[1<<40], byID[1<<40+1], byID[fence.MaxNumber])
}

func testTruncate(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 2)
	all := run(t, h.Journal, tile, 2, fence.Position{Epoch: 1, Seq: 10, Chain: 1}, 8) // 11 to 18
	for _, c := range []struct {
		upTo  fence.Seq
		stays int
	}{{0, 0}, {10, 0}, {11, 1}, {11, 1}, {9, 1}, {14, 4}, {17, 7}, {18, 8}, {100, 8}} {
		require.NoError(t, h.Other.Truncate(t.Context(), tile, c.upTo))
		tailIs(t, h.Journal, tile, 0, all[c.stays:]...)
	}
	// The seal stays, and so the tile goes on.
	isSealed(t, h.Other.Append(t.Context(), tile, entryAt(tile, 1, 19, fence.Position{Epoch: 1, Seq: 18}, nil)), 2, 1)
	next := run(t, h.Journal, tile, 2, all[7].Position, 2)
	tailIs(t, h.Journal, tile, 0, next...)

	// Whatever its epoch.
	seal(t, h.Journal, tile, 3)
	last := run(t, h.Journal, tile, 3, next[0].Position, 1)
	tailIs(t, h.Journal, tile, 0, next[0], last[0])
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, fence.MaxNumber))
	tailIs(t, h.Journal, tile, 0)
	tailIs(t, h.Journal, tile, 0, run(t, h.Other, tile, 3, last[0].Position, 1)...)
}

func testJournalTiles(t *testing.T, h JournalHarness) {
	tiles := []fence.TileID{1, 0x10, 0x100, tile, 1<<63 | 1, 1<<64 - 1}
	want := map[fence.TileID][]fence.Entry{}
	for i, id := range tiles {
		seal(t, h.Journal, id, fence.Epoch(i+1))
		want[id] = run(t, h.Journal, id, fence.Epoch(i+1), fence.Position{}, 3)
	}
	require.NoError(t, h.Journal.Truncate(t.Context(), tiles[1], 2))
	want[tiles[1]] = want[tiles[1]][2:]
	for _, id := range tiles {
		tailIs(t, h.Other, id, 0, want[id]...)
	}
	wrong := want[tiles[0]][0]
	require.ErrorIs(t, h.Journal.Append(t.Context(), tile, wrong), fence.ErrInvalidArgument, "an entry of another tile")
}

func testJournalHead(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 2)
	old := run(t, h.Journal, tile, 2, fence.Position{}, 12)
	big := entry(tile, 2, old[11].Position, noise(500<<10))
	appended(t, h.Journal, tile, big)
	seal(t, h.Journal, tile, 7)
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, 9))
	want := checkpoint.JournalHead{Tile: tile, Sealed: 7, Entries: 4, First: old[9].Position, Last: big.Position,
		Bytes: len(old[9].Frame) + len(old[10].Frame) + len(old[11].Frame) + len(big.Frame)}
	head, err := h.Other.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	assert.Equal(t, want, head)
}

func testJournalArguments(t *testing.T, h JournalHarness) {
	ctx := t.Context()
	seal(t, h.Journal, tile, 1)
	for name, change := range map[string]func(*fence.Entry){
		"kind":            func(e *fence.Entry) { e.Kind = 0 },
		"tile":            func(e *fence.Entry) { e.Tile++ },
		"epoch zero":      func(e *fence.Entry) { e.Epoch = 0 },
		"epoch too high":  func(e *fence.Entry) { e.Epoch = fence.MaxNumber + 1 },
		"seq zero":        func(e *fence.Entry) { e.Seq = 0 },
		"seq too high":    func(e *fence.Entry) { e.Seq = fence.MaxNumber + 1 },
		"prev not before": func(e *fence.Entry) { e.Prev.Seq = e.Seq },
		"prev epoch":      func(e *fence.Entry) { e.Prev.Epoch = fence.MaxNumber + 1 },
		"tick too high":   func(e *fence.Entry) { e.Tick = fence.MaxNumber + 1 },
		"time too high":   func(e *fence.Entry) { e.At = time.UnixMilli(fence.MaxNumber + 1) },
		"payload":         func(e *fence.Entry) { e.Payload = make([]byte, fence.MaxFrame) },
	} {
		e := entryAt(tile, 1, 5, fence.Position{Epoch: 1, Seq: 4}, []byte("x"))
		change(&e)
		assert.ErrorIs(t, h.Journal.Append(ctx, tile, fence.NewEntry(e)), fence.ErrInvalidArgument, name)
	}
	bare := entryAt(tile, 1, 5, fence.Position{Epoch: 1, Seq: 4}, []byte("x"))
	bare.Frame = nil
	require.ErrorIs(t, h.Journal.Append(ctx, tile, bare), fence.ErrInvalidArgument, "an entry that is not encoded")
	require.ErrorIs(t, h.Journal.Append(ctx, 0, entry(tile, 1, fence.Position{}, nil)), fence.ErrInvalidArgument)
	require.ErrorIs(t, h.Journal.Seal(ctx, 0, 1), fence.ErrInvalidArgument)
	require.ErrorIs(t, h.Journal.Seal(ctx, tile, 0), fence.ErrInvalidArgument)
	require.ErrorIs(t, h.Journal.Seal(ctx, tile, fence.MaxNumber+1), fence.ErrInvalidArgument)
	require.ErrorIs(t, h.Journal.Truncate(ctx, 0, 1), fence.ErrInvalidArgument)
	require.ErrorIs(t, h.Journal.Truncate(ctx, tile, fence.MaxNumber+1), fence.ErrInvalidArgument)
	_, err := h.Journal.Tail(ctx, 0, 0)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = h.Journal.Tail(ctx, tile, fence.MaxNumber+1)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = h.Journal.JournalHead(ctx, 0)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	tailIs(t, h.Journal, tile, 0)
}

func testCorruptEntry(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	whole := entryAt(tile, 1, 5, fence.Position{Epoch: 1, Seq: 4, Chain: 3}, []byte("batch"))
	for name, at := range map[string]int{"prev chain": 25, "payload": len(whole.Frame) - len(whole.Private) - 1, "private": len(whole.Frame) - 1} {
		bad := whole
		bad.Frame = slices.Clone(whole.Frame)
		bad.Frame[at] ^= 1
		var corrupt *fence.CorruptError
		require.ErrorAs(t, h.Journal.Append(t.Context(), tile, bad), &corrupt, name)
		assert.Equal(t, bad.Position, corrupt.At)
	}
	tailIs(t, h.Journal, tile, 0)
}

func testDamagedEntry(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	all := run(t, h.Journal, tile, 1, fence.Position{}, 3)
	big := entry(tile, 1, all[2].Position, noise(500<<10))
	appended(t, h.Journal, tile, big)
	for _, e := range []fence.Entry{all[1], big} {
		h.Damage(t, tile, e.Seq)
		got, err := h.Other.Tail(t.Context(), tile, e.Seq-1)
		var corrupt *fence.CorruptError
		require.ErrorAs(t, err, &corrupt)
		assert.Equal(t, tile, corrupt.Tile)
		assert.Equal(t, e.Position, corrupt.At)
		assert.Empty(t, got)
	}
	_, err := h.Journal.Tail(t.Context(), tile, all[1].Seq)
	require.ErrorIs(t, err, fence.ErrCorrupt, "the last entry is damaged, too")
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, big.Seq))
	tailIs(t, h.Journal, tile, 0)
}

func testJournalAliasing(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	payload := noise(100)
	e := entry(tile, 1, fence.Position{}, slices.Clone(payload))
	appended(t, h.Journal, tile, e)
	e.Payload[0] ^= 1
	for range 2 {
		got, err := h.Journal.Tail(t.Context(), tile, 0)
		require.NoError(t, err)
		require.Equal(t, payload, got[0].Payload)
		got[0].Payload[1] ^= 1
	}
}

func testJournalCancelled(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	all := run(t, h.Journal, tile, 1, fence.Position{}, 2)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, tailErr := h.Journal.Tail(ctx, tile, 0)
	_, headErr := h.Journal.JournalHead(ctx, tile)
	for what, err := range map[string]error{
		"seal":     h.Journal.Seal(ctx, tile, 9),
		"append":   h.Journal.Append(ctx, tile, entry(tile, 1, all[1].Position, nil)),
		"truncate": h.Journal.Truncate(ctx, tile, 2),
		"tail":     tailErr,
		"head":     headErr,
	} {
		var store *fence.StoreError
		require.ErrorAs(t, err, &store, what)
		assert.Equal(t, tile, store.Tile, what)
		require.ErrorIs(t, err, fence.ErrNotApplied, what)
		require.ErrorIs(t, err, why, what)
	}
	tailIs(t, h.Journal, tile, 0, all...)
	seal(t, h.Journal, tile, 1)
}
