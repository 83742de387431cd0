package relay

import (
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
)

// syncCache holds the Syncs of a tile's present position, each encoded once for all clients that need the same.
type syncCache struct {
	made  map[syncKey][]byte
	bytes int             // of those
	tails map[syncKey]int // how many were made from a position, by the key of the one from scratch
	used  bool            // since the last call of expire

	kept *keptSyncs // of all tiles; nil: not bounded
}

// keptSyncs bounds the bytes of Syncs that all tiles keep for other clients: those of a relay's Limits.RelaySyncBytes.
type keptSyncs struct {
	most  int64
	bytes atomic.Int64
}

// keep counts a Sync in, if there is room for it.
func (k *keptSyncs) keep(bytes int) bool {
	if k == nil || k.bytes.Add(int64(bytes)) <= k.most {
		return true
	}
	k.bytes.Add(-int64(bytes))
	return false
}

// forget counts out what a tile has kept.
func (k *keptSyncs) forget(bytes int) {
	if k != nil {
		k.bytes.Add(-int64(bytes))
	}
}

// Clients can name as many positions, areas and numbers as there are. So that this takes neither memory nor time
// without bound:
const (
	maxTails     = 32       // positions from which Syncs are made; clients at others are sent the one from scratch
	maxSyncBytes = 16 << 20 // that are kept for other clients
)

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
	scratch := syncKey{someAreas: someAreas{s.form, s.areas}, watch: s.watch}
	key := scratch
	key.from = have
	if c.made[key] == nil && !have.IsZero() && c.tails[scratch] >= maxTails {
		key, have = scratch, fence.Position{}
	}
	if msg := c.made[key]; msg != nil {
		return msg
	}
	parts := takeScratch()
	defer parts.free()
	m, ok := v.sync(parts, have, s.areas)
	if !ok {
		return nil
	}
	m.Watch = s.watch
	if c.made == nil {
		c.made, c.tails = map[syncKey][]byte{}, map[syncKey]int{}
	}
	msg := prepare(s.form, syncMessage(s.h.tile, m))
	if c.bytes+len(msg) <= maxSyncBytes && c.kept.keep(len(msg)) {
		c.made[key] = msg
		c.bytes += len(msg)
		if !have.IsZero() {
			c.tails[scratch]++
		}
	}
	return msg
}

func (c *syncCache) clear() {
	if len(c.made) > 0 {
		clear(c.made)
		clear(c.tails)
		c.kept.forget(c.bytes)
		c.bytes = 0
	}
}

// expire frees what was not used since the last call.
func (c *syncCache) expire() {
	if !c.used {
		c.clear()
	}
	c.used = false
}
