package sqlitecheckpoint_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/checkpointtest"
	"github.com/tilefence/tilefence/checkpoint/sqlitecheckpoint"
	"github.com/tilefence/tilefence/fence"
)

func TestJournalConformanceFile(t *testing.T) {
	checkpointtest.RunJournal(t, func(t *testing.T) checkpointtest.JournalHarness {
		path := filepath.Join(t.TempDir(), "journal.db")
		st := open(t, path, nil)
		return checkpointtest.JournalHarness{Journal: st, Other: open(t, path, nil), Damage: damageEntry(st)}
	})
}

func TestJournalConformanceMemory(t *testing.T) {
	checkpointtest.RunJournal(t, func(t *testing.T) checkpointtest.JournalHarness {
		st := open(t, sqlitecheckpoint.Memory, nil)
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
	st, err := sqlitecheckpoint.Open(t.Context(), path, nil)
	require.NoError(t, err)
	require.NoError(t, st.Seal(t.Context(), tile, 3))
	want := journalEntry(3, fence.Position{}, 100)
	require.NoError(t, st.Append(t.Context(), tile, want))
	require.NoError(t, st.Close())
	again := open(t, path, nil)
	got, err := again.Tail(t.Context(), tile, 0)
	require.NoError(t, err)
	assert.Equal(t, []fence.Entry{want}, got)
	require.ErrorIs(t, again.Seal(t.Context(), tile, 2), fence.ErrStale)
}

// TestJournalLocked: a file that another process holds is not written, and says so; the same call succeeds
// when it is free.
func TestJournalLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	st := open(t, path, &sqlitecheckpoint.Config{BusyTimeout: 20 * time.Millisecond})
	require.NoError(t, st.Seal(t.Context(), tile, 1))
	conn, err := raw(t, path).Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	e := journalEntry(1, fence.Position{}, 10)
	require.ErrorIs(t, st.Append(t.Context(), tile, e), fence.ErrNotApplied)
	require.ErrorIs(t, st.Seal(t.Context(), tile, 2), fence.ErrNotApplied)
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, st.Append(t.Context(), tile, e))
}
