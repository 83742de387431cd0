package checkpointtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// Journal is a journal with the checkpoints that its bases are among.
type Journal interface {
	checkpoint.Store
	checkpoint.JournalStore
}

// JournalHarness is one empty journal as the suite sees it.
type JournalHarness struct {
	Journal Journal
	// Other is a second handle on the same data, as another process would have; Journal itself where the back
	// end knows only one.
	Other Journal
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
		{"Seal", testSeal},
		{"AppendNeedsSeal", testAppendNeedsSeal},
		{"Stale", testStale},
		{"Entries", testEntries},
		{"PayloadSizes", testPayloadSizes},
		{"Again", testAgain},
		{"Forked", testForked},
		{"Behind", testBehind},
		{"Base", testBase},
		{"BaseRefused", testBaseRefused},
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
		{"Lost", testLost},
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

// refusedFor requires a refusal with the facts: what the journal was sealed for, and where it ended.
func refusedFor(t *testing.T, err, reason error, sealed fence.Epoch, end fence.Position) {
	t.Helper()
	var refused *fence.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, reason)
	assert.Equal(t, tile, refused.Tile)
	assert.Equal(t, fence.Owner{Tile: tile, Epoch: sealed, Position: end}, refused.Current)
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
	refused := func(j checkpoint.JournalStore, epoch, sealed fence.Epoch) {
		t.Helper()
		refusedFor(t, j.Seal(t.Context(), tile, epoch), fence.ErrStale, sealed, fence.Position{})
	}
	seal(t, h.Journal, tile, 3)
	seal(t, h.Other, tile, 3)
	refused(h.Journal, 2, 3)
	refused(h.Other, 1, 3)
	seal(t, h.Other, tile, 10) // numbers, not text
	refused(h.Journal, 9, 10)
	seal(t, h.Journal, tile, fence.MaxNumber)
	refused(h.Journal, fence.MaxNumber-1, fence.MaxNumber)
	head, err := h.Other.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	assert.Equal(t, checkpoint.JournalHead{Tile: tile, JournalEnd: checkpoint.JournalEnd{Sealed: fence.MaxNumber}},
		head)
}

func testAppendNeedsSeal(t *testing.T, h JournalHarness) {
	var start fence.Position
	refusedFor(t, h.Journal.Append(t.Context(), tile, entry(tile, 1, start, nil)), fence.ErrNoOwner, 0, start)
	seal(t, h.Journal, tile, 2)
	refusedFor(t, h.Journal.Append(t.Context(), tile, entry(tile, 3, start, nil)), fence.ErrNoOwner, 2, start)
	tailIs(t, h.Journal, tile, 0)
}

// testStale sees that an owner that was superseded is refused whatever it presents, what it has stored before
// included.
func testStale(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 4)
	old := run(t, h.Journal, tile, 4, fence.Position{}, 3)
	seal(t, h.Other, tile, 5)
	late := entry(tile, 4, old[2].Position, []byte("late"))
	for _, e := range []fence.Entry{old[0], old[2], late} {
		refusedFor(t, h.Journal.Append(t.Context(), tile, e), fence.ErrStale, 5, old[2].Position)
	}
	next := run(t, h.Other, tile, 5, old[2].Position, 2)
	for _, e := range []fence.Entry{late, entryAt(tile, 4, 99, fence.Position{Epoch: 4, Seq: 98}, nil)} {
		refusedFor(t, h.Journal.Append(t.Context(), tile, e), fence.ErrStale, 5, next[1].Position)
	}
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
	at := fence.Position{}
	for _, n := range []int{0, 1, 2048, 384<<10 - 1, 384 << 10, 384<<10 + 1, item, 2*384<<10 + 1,
		fence.MaxPayload, 10} {
		e := entry(tile, 1, at, noise(n))
		appended(t, h.Journal, tile, e)
		want, at = append(want, e), e.Position
	}
	tailIs(t, h.Other, tile, 0, want...)
	tailIs(t, h.Journal, tile, want[7].Seq, want[8:]...)
	require.NoError(t, h.Other.Truncate(t.Context(), tile, want[8].Seq))
	tailIs(t, h.Journal, tile, 0, want[9])
}

// testAgain: the entry at the journal's end may be appended again, by an owner that did not get the answer.
func testAgain(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 2)
	old := run(t, h.Journal, tile, 2, fence.Position{}, 3)
	big := entry(tile, 2, old[2].Position, noise(500<<10))
	for _, e := range []fence.Entry{old[2], old[2], big, big} {
		appended(t, h.Other, tile, e)
		appended(t, h.Journal, tile, e)
	}
	tailIs(t, h.Journal, tile, 0, append(old, big)...)
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, big.Seq))
	appended(t, h.Other, tile, big)
	tailIs(t, h.Journal, tile, 0)
}

// testForked: no other history may follow where the journal has one. That includes an append that was delayed: it
// does not move the end back.
func testForked(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 2)
	all := run(t, h.Journal, tile, 2, fence.Position{}, 4)
	end := all[3].Position
	fork := []fence.Entry{all[0], all[1], all[2], entry(tile, 2,
		fence.Position{Epoch: 2, Seq: end.Seq, Chain: end.Chain + 1}, nil)}
	for i := range all {
		fork = append(fork, entryAt(tile, 2, all[i].Seq, all[i].Prev, []byte("another history")))
	}
	for _, e := range fork {
		refusedFor(t, h.Other.Append(t.Context(), tile, e), fence.ErrForked, 2, end)
	}
	tailIs(t, h.Journal, tile, 0, append(all, run(t, h.Journal, tile, 2, end, 1)...)...)
}

