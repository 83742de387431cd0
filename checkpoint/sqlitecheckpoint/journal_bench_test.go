package sqlitecheckpoint_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

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
