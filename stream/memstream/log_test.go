package memstream_test

import (
	"testing"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/streamtest"
)

func TestLog(t *testing.T) {
	t.Parallel()
	streamtest.Run(t, func(*testing.T) streamtest.Harness {
		store := memfence.New()
		log := memstream.New(store)
		return streamtest.Harness{
			Log:   log,
			Store: store,
			DropOwner: func(tile fence.TileID) {
				store.Update(tile, func(s *memfence.State) { s.Owner = fence.Owner{} })
			},
			AgeMarks: log.AgeMarks,
			DamageSnapshot: func(tile fence.TileID) {
				store.Update(tile, func(s *memfence.State) { s.Snapshot.Blob[0] ^= 1 })
			},
		}
	})
}
