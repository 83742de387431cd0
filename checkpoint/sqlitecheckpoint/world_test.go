package sqlitecheckpoint_test

import (
	"path/filepath"
	"testing"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

func TestWorldOfAFile(t *testing.T) {
	var path string
	fencetest.RunWorld(t, true, func(t *testing.T, w fence.World) fence.WorldKeeper {
		if !w.ID.IsZero() { // a known ID begins a test
			path = filepath.Join(t.TempDir(), "checkpoints.db")
		}
		return open(t, path)
	})
}