// testBehind: a journal that was restored to an older state of the owner's own epoch lacks entries that the owner
// appended. Append says so, and a base makes the journal whole.
func testBehind(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 2)
	all := run(t, h.Journal, tile, 2, fence.Position{}, 2)
	end := all[1].Position
	lost := entry(tile, 2, end, []byte("acknowledged, and lost with the store's newer state"))
	next := entry(tile, 2, lost.Position, []byte("next"))
	for _, e := range []fence.Entry{next, entryAt(tile, 2, 1000, fence.Position{Epoch: 2, Seq: 999}, nil)} {
		refusedFor(t, h.Other.Append(t.Context(), tile, e), fence.ErrBehind, 2, end)
	}
	tailIs(t, h.Journal, tile, 0, all...)
	s := based(t, h.Other, tile, lost.Position)
	holds(t, h.Journal, tile, s)
	appended(t, h.Other, tile, next)
	tailIs(t, h.Journal, tile, s.Seq, next)
}

// testBase: a base is a checkpoint, seals the journal, and is where the next entry goes on.
func testBase(t *testing.T, h JournalHarness) {
	first := based(t, h.Journal, tile, fence.Position{Epoch: 3, Seq: 100, Chain: 7})
	holds(t, h.Other, tile, first)
	tailIs(t, h.Journal, tile, 0)
	all := run(t, h.Journal, tile, 3, first.Position, 3)
	head, err := h.Other.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	assert.Equal(t, checkpoint.JournalEnd{Sealed: 3, End: all[2].Position}, head.JournalEnd)

	// A successor leaves out what was never acknowledged, and goes on above.
	second := based(t, h.Other, tile, fence.Position{Epoch: 5, Seq: 5000, Chain: 8})
	holds(t, h.Journal, tile, second)
	refusedFor(t, h.Journal.Append(t.Context(), tile, entry(tile, 3, all[2].Position, nil)), fence.ErrStale, 5,
		second.Position)
	refusedFor(t, h.Journal.Append(t.Context(), tile, entry(tile, 5, all[2].Position, nil)), fence.ErrForked, 5,
		second.Position)
	next := run(t, h.Journal, tile, 5, second.Position, 2)
	tailIs(t, h.Other, tile, second.Seq, next...)
	tailIs(t, h.Other, tile, 0, append(all, next...)...)

	// The same position again: the checkpoint that is there stays, whatever the bytes.
	again := snapshot(5, next[1].Seq, []byte("state"))
	again.Position = next[1].Position
	require.NoError(t, h.Journal.Base(t.Context(), tile, again))
	other := snapshot(5, next[1].Seq, []byte("the same state in other bytes"))
	other.Position = next[1].Position
	require.NoError(t, h.Other.Base(t.Context(), tile, other))
	holds(t, h.Journal, tile, again)
	run(t, h.Journal, tile, 5, next[1].Position, 1)
}

func testBaseRefused(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 4)
	all := run(t, h.Journal, tile, 4, fence.Position{}, 3)
	end := all[2].Position
	refusedFor(t, h.Journal.Base(t.Context(), tile, text(4, 2)), fence.ErrRegress, 4, end)
	seal(t, h.Other, tile, 5)
	refusedFor(t, h.Journal.Base(t.Context(), tile, text(4, 100)), fence.ErrStale, 5, end)
	put(t, h.Journal, tile, text(5, 1000))
	require.ErrorIs(t, h.Journal.Base(t.Context(), tile, text(5, 500)), checkpoint.ErrOlder)
	require.ErrorIs(t, h.Journal.Base(t.Context(), 0, text(5, 2000)), fence.ErrInvalidArgument)
	damaged := text(5, 2000)
	damaged.Blob[0] ^= 1
	require.ErrorIs(t, h.Journal.Base(t.Context(), tile, damaged), fence.ErrCorrupt)
	holds(t, h.Journal, tile, text(5, 1000))
	tailIs(t, h.Journal, tile, 0, all...)
	head, err := h.Other.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	assert.Equal(t, checkpoint.JournalEnd{Sealed: 5, End: end}, head.JournalEnd)
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

func testTruncate(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 2)
	at := fence.Position{Epoch: 2, Seq: 10, Chain: 1}
	based(t, h.Journal, tile, at)
	all := run(t, h.Journal, tile, 2, at, 8) // 11 to 18
	for _, c := range []struct {
		upTo  fence.Seq
		stays int
	}{{0, 0}, {10, 0}, {11, 1}, {11, 1}, {9, 1}, {14, 4}, {17, 7}, {18, 8}, {100, 8}} {
		require.NoError(t, h.Other.Truncate(t.Context(), tile, c.upTo))
		tailIs(t, h.Journal, tile, 0, all[c.stays:]...)
	}
	// Seal and end stay, and so the tile goes on.
	refusedFor(t, h.Other.Append(t.Context(), tile, entryAt(tile, 1, 19, fence.Position{Epoch: 1, Seq: 18}, nil)),
		fence.ErrStale, 2, all[7].Position)
	next := run(t, h.Journal, tile, 2, all[7].Position, 2)
	tailIs(t, h.Journal, tile, 0, next...)

	// Whatever its epoch.
	seal(t, h.Journal, tile, 3)
	last := run(t, h.Journal, tile, 3, next[1].Position, 1)
	tailIs(t, h.Journal, tile, 0, next[0], next[1], last[0])
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
	want := checkpoint.JournalHead{Tile: tile, JournalEnd: checkpoint.JournalEnd{Sealed: 7, End: big.Position},
		Entries: 4, First: old[9].Position, Last: big.Position,
		Bytes: len(old[9].Frame) + len(old[10].Frame) + len(old[11].Frame) + len(big.Frame)}
	head, err := h.Other.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	assert.Equal(t, want, head)
}
