package seeded

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverlay: the changes fit the version of Go that is installed.
func TestOverlay(t *testing.T) {
	dir := t.TempDir()
	replace, err := Overlay(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, replace, 6)
	for original, changed := range replace {
		before, err := os.ReadFile(original)
		require.NoError(t, err)
		after, err := os.ReadFile(changed)
		require.NoError(t, err)
		require.NotEqual(t, before, after, original)
	}
	path, err := Write(dir, replace)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "overlay.json"), path)
}

// TestAnotherGo: a version of Go that has another text there is refused, and not built without the change.
func TestAnotherGo(t *testing.T) {
	c := change{old: "cheaprand()", new: "drawn()"}
	for _, text := range []string{"fastrand()", "cheaprand() + cheaprand()"} {
		file := filepath.Join(t.TempDir(), "time.go")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.ErrorContains(t, c.apply(file, file+".changed"), "this version of Go is not the one")
		require.NoFileExists(t, file+".changed")
	}
}
