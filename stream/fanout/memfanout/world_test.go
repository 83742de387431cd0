package memfanout_test

import (
	"testing"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

func TestWorld(t *testing.T) {
	t.Parallel()
	var broker *memfanout.Broker
	fencetest.RunWorld(t, true, func(_ *testing.T, w fence.World) fence.WorldKeeper {
		if broker == nil || !w.ID.IsZero() { // a known ID begins a test
			broker = memfanout.New()
		}
		return broker
	})
}
