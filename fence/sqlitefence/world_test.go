package sqlitefence_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/sqlitefence"
)

// TestWorldOfAFile: a file has the name that it was first opened with, and one identity for ever.
func TestWorldOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	first := open(t, path, &sqlitefence.Config{World: "staging"})
	w, err := first.World(t.Context())
	require.NoError(t, err)
	require.Equal(t, "staging", w.Name)
	again, err := open(t, path, &sqlitefence.Config{World: "staging"}).World(t.Context())
	require.NoError(t, err)
	require.Equal(t, w, again)
	for _, other := range []string{"", "production"} {
		_, err = sqlitefence.Open(t.Context(), path, &sqlitefence.Config{World: other})
		require.ErrorIs(t, err, fence.ErrWorld)
	}
	_, err = sqlitefence.Open(t.Context(), path, &sqlitefence.Config{World: "A"})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
