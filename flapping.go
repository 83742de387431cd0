package tilefence

import (
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// A tile is contested if other servers have taken it from this one so often in so long a time. One that is taken over
// because its owner was dead, paused or cut off changes hands once.
const (
	contestedBy  = 3
	contestedFor = time.Minute
)

// flapping notices tiles that go back and forth between servers. The zero value is ready; it is safe for concurrent
// use.
type flapping struct {
	mu   sync.Mutex
	lost map[fence.TileID][]time.Time // when a tile was taken from this server, the last times
}

// note notes that a tile was taken from this server.
func (c *flapping) note(id fence.TileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = map[fence.TileID][]time.Time{}
	}
	times := append(c.lost[id], time.Now())
	c.lost[id] = times[max(0, len(times)-contestedBy):]
}

// add adds the tiles that are contested.
func (c *flapping) add(all *problems) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, times := range c.lost {
		switch since := time.Since(times[0]); {
		case time.Since(times[len(times)-1]) > contestedFor:
			delete(c.lost, id)
		case len(times) == contestedBy && since <= contestedFor:
			all.add("take-overs", "tiles go back and forth: other servers take them from this one again and again", id,
				max(since, 1))
		}
	}
}
