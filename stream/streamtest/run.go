// Package streamtest is the conformance suite of stream.Log: the contract in its doc comments, as tests.
// Every back end runs it:
//
//	func TestLog(t *testing.T) {
//		streamtest.Run(t, func(t *testing.T) streamtest.Harness { return newHarness(t) })
//	}
//
// and plays Readers with some seeds: how marks, leases, bounds and trims act on each other, its random plays check in
// every combination, and Run has only the cases that they do not meet.
package streamtest

import (
	"crypto/rand"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Harness is a log under test, the store that fills it, and the suite's way past their front doors.
type Harness struct {
	Log   stream.Log
	Store fence.Store

	// DropOwner removes a tile's owner hash, as the end of its time to live does.
	DropOwner func(fence.TileID)
	// AgeMarks makes all of a tile's marks look as if they had been written, and found silent by a trim, so much
	// earlier: as if the store's clock had stepped.
	AgeMarks func(fence.TileID, time.Duration)
	// DamageSnapshot changes a byte of a tile's snapshot.
	DamageSnapshot func(fence.TileID)

	// Freeze remembers all that the store has of a tile, and returns a function that puts it back, as a failover to
	// a replica does that stopped there. Readers needs it; Run leaves out what needs it where it is nil.
	Freeze func(fence.TileID) (thaw func())
	// Forget removes all of a tile, when Readers is done with it. May be nil.
	Forget func(fence.TileID)

	// Poison appends an entry that cannot be decoded, at the sequence after the last, and lets the owner
	// hash vouch for it, so that commits can follow it. Nil for a back end that cannot hold such a thing.
	Poison func(fence.TileID) stream.Poison
	// Group makes a new consumer group read so many entries and acknowledge those before the last few. Nil
	// for a back end without consumer groups.
	Group func(tile fence.TileID, read, pending int)
	// AgeGroups makes all that is pending look as if it had been delivered so much earlier. Nil like Group.
	AgeGroups func(fence.TileID, time.Duration)
	// CorruptOwner makes the owner hash unreadable. Nil for a back end that cannot hold such a thing.
	CorruptOwner func(fence.TileID)
}

// Run runs the suite. open is called once for each test of it and leaves cleaning up to t.Cleanup. The
// tests use random tiles, so the logs may share their servers with each other and with anything else.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, test := range []struct {
		name string
		run  func(*scene)
	}{
		{"Read/entries", readEntries},
		{"Read/limits", readLimits},
		{"Read/many-tiles", readManyTiles},
		{"Read/owner", readOwner},
		{"Read/own-memory", readOwnMemory},
		{"Read/while-written", readWhileWritten},
		{"Read/damage", readDamage},
		{"Snapshot/read", snapshotRead},
		{"Snapshot/damaged", snapshotDamaged},
		{"Last/rows", lastRows},
		{"Mark/climbs", markClimbs},
		{"Mark/many", markMany},
		{"Mark/turns", markTurns},
		{"Mark/release", markRelease},
		{"Mark/shown", markShown},
		{"Mark/last", markLast},
		{"Mark/resync", markResync},
		{"Mark/full", markFull},
		{"Trim/ties", trimTies},
		{"Trim/clock put back", trimClockPutBack},
		{"Trim/clock put ahead", trimClockPutAhead},
		{"Trim/group", trimGroup},
		{"Trim/group-lease", trimGroupLease},
		{"Trim/groups", trimGroups},
		{"Bound/in-a-gap", boundInAGap},
		{"Bound/group", boundGroup},
		{"Stat/rows", statRows},
		{"Stat/many-tiles", statMany},
		{"DeadLetters/kept", deadLettersKept},
		{"DeadLetters/bounded", deadLettersBounded},
		{"Poison/read", poisonRead},
		{"Poison/recover", poisonRecover},
		{"Poison/entry", poisonEntry},
		{"Expire/goes", expireGoes},
		{"Expire/stays", expireStays},
		{"Expire/wakes", expireWakes},
		{"Expire/races-a-claim", expireRacesAClaim},
		{"Expire/arguments", expireArguments},
		{"Expire/many", expireMany},
		{"Recover/rows", recoverRows},
		{"Recover/long", recoverLong},
		{"Recover/trimmed", recoverTrimmed},
		{"Recover/rebase", recoverRebase},
		{"Recover/while-written", recoverWhileWritten},
		{"Follow/gaps", followGaps},
		{"Follow/rebase", followRebase},
		{"Transfers/kept", transfersKept},
		{"Transfers/rebase", transfersRebase},
		{"Transfers/appended-again", transfersAppendedAgain},
		{"Transfers/large", transfersLarge},
		{"Arguments", arguments},
		{"Context", contextDone},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(&scene{T: t, Harness: open(t), tile: newTile()})
		})
	}
}

