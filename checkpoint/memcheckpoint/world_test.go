package memcheckpoint_test

import (
	"testing"

	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

func TestWorld(t *testing.T) {
	t.Parallel()
	var store *memcheckpoint.Store
	fencetest.RunWorld(t, true, func(_ *testing.T, w fence.World) fence.WorldKeeper {
		if store == nil || !w.ID.IsZero() { // a known ID begins a test
			store = memcheckpoint.New()
		}
		return store
	})
}
