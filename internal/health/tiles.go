package health

import (
	"fmt"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// tooMany is which part of its ticks a tile may miss.
const tooMany = 0.3

// acquiring is what a tile waits for in each state on the way to its owner.
var acquiring = map[tile.State]string{
	tile.Claiming:   "the authority gives no epoch",
	tile.Replaying:  "the history of tiles is not read",
	tile.Installing: "replicas do not confirm an epoch",
}

// Tile adds what is wrong with a tile.
func (all *Problems) Tile(t *tile.Status, suspectAfter time.Duration) {
	trouble := func(plane, what string, since time.Duration) {
		all.Trouble(plane, what, t.Tile, since)
	}
	in := time.Since(t.Since)
	switch t.State {
	case tile.Serving, tile.Draining:
		switch {
		case t.Pending:
			trouble("ticks", "tiles are frozen: the coordination store, the journal or replicas do not confirm batches",
				time.Since(t.Frozen))
		case t.Dilation > 1:
			all.Add("ticks", "time is dilated: the rules or this machine are too slow", t.Tile, 0)
		case t.Missing > tooMany:
			all.Add("ticks", "ticks are missed: the rules or this machine are too slow", t.Tile, 0)
		}
		if t.Unjournaled > mostUnjournaled {
			all.Add("checkpoints", "the durable store does not take the journals of tiles: nothing crosses their "+
				"borders", t.Tile, 0)
		}
		if t.StreamFull {
			all.Add("ticks", "tiles are stalled: their stream is full and no snapshot covers it", t.Tile, 0)
		}
		all.border(t)
	case tile.Healing:
		trouble("ticks", "the history of tiles is being repaired", in)
	case tile.Following:
		if t.Silent > max(3*suspectAfter, 10*time.Second) {
			all.Add("take-overs", "tiles have a silent owner, or none, and no process takes them", t.Tile, t.Silent)
		}
	default:
		if what, ok := acquiring[t.State]; ok && t.Ended == nil {
			trouble("take-overs", what, in)
		}
	}
	all.failed(t)
}

// mostUnjournaled is how many batches may wait for a journal that is well, or slow for a moment.
const mostUnjournaled = 20

// longUnderWay is how long something may be under way: longer than a take-over of the tile that it goes to.
const longUnderWay = 30 * time.Second

// longUnconfirmed is how long replicas may take to come back without being a problem of borders.
const longUnconfirmed = 10 * time.Second

// border adds what does not get across the tile's border.
func (all *Problems) border(t *tile.Status) {
	b := &t.Border
	if since := time.Since(b.Unconfirmed); !b.Unconfirmed.IsZero() && since > longUnconfirmed {
		const what = "nothing crosses the borders of tiles: their replicas or journals do not confirm"
		all.Add("transfers", what, t.Tile, since)
		all.Detail(what, fmt.Sprintf("%d are under way and wait; bring back the replicas of the tile's shard, or the "+
			"durable store", b.UnderWay))
	} else if b.For > longUnderWay {
		const what = "entities are under way for long: their destinations do not take them"
		all.Add("transfers", what, t.Tile, b.For)
		text := fmt.Sprintf("%d are under way, the oldest to tile %s for %d ticks", b.UnderWay, b.Peer, b.Oldest)
		if !b.Closed.IsZero() {
			text += fmt.Sprintf("; a border is closed since %s", b.Closed.UTC().Format(time.RFC3339))
		}
		all.Detail(what, text+"; see tilectl transfers")
	}
	if b.Parked > 0 {
		const what = "entities that came back are parked: the rules fail with them"
		all.Add("transfers", what, t.Tile, 0)
		all.Detail(what, fmt.Sprintf("%d; see tilectl transfers", b.Parked))
	}
}

// failed adds why a tile does not run.
func (all *Problems) failed(t *tile.Status) {
	switch {
	case t.Quarantine != nil:
		const what = "tiles are quarantined: an operator must decide how they go on"
		all.Add("rules", what, t.Tile, time.Since(t.Since))
		all.Detail(what, t.Quarantine.Error()+"; see tilectl quarantine")
	case t.Ended != nil:
		const what = "tiles are not served: what runs them ends, and is begun again"
		all.Add("take-overs", what, t.Tile, 0)
		all.Detail(what, t.Ended.Error())
	case t.Failure != nil && (t.State == tile.Stopped || time.Since(t.FailedAt) < 30*time.Second):
		all.Add("rules", "the game's rules fail", t.Tile, 0)
		all.Detail("the game's rules fail", t.Failure.Error())
	}
}

// A tile is contested if other servers have taken it from this one so often in so long a time. One that is taken over
// because its owner was dead, paused or cut off changes hands once.
const (
	contestedBy  = 3
	contestedFor = time.Minute
)

// Flapping notices tiles that go back and forth between servers. The zero value is ready; it is safe for concurrent
// use.
type Flapping struct {
	mu   sync.Mutex
	lost map[fence.TileID][]time.Time // when a tile was taken from this server, the last times
}

// Note notes that a tile was taken from this server.
func (c *Flapping) Note(id fence.TileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = map[fence.TileID][]time.Time{}
	}
	times := append(c.lost[id], time.Now())
	c.lost[id] = times[max(0, len(times)-contestedBy):]
}

// Add adds the tiles that are contested.
func (c *Flapping) Add(all *Problems) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, times := range c.lost {
		switch since := time.Since(times[0]); {
		case time.Since(times[len(times)-1]) > contestedFor:
			delete(c.lost, id)
		case len(times) == contestedBy && since <= contestedFor:
			all.Add("take-overs", "tiles go back and forth: other servers take them from this one again and again", id,
				max(since, 1))
		}
	}
}
