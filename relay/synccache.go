package relay

import (
	"github.com/tilefence/tilefence/fence"
)

// syncCache holds the Syncs of a tile's present position, each encoded once for all clients that need the same.
type syncCache struct {
	made map[syncKey][]byte
	used bool // since the last call of expire
}

// syncKey names one encoded Sync: for which form and areas, and from which position (zero: from scratch).
type syncKey struct {
	someAreas
	watch uint32
	from  fence.Position
}

// message returns the Sync for a subscription whose client holds a position; nil when the view cannot make it.
func (c *syncCache) message(v *view, s *subscription) []byte {
	have := s.has.at
	if _, known := v.after(have); !known {
		have = fence.Position{}
	}
	c.used = true
	key := syncKey{someAreas{s.form, s.areas}, s.watch, have}
	if msg := c.made[key]; msg != nil {
		return msg
	}
	m, ok := v.sync(have, s.areas)
	if !ok {
		return nil
	}
	m.Watch = s.watch
	if c.made == nil {
		c.made = map[syncKey][]byte{}
	}
	msg := prepare(s.form, syncMessage(s.h.tile, m))
	c.made[key] = msg
	return msg
}

func (c *syncCache) clear() {
	if len(c.made) > 0 {
		clear(c.made)
	}
}

// expire frees what was not used since the last call.
func (c *syncCache) expire() {
	if !c.used {
		c.clear()
	}
	c.used = false
}
