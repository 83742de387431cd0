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
	Journal checkpoint.Backend
	// Other is a second handle on the same data, as another process would have; Journal itself where the back
	// end knows only one.
	Other checkpoint.Backend
	// Damage changes a byte of the payload stored for an entry, behind the journal's back.
	Damage func(t *testing.T, tile fence.TileID, seq fence.Seq)
}

// RunJournal runs the suite of checkpoint.JournalStore. open gives each test a journal of its own; it may stop the
// test if it cannot.
func RunJournal(t *testing.T, open func(t *testing.T) JournalHarness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, h JournalHarness)
	}{
		{"Empty", testJournalEmpty},
		{"Entries", testEntries},
		{"PayloadSizes", testPayloadSizes},
		{"Replace", testReplace},
		{"Order", testTailOrder},
		{"JournalTiles", testJournalTiles},
		{"Arguments", testJournalArguments},
		{"Corrupt", testCorruptEntry},
		{"Damaged", testDamagedEntry},
		{"Aliasing", testJournalAliasing},
		{"Cancelled", testJournalCancelled},
		{"Model", testJournalModel},
		{"Lost", testLost},
		{"Transfers", testTransfers},
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

func seal(t *testing.T, j checkpoint.JournalStore, tile fence.TileID, epoch fence.Epoch) {
	t.Helper()
	require.NoError(t, j.Seal(t.Context(), tile, epoch))
}

func appended(t *testing.T, j checkpoint.JournalStore, tile fence.TileID, e fence.Entry) {
	t.Helper()
	require.NoError(t, j.Append(t.Context(), tile, e))
}

// run appends n entries after prev and returns them.
func run(t *testing.T, j checkpoint.JournalStore, tile fence.TileID, epoch fence.Epoch, prev fence.Position,
	n int) []fence.Entry {
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
func tailIs(t *testing.T, j checkpoint.JournalStore, tile fence.TileID, after fence.Seq, want ...fence.Entry) {
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

// based lays a base with some state and returns it.
func based(t *testing.T, j checkpoint.JournalStore, tile fence.TileID, at fence.Position) fence.Snapshot {
	t.Helper()
	s := snapshot(at.Epoch, at.Seq, []byte("state at "+at.String()))
	s.Position, s.Tick, s.Taken = at, 1, fence.FromMillis(1)
	require.NoError(t, j.Base(t.Context(), tile, s))
	return s
}

// requireRefused requires a refusal with the facts: what the journal was sealed for, and where it ended.
func requireRefused(t require.TestingT, err, reason error, tile fence.TileID, sealed fence.Epoch, end fence.Position) {
	var refused *fence.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, reason)
	require.Equal(t, tile, refused.Tile)
	require.Equal(t, fence.Owner{Tile: tile, Epoch: sealed, Position: end}, refused.Current)
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

	rebase := entryAt(tile+1, fence.MaxNumber, 5000, fence.Position{}, nil)
	rebase.Kind, rebase.Private = fence.KindRebase, []byte("marker")
	rebase = fence.NewEntry(rebase)

	appended(t, h.Journal, tile, bare)
	based(t, h.Journal, tile, full.Prev)
	appended(t, h.Journal, tile, full)
	tailIs(t, h.Other, tile, 0, bare, full)

	marker := rebase.Tile
	seal(t, h.Journal, marker, fence.MaxNumber)
	appended(t, h.Journal, marker, rebase)
	tailIs(t, h.Other, marker, 0, rebase)
}

// testPayloadSizes goes around the limits where back ends may change how they store a payload.
func testPayloadSizes(t *testing.T, h JournalHarness) {
	const item = 400 << 10 // DynamoDB's limit of one item
	seal(t, h.Journal, tile, 1)
	var want []fence.Entry
	bytes := 0
	at := fence.Position{}
	for _, n := range []int{0, 1, 2048, 384<<10 - 1, 384 << 10, 384<<10 + 1, item, 2*384<<10 + 1,
		fence.MaxPayload, 10} {
		e := entry(tile, 1, at, noise(n))
		appended(t, h.Journal, tile, e)
		appended(t, h.Other, tile, e) // again, by an owner that did not get the answer
		want, at = append(want, e), e.Position
		bytes += len(e.Frame)
	}
	head, err := h.Other.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, bytes, head.Bytes)
	tailIs(t, h.Other, tile, 0, want...)
	tailIs(t, h.Journal, tile, want[7].Seq, want[8:]...)
	require.NoError(t, h.Other.Truncate(t.Context(), tile, want[8].Seq))
	tailIs(t, h.Journal, tile, 0, want[9])
}

// testReplace has owners that go on below the journal's end, as from a history that was served without the journal:
// their entries replace those of lower epochs, large by small and small by large.
func testReplace(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 3)
	first := run(t, h.Journal, tile, 3, fence.Position{}, 6)
	left := first[5]
	for i, size := range []int{10, 1 << 20, 500 << 10, 20, 900 << 10} {
		epoch := fence.Epoch(10 + i)
		base := based(t, h.Other, tile, fence.Position{Epoch: epoch, Seq: 4, Chain: 9})
		e := entry(tile, epoch, base.Position, noise(size))
		appended(t, h.Journal, tile, e)
		tailIs(t, h.Other, tile, 4, e, left)
	}
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, left.Seq))
	tailIs(t, h.Other, tile, 0)
}

