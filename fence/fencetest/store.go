package fencetest

import (
	"testing"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// StoreHarness is a store under test, and the suite's way past its front door: to see what was really
// written, and to do to a tile what only time and accidents do.
type StoreHarness struct {
	Store fence.Store

	// Entries reads a tile's whole stream.
	Entries func(fence.TileID) []fence.Entry
	// Snapshot reads a tile's snapshot; false when there is none.
	Snapshot func(fence.TileID) (fence.Snapshot, bool)
	// DropOwner removes a tile's owner hash, as the end of its time to live does.
	DropOwner func(fence.TileID)
	// DropEntries removes a tile's whole stream, as an operator's mistake does.
	DropEntries func(fence.TileID)

	// TTL is the time to live the store was set up with, a minute or more.
	TTL time.Duration
	// Remaining is how long the owner hash has to live.
	Remaining func(fence.TileID) time.Duration
	// Age takes d off what the owner hash has to live, as if d had passed.
	Age func(tile fence.TileID, d time.Duration)

	// CorruptOwner makes one field of the owner hash ("epoch", "seq", "chain", "contact" or "tick")
	// unreadable. Nil for a back end that cannot hold such a thing.
	CorruptOwner func(tile fence.TileID, field string)

	// InWorld opens a store of another world on the same servers. Nil for a back end that is of one world.
	InWorld func(t *testing.T, name string) fence.Store
}

// RunStore runs the conformance suite of fence.Store: the commit table and the doc comments, as tests.
// Every back end runs it:
//
//	func TestStore(t *testing.T) {
//		fencetest.RunStore(t, func(t *testing.T) fencetest.StoreHarness { return newHarness(t) })
//	}
//
// open is called once for each test of the suite and leaves cleaning up to t.Cleanup. The tests use
// random tiles, so the stores may share their servers with each other and with anything else. Where the
// suite is random, it logs the seed, and the environment variable TILEFENCE_SEED sets it. The rows of the commit table,
// and the rules of rebases and snapshots, are those of the Model; the other cases are what its calls do not meet.
func RunStore(t *testing.T, open func(t *testing.T) StoreHarness) {
	for _, test := range []struct {
		name string
		run  func(*scene)
	}{
		{"Commit/genesis", commitGenesis},
		{"Commit/duplicate", commitDuplicate},
		{"Commit/tick-climbs", commitTickClimbs},
		{"Commit/twin", commitTwin},
		{"Rebase/genesis", rebaseGenesis},
		{"Rebase/duplicate", rebaseDuplicate},
		{"Rebase/stale", rebaseStale},
		{"Rebase/replaces", rebaseReplaces},
		{"Snapshot/saved", snapshotSaved},
		{"Owner/never", ownerNever},
		{"Owner/unreadable", ownerUnreadable},
		{"Confirm/replicas", confirmReplicas},
		{"Confirm/readers", confirmReaders},
		{"Arguments", storeArguments},
		{"Bounds/numbers", boundsNumbers},
		{"Bounds/bytes", boundsBytes},
		{"Context/done", storeContextDone},
		{"World", worldsApart},
		{"Model", storeModel},
		{"Race/duplicates", raceDuplicates},
		{"Race/rivals", raceRivals},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(&scene{T: t, StoreHarness: open(t), tile: newTile()})
		})
	}
}
