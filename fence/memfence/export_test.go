package memfence

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Remaining is how long a tile's owner hash has to live.
func (s *Store) Remaining(tile fence.TileID) (d time.Duration) {
	s.own.update(tile, func(sl *slot) {
		if sl.state.Owner.Present() {
			d = time.Until(sl.expires)
		}
	})
	return d
}

// Age takes d off what a tile's owner hash has to live.
func (s *Store) Age(tile fence.TileID, d time.Duration) {
	s.own.update(tile, func(sl *slot) { sl.expires = sl.expires.Add(-d) })
}
