// Package checkpointtest is the contracts of checkpoint.Store and checkpoint.JournalStore as tests. A back end passes
// by calling Run, and RunJournal if it is a checkpoint.Backend, from tests of its own:
//
//	func TestConformance(t *testing.T) {
//		checkpointtest.Run(t, func(t *testing.T) checkpointtest.Harness {
//			store := memcheckpoint.New()
//			return checkpointtest.Harness{Store: store, Other: store, Damage: damage}
//		})
//	}
//
// Randomised tests log how to run a failing case again.
package checkpointtest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// Harness is one empty store as the suite sees it.
type Harness struct {
	Store checkpoint.Store
	// Other is a second handle on the same data, as another process would have; Store itself where the
	// back end knows only one.
	Other checkpoint.Store
	// Damage changes a byte of the blob stored for a tile, behind the store's back.
	Damage func(t *testing.T, tile fence.TileID)
}

// Run runs the suite. open gives each test a store of its own; it may stop the test if it cannot.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"Empty", testEmpty},
		{"RoundTrip", testRoundTrip},
		{"Sizes", testSizes},
		{"Numbers", testNumbers},
		{"OtherHistory", testOtherHistory},
		{"Tiles", testTiles},
		{"List", testList},
		{"Aliasing", testAliasing},
		{"Arguments", testArguments},
		{"Corrupt", testCorrupt},
		{"Damaged", testDamaged},
		{"Cancelled", testCancelled},
		{"Racing", testRacing},
		{"Model", testModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
			if h.Other == nil {
				h.Other = h.Store
			}
			c.run(t, h)
		})
	}
}

// tile is the suite's usual tile.
const tile fence.TileID = 0x85283473fffffff

// snapshot returns a valid snapshot; its chain and checksum follow from the arguments.
func snapshot(epoch fence.Epoch, seq fence.Seq, blob []byte) fence.Snapshot {
	return fence.Snapshot{
		Position: fence.Position{Epoch: epoch, Seq: seq, Chain: fence.Chain(seq)<<32 | fence.Chain(epoch)},
		Tick:     fence.Tick(seq) * 2,
		Contact:  "10.0.0.1:7000",
		Sum:      fence.Checksum(blob),
		Taken:    fence.FromMillis(1_700_000_000_000 + int64(seq)),
		Blob:     blob,
	}
}

// text returns a small snapshot.
func text(epoch fence.Epoch, seq fence.Seq) fence.Snapshot {
	return snapshot(epoch, seq, []byte("state at "+fence.Position{Epoch: epoch, Seq: seq}.String()))
}

// noise returns n bytes that differ from one another enough to notice a piece out of place.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint32(n)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func put(t *testing.T, st checkpoint.Store, tile fence.TileID, s fence.Snapshot) {
	t.Helper()
	require.NoError(t, st.Put(t.Context(), tile, s))
}

// holds requires that the store holds exactly s.
func holds(t *testing.T, st checkpoint.Store, tile fence.TileID, s fence.Snapshot) {
	t.Helper()
	got, found, err := st.Get(t.Context(), tile)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, s.Position, got.Position)
	require.Equal(t, len(s.Blob), len(got.Blob))
	require.Equal(t, s.Sum, fence.Checksum(got.Blob), "the blob is not the one written")
	got.Blob, s.Blob = nil, nil
	require.Equal(t, s, got)
}

// refused requires that a Put is refused because of what is stored, and says so with all the facts.
func refused(t *testing.T, st checkpoint.Store, tile fence.TileID, s fence.Snapshot, stored fence.Position,
	covers bool) {
	t.Helper()
	requireOlder(t, st.Put(t.Context(), tile, s), tile, s, stored, covers)
}

func requireOlder(t require.TestingT, err error, tile fence.TileID, s fence.Snapshot, stored fence.Position,
	covers bool) {
	require.ErrorIs(t, err, checkpoint.ErrOlder)
	var older *checkpoint.OlderError
	require.ErrorAs(t, err, &older)
	assert.Equal(t, checkpoint.OlderError{Tile: tile, Stored: stored, Presented: s.Position}, *older)
	assert.Equal(t, covers, older.Covers(), "%v", err)
}
