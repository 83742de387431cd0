package sqlitecheckpoint_test

import (
	"context"
	"database/sql"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/checkpoint/checkpointtest"
	"github.com/tilefence/tilefence/checkpoint/sqlitecheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

func TestMain(m *testing.M) {
	// Each call waits for the disk. The back end in memory plays the models of the suites more often.
	_ = flag.Set("rapid.checks", "40")
	goleak.VerifyTestMain(m)
}

const tile fence.TileID = 0x85283473fffffff

func open(t testing.TB, path string) *sqlitecheckpoint.Store {
	t.Helper()
	st, err := sqlitecheckpoint.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return st
}

func TestConformanceFile(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, func(t *testing.T) checkpointtest.Harness {
		path := filepath.Join(t.TempDir(), "odd name?#%.db")
		st := open(t, path)
		return checkpointtest.Harness{Store: st, Other: open(t, path), Damage: damage(st)}
	})
}

func TestConformanceMemory(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, func(t *testing.T) checkpointtest.Harness {
		st := open(t, sqlitecheckpoint.Memory)
		return checkpointtest.Harness{Store: st, Damage: damage(st)}
	})
}

// raw opens the file beside the store, as another process would.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(1000)&_pragma=synchronous(FULL)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func damage(st *sqlitecheckpoint.Store) func(t *testing.T, tile fence.TileID) {
	return func(t *testing.T, tile fence.TileID) {
		t.Helper()
		st.Damage(t, "SELECT blob FROM checkpoints WHERE tile = ?", "UPDATE checkpoints SET blob = ? WHERE tile = ?",
			tile.String())
	}
}

func snapshot(seq fence.Seq, n int) fence.Snapshot {
	blob := make([]byte, n)
	return fence.Snapshot{Position: fence.Position{Epoch: 1, Seq: seq, Chain: 7}, Tick: 1, Contact: "10.0.0.1:7000",
		Sum: fence.Checksum(blob), Taken: fence.FromMillis(1), Blob: blob}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoints.db")
	st, err := sqlitecheckpoint.Open(t.Context(), path)
	require.NoError(t, err)
	want := snapshot(10, 100)
	require.NoError(t, st.Put(t.Context(), tile, want))
	require.NoError(t, st.Close())
	got, found, err := open(t, path).Get(t.Context(), tile)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, want, got)
}

// TestMemorySurvivesCancellation sees that a call cut short does not cost the one connection, with which
// a database in memory would go.
func TestMemorySurvivesCancellation(t *testing.T) {
	st := open(t, sqlitecheckpoint.Memory)
	last := fence.Seq(1)
	require.NoError(t, st.Put(t.Context(), tile, snapshot(last, 10)))
	cut := 0
	for seq := fence.Seq(2); seq <= 40; seq++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seq)*200*time.Microsecond)
		if err := st.Put(ctx, tile, snapshot(seq, 4<<20)); err == nil {
			last = seq
		} else {
			cut++
		}
		cancel()
	}
	require.Positive(t, cut)
	got, found, err := st.Get(t.Context(), tile)
	require.NoError(t, err)
	require.True(t, found)
	assert.GreaterOrEqual(t, got.Seq, last)
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoints.db")
	st := open(t, path)
	require.NoError(t, st.Put(t.Context(), tile, snapshot(1, 10)))
	conn, err := raw(t, path).Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, st.Put(short, tile, snapshot(2, 10)), fence.ErrNotApplied)
	got, _, err := st.Get(t.Context(), tile)
	require.NoError(t, err, "readers do not wait")
	assert.Equal(t, fence.Seq(1), got.Seq)
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, st.Put(t.Context(), tile, snapshot(2, 10)))
}

func TestOpenArguments(t *testing.T) {
	_, err := sqlitecheckpoint.Open(t.Context(), "")
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = sqlitecheckpoint.Open(t.Context(), filepath.Join(t.TempDir(), "no", "such", "directory.db"))
	require.Error(t, err)
}

func TestWorldOfAFile(t *testing.T) {
	var path string
	fencetest.RunWorld(t, true, func(t *testing.T, w fence.World) fence.WorldKeeper {
		if !w.ID.IsZero() { // a known ID begins a test
			path = filepath.Join(t.TempDir(), "checkpoints.db")
		}
		return open(t, path)
	})
}

func TestJournalConformanceFile(t *testing.T) {
	t.Parallel()
	checkpointtest.RunJournal(t, func(t *testing.T) checkpointtest.JournalHarness {
		path := filepath.Join(t.TempDir(), "journal.db")
		st := open(t, path)
		return checkpointtest.JournalHarness{Journal: st, Other: open(t, path), Damage: damageEntry(st)}
	})
}

func TestJournalConformanceMemory(t *testing.T) {
	t.Parallel()
	checkpointtest.RunJournal(t, func(t *testing.T) checkpointtest.JournalHarness {
		st := open(t, sqlitecheckpoint.Memory)
		return checkpointtest.JournalHarness{Journal: st, Damage: damageEntry(st)}
	})
}

func damageEntry(st *sqlitecheckpoint.Store) func(t *testing.T, tile fence.TileID, seq fence.Seq) {
	return func(t *testing.T, tile fence.TileID, seq fence.Seq) {
		t.Helper()
		st.Damage(t, "SELECT frame FROM journal WHERE tile = ? AND seq = ?",
			"UPDATE journal SET frame = ? WHERE tile = ? AND seq = ?",
			tile.String(), int64(seq))
	}
}

// journalEntry returns a valid entry of n bytes that follows prev.
func journalEntry(epoch fence.Epoch, prev fence.Position, n int) fence.Entry {
	return fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindBatch,
		Position: fence.Position{Epoch: epoch, Seq: prev.Seq + 1},
		Prev:     prev, Tick: 1, Payload: make([]byte, n)})
}

func TestJournalReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	st, err := sqlitecheckpoint.Open(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, st.Seal(t.Context(), tile, 3))
	want := journalEntry(3, fence.Position{}, 100)
	require.NoError(t, st.Append(t.Context(), tile, want))
	require.NoError(t, st.Close())
	again := open(t, path)
	got, err := again.Tail(t.Context(), tile, 0)
	require.NoError(t, err)
	assert.Equal(t, []fence.Entry{want}, got)
	require.ErrorIs(t, again.Seal(t.Context(), tile, 2), fence.ErrStale)
}

// TestJournalLocked: a file that another process holds is not written, and says so; the same call succeeds
// when it is free.
func TestJournalLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	st := open(t, path)
	require.NoError(t, st.Seal(t.Context(), tile, 1))
	conn, err := raw(t, path).Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	e := journalEntry(1, fence.Position{}, 10)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return st.Append(ctx, tile, e) },
		func(ctx context.Context) error { return st.Seal(ctx, tile, 2) },
	} {
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		require.ErrorIs(t, call(short), fence.ErrNotApplied)
		cancel()
	}
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, st.Append(t.Context(), tile, e))
}
