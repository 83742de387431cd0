package relay

import (
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// syncCache holds the Syncs of a tile's present position, each encoded once for all clients that need the same.
type syncCache struct {
	made map[syncKey][]byte
	used bool // since the last call of expire
}

// syncKey names one encoded Sync: from which position (zero: from scratch), for which encoding.
type syncKey struct {
	encoding relaypb.Encoding
	from     fence.Position
}

// message returns the Sync for a client that holds a position; nil when the view cannot make it.
func (c *syncCache) message(tile fence.TileID, v *view, e relaypb.Encoding, have fence.Position) []byte {
	if _, known := v.after(have); !known {
		have = fence.Position{}
	}
	c.used = true
	key := syncKey{encoding: e, from: have}
	if msg := c.made[key]; msg != nil {
		return msg
	}
	s, ok := v.sync(have)
	if !ok {
		return nil
	}
	if c.made == nil {
		c.made = map[syncKey][]byte{}
	}
	msg := prepare(e, syncMessage(tile, s))
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
