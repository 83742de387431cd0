package sqlitecheckpoint_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

const benchSize = 100 << 10

// BenchmarkPut is to be compared with BenchmarkRawInsert: the same bytes without conditions or checks.
func BenchmarkPut(b *testing.B) {
	st := open(b, filepath.Join(b.TempDir(), "bench.db"))
	s := snapshot(1, benchSize)
	b.SetBytes(benchSize)
	for b.Loop() {
		require.NoError(b, st.Put(b.Context(), tile, s))
		s.Seq++
	}
}

func BenchmarkRawInsert(b *testing.B) {
	path := filepath.Join(b.TempDir(), "bench.db")
	open(b, path)
	db := raw(b, path)
	s := snapshot(1, benchSize)
	b.SetBytes(benchSize)
	for b.Loop() {
		_, err := db.ExecContext(b.Context(),
			"INSERT OR REPLACE INTO checkpoints VALUES (?, 1, 1, '', 1, '', '', 1, ?)", tile.String(), s.Blob)
		require.NoError(b, err)
	}
}

func BenchmarkGet(b *testing.B) {
	st := open(b, filepath.Join(b.TempDir(), "bench.db"))
	require.NoError(b, st.Put(b.Context(), tile, snapshot(1, benchSize)))
	b.SetBytes(benchSize)
	for b.Loop() {
		_, found, err := st.Get(b.Context(), tile)
		require.True(b, found && err == nil)
	}
}

func BenchmarkRawSelect(b *testing.B) {
	path := filepath.Join(b.TempDir(), "bench.db")
	require.NoError(b, open(b, path).Put(b.Context(), tile, snapshot(1, benchSize)))
	db := raw(b, path)
	b.SetBytes(benchSize)
	for b.Loop() {
		var blob []byte
		require.NoError(b, db.QueryRowContext(b.Context(), "SELECT blob FROM checkpoints WHERE tile = ?",
			tile.String()).Scan(&blob))
	}
}

// batchSize is a usual batch.
const batchSize = 2 << 10

// BenchmarkAppend is to be compared with BenchmarkRawAppend: the same bytes without conditions or checks, as
// durable.
func BenchmarkAppend(b *testing.B) {
	st := open(b, filepath.Join(b.TempDir(), "bench.db"))
	require.NoError(b, st.Seal(b.Context(), tile, 1))
	e := journalEntry(1, fence.Position{}, batchSize)
	b.SetBytes(batchSize)
	for b.Loop() {
		require.NoError(b, st.Append(b.Context(), tile, e))
		e = journalEntry(1, e.Position, batchSize)
	}
}

func BenchmarkRawAppend(b *testing.B) {
	path := filepath.Join(b.TempDir(), "bench.db")
	open(b, path)
	db := raw(b, path)
	e := journalEntry(1, fence.Position{}, batchSize)
	b.SetBytes(batchSize)
	for b.Loop() {
		_, err := db.ExecContext(b.Context(), "INSERT INTO journal VALUES (?, ?, 1, '', ?)",
			tile.String(), int64(e.Seq), e.Frame)
		require.NoError(b, err)
		e = journalEntry(1, e.Position, batchSize)
	}
}
