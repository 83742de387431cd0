package fencetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// scene is one tile of a store under test.
type scene struct {
	*testing.T
	StoreHarness
	tile fence.TileID
}

// image is everything a store holds of a tile.
type image struct {
	Owner    fence.Owner
	Entries  []fence.Entry
	Snapshot fence.Snapshot
}

func (s *scene) image() image {
	s.Helper()
	snapshot, _ := s.Snapshot(s.tile)
	return image{Owner: s.owner(), Entries: append([]fence.Entry{}, s.Entries(s.tile)...), Snapshot: snapshot}
}

func (s *scene) owner() fence.Owner {
	s.Helper()
	o, err := s.Store.Owner(s.Context(), s.tile)
	require.NoError(s, err)
	return o
}

// last is the tile's head: the owner hash's, or that of stream and snapshot.
func (s *scene) last() fence.Position {
	s.Helper()
	if o := s.owner(); o.Present() {
		return o.Position
	}
	var last fence.Position
	if e := s.Entries(s.tile); len(e) > 0 {
		last = e[len(e)-1].Position
	}
	if snapshot, ok := s.Snapshot(s.tile); ok && snapshot.Seq > last.Seq {
		last = snapshot.Position
	}
	return last
}

// batch is one event after prev. Each tile of the suite has one batch a tick, so the tick is the payload.
func (s *scene) batch(epoch fence.Epoch, prev fence.Position) fence.Commit {
	tick := min(fence.Tick(prev.Seq)+10, fence.MaxNumber)
	return fence.Commit{Tile: s.tile, Epoch: epoch, Contact: contactOf(epoch), Prev: prev, Tick: tick,
		At:      time.UnixMilli(1_700_000_000_000 + int64(tick%1000)),
		Payload: []byte{byte(tick), 0, '\r', '\n', 0xff}}
}

func (s *scene) install(epoch fence.Epoch, prev fence.Position) fence.Commit {
	c := s.batch(epoch, prev)
	c.Install = true
	return c
}

func (s *scene) refresh(epoch fence.Epoch, at fence.Position, tick fence.Tick) fence.Commit {
	return fence.Commit{Tile: s.tile, Epoch: epoch, Contact: contactOf(epoch), Prev: at, Tick: tick}
}

func contactOf(epoch fence.Epoch) string { return "owner-" + string(rune('a'+(epoch-1)%26)) + ":7000" }

// found starts the tile with n batches under an epoch and returns their commits.
func (s *scene) found(epoch fence.Epoch, n int) []fence.Commit {
	s.Helper()
	return s.extend(epoch, fence.Position{}, n)
}

// extend appends n batches after prev, the first of them an install, and returns their commits.
func (s *scene) extend(epoch fence.Epoch, prev fence.Position, n int) []fence.Commit {
	s.Helper()
	commits := make([]fence.Commit, n)
	for i := range commits {
		commits[i] = s.batch(epoch, prev)
		commits[i].Install = i == 0
		prev = s.commit(commits[i]).Position
	}
	return commits
}

// commit presents c and requires that it was applied, and as what.
func (s *scene) commit(c fence.Commit) fence.Receipt {
	s.Helper()
	before := s.image()
	r, err := s.Store.Commit(s.Context(), c)
	require.NoError(s, err)
	require.Equal(s, fence.Receipt{Position: c.Next(), Replicas: r.Replicas}, r)
	after := s.image()
	want := fence.Owner{Tile: s.tile, Epoch: c.Epoch, Contact: c.Contact, Position: c.Next(), Tick: c.Tick}
	require.Equal(s, want, after.Owner)
	require.Equal(s, before.Snapshot, after.Snapshot)
	if c.Refresh() {
		require.Equal(s, before.Entries, after.Entries)
	} else {
		n := len(before.Entries)
		require.Len(s, after.Entries, n+1)
		require.Equal(s, before.Entries, after.Entries[:n])
		s.requireEntry(after.Entries[n], c.Entry())
	}
	s.requireFresh()
	return r
}

// repeat presents a commit that is already the last entry.
func (s *scene) repeat(c fence.Commit) {
	s.Helper()
	before := s.Entries(s.tile)
	r, err := s.Store.Commit(s.Context(), c)
	require.NoError(s, err)
	require.Equal(s, fence.Receipt{Position: c.Next(), Duplicate: true, Replicas: r.Replicas}, r)
	require.Equal(s, before, s.Entries(s.tile))
	require.Equal(s, c.Next(), s.owner().Position)
	s.requireFresh()
}

// refuse requires that the store refuses c for a reason, says who owns the tile, and writes nothing.
func (s *scene) refuse(c fence.Commit, reason error) {
	s.Helper()
	s.refused(reason, c.Epoch, func() error {
		r, err := s.Store.Commit(s.Context(), c)
		require.Zero(s, r)
		return err
	})
}

func (s *scene) refused(reason error, epoch fence.Epoch, call func() error) {
	s.Helper()
	before, remaining := s.image(), s.Remaining(s.tile)
	current := before.Owner
	current.Tile, current.Position = s.tile, s.last()
	err := call()
	require.ErrorIs(s, err, reason)
	var refused *fence.RefusedError
	require.ErrorAs(s, err, &refused)
	require.Equal(s, &fence.RefusedError{Reason: reason, Tile: s.tile, Epoch: epoch, Current: current}, refused)
	require.Equal(s, before, s.image())
	require.LessOrEqual(s, s.Remaining(s.tile), remaining, "a refusal must not keep an owner hash alive")
}

// untouched requires that a call changes nothing, whatever it answers.
func (s *scene) untouched(call func()) {
	s.Helper()
	before := s.image()
	call()
	require.Equal(s, before, s.image())
}

// requireEntry requires that the store has an entry as its owner encoded it.
func (s *scene) requireEntry(got, want fence.Entry) {
	s.Helper()
	require.NoError(s, got.Verify())
	require.Equal(s, want.Frame, got.Frame)
	decoded, err := fence.DecodeEntry(got.Frame)
	require.NoError(s, err)
	require.Equal(s, decoded, got)
}

// requireFresh requires a time to live as just after a write.
func (s *scene) requireFresh() {
	s.Helper()
	remaining := s.Remaining(s.tile)
	require.LessOrEqual(s, remaining, s.TTL)
	require.Greater(s, remaining, s.TTL*3/4) // a machine may be slow
}

// CheckHistory checks what every stream must keep, in every back end and whatever went wrong: epochs
// never decrease, each entry follows the one before or is a rebase to a higher sequence and epoch, and
// every chain is its content's. The first entry may follow anything, since the stream is trimmed. It
// returns the first violation, or nil.
func CheckHistory(tile fence.TileID, entries []fence.Entry) error {
	for i := range entries {
		e := &entries[i]
		if err := e.Verify(); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		before := entries[i-1].Position
		why := ""
		switch {
		case e.Kind != fence.KindRebase && e.Prev != before:
			why = "does not follow the entry before, " + before.String()
		case e.Epoch < before.Epoch:
			why = "lowers the epoch"
		case e.Kind == fence.KindRebase && (e.Seq <= before.Seq || e.Epoch == before.Epoch):
			why = "rebases without a higher sequence and epoch"
		case e.Tile != tile:
			why = "is another tile's, " + e.Tile.String()
		}
		if why != "" {
			return &fence.CorruptError{Tile: tile, What: "stream entry", At: e.Position, Detail: why}
		}
	}
	return nil
}