// testTailOrder has sequences that text would order otherwise.
func testTailOrder(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	var all []fence.Entry
	var at fence.Position
	for _, seq := range []fence.Seq{1, 9, 10, 99, 100, 255, 256, 1 << 40, 1<<40 + 1, fence.MaxNumber} {
		if seq != at.Seq+1 {
			at = based(t, h.Journal, tile, fence.Position{Epoch: 1, Seq: seq - 1, Chain: 5}).Position
		}
		e := entry(tile, 1, at, []byte{byte(seq)})
		appended(t, h.Journal, tile, e)
		all, at = append(all, e), e.Position
	}
	tailIs(t, h.Other, tile, 0, all...)
	for i := range all {
		tailIs(t, h.Other, tile, all[i].Seq, all[i+1:]...)
	}
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

// testJournalArguments: what is malformed, the tests of checkpoint.ValidateEntry say in full.
func testJournalArguments(t *testing.T, h JournalHarness) {
	ctx := t.Context()
	seal(t, h.Journal, tile, 1)
	bare := entry(tile, 1, fence.Position{}, []byte("x"))
	bare.Frame = nil
	_, tailErr := h.Journal.Tail(ctx, tile, fence.MaxNumber+1)
	_, headErr := h.Journal.JournalHead(ctx, 0)
	for what, err := range map[string]error{
		"append of what is not encoded":   h.Journal.Append(ctx, tile, bare),
		"append to no tile":               h.Journal.Append(ctx, 0, entry(tile, 1, fence.Position{}, nil)),
		"append to another tile":          h.Journal.Append(ctx, tile, entry(tile+1, 1, fence.Position{}, nil)),
		"seal for no epoch":               h.Journal.Seal(ctx, tile, 0),
		"base of no tile":                 h.Journal.Base(ctx, 0, text(1, 1)),
		"truncate to more than there are": h.Journal.Truncate(ctx, tile, fence.MaxNumber+1),
		"tail":                            tailErr,
		"head":                            headErr,
	} {
		require.ErrorIs(t, err, fence.ErrInvalidArgument, what)
	}
	tailIs(t, h.Journal, tile, 0)
}

func testCorruptEntry(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	whole := entryAt(tile, 1, 5, fence.Position{Epoch: 1, Seq: 4, Chain: 3}, []byte("batch"))
	for name, at := range map[string]int{"prev chain": 25, "payload": len(whole.Frame) - len(whole.Private) - 1,
		"private": len(whole.Frame) - 1} {
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
		"base":     h.Journal.Base(ctx, tile, text(1, 100)),
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
