package sqlitecheckpoint_test

import (
	"context"
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