// newTile returns a tile no test has used.
func newTile() fence.TileID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return fence.TileID(binary.BigEndian.Uint64(b[:]) >> 1)
}

// scene is one tile of a log under test.
type scene struct {
	*testing.T
	Harness
	tile fence.TileID
	last fence.Position
}

// commit appends n batches under an epoch and returns their entries. An epoch that is new installs itself.
func (s *scene) commit(epoch fence.Epoch, n int) []fence.Entry {
	s.Helper()
	entries := make([]fence.Entry, n)
	for i := range entries {
		entries[i] = s.append(epoch, binary.BigEndian.AppendUint64([]byte("batch\x00\xff"), uint64(s.last.Seq+1)), nil)
	}
	return entries
}

// append is commit of one batch.
func (s *scene) append(epoch fence.Epoch, payload, private []byte) fence.Entry {
	s.Helper()
	c := fence.Commit{Tile: s.tile, Epoch: epoch, Contact: "owner:1", Prev: s.last, Tick: fence.Tick(s.last.Seq + 1),
		Payload: payload, Private: private, Install: epoch > s.last.Epoch}
	r, err := s.Store.Commit(s.Context(), c)
	require.NoError(s, err)
	s.last = r.Position
	return c.Entry()
}

// rebase jumps the tile ahead under an epoch and returns the marker entry.
func (s *scene) rebase(epoch fence.Epoch, seq fence.Seq) fence.Entry {
	s.Helper()
	return s.rebaseTo(epoch, seq, []byte("rebased"))
}

func (s *scene) rebaseTo(epoch fence.Epoch, seq fence.Seq, blob []byte) fence.Entry {
	s.Helper()
	r := fence.Rebase{Tile: s.tile, Epoch: epoch, Contact: "owner:1", Seq: seq, Tick: fence.Tick(seq), Blob: blob}
	receipt, err := s.Store.Rebase(s.Context(), r)
	require.NoError(s, err)
	s.last = receipt.Position
	return r.Entry()
}

// save stores a snapshot at an entry.
func (s *scene) save(e fence.Entry) fence.Snapshot {
	s.Helper()
	return s.saveOf(e, []byte("state at "+e.String()))
}

func (s *scene) saveOf(e fence.Entry, blob []byte) fence.Snapshot {
	s.Helper()
	require.NoError(s, s.Store.SaveSnapshot(s.Context(), fence.SnapshotWrite{Tile: s.tile, Position: e.Position,
		Tick: e.Tick, Blob: blob}))
	return fence.Snapshot{Position: e.Position, Tick: e.Tick, Contact: "owner:1", Sum: fence.Checksum(blob), Blob: blob}
}

// read reads one cursor of the tile.
func (s *scene) read(after fence.Seq, limit int) stream.Chunk {
	s.Helper()
	chunks, err := s.Log.Read(s.Context(), []stream.Cursor{{Tile: s.tile, After: after, Limit: limit}})
	require.NoError(s, err)
	require.Len(s, chunks, 1)
	require.Equal(s, s.tile, chunks[0].Tile)
	require.NoError(s, chunks[0].Err)
	return chunks[0]
}

// requireEntries requires entries as their owners encoded them.
func (s *scene) requireEntries(want, got []fence.Entry) {
	s.Helper()
	require.Len(s, got, len(want))
	for i := range want {
		require.Equal(s, want[i], got[i])
	}
}
