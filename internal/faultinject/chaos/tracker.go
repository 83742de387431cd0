package chaos

import (
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// Tracker sees every commit, change of state and delivery of a deployment, and times by them how long the tiles that a
// fault hit need to recover. All methods may be called from any goroutine.
type Tracker struct {
	mu      sync.Mutex
	outage  *outage                    // of the fault under way, or nil
	commits map[fence.TileID]time.Time // when each tile last committed
}

// NewTracker returns a tracker that has seen nothing.
func NewTracker() *Tracker { return &Tracker{commits: map[fence.TileID]time.Time{}} }

// outage is what the tiles that a fault hit have come to.
type outage struct {
	began, healed time.Time
	victim        string        // contact of a host whose commits do not count until it is healed; may be empty
	settles       time.Duration // commits so soon after the beginning were under way before it
	delivery      bool          // recovered is: a batch committed after the healing has reached a client
	fenced        bool          // the victim commits nothing to a tile that another has taken
	strayed       int           // batches that it committed all the same
	tiles         map[fence.TileID]*affected
	taken         map[fence.TileID]fence.Epoch // under which others have installed themselves
}

// affected is a tile that a fault hit. Zero times: not yet.
type affected struct {
	claimed   time.Time // another host has begun to take it over
	recovered time.Time
}

// begin starts an outage.
func (k *Tracker) begin(o *outage, tiles []fence.TileID) {
	o.tiles, o.taken = map[fence.TileID]*affected{}, map[fence.TileID]fence.Epoch{}
	for _, id := range tiles {
		o.tiles[id] = &affected{}
	}
	k.mu.Lock()
	k.outage = o
	k.mu.Unlock()
}

// heal notes that what was broken has been put right.
func (k *Tracker) heal(o *outage) {
	k.mu.Lock()
	o.healed = time.Now()
	k.mu.Unlock()
}

// suffering lists the tiles of an outage that have not recovered yet, in the order of tiles.
func (k *Tracker) suffering(o *outage, tiles []fence.TileID) []fence.TileID {
	k.mu.Lock()
	defer k.mu.Unlock()
	open := []fence.TileID{}
	for _, id := range tiles {
		if p := o.tiles[id]; p != nil && p.recovered.IsZero() {
			open = append(open, id)
		}
	}
	return open
}

// result is how long an outage took: until the last tile was claimed by another host (zero: none was), and until the
// last had recovered.
func (k *Tracker) result(o *outage) (detection, recovery time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range o.tiles {
		if !p.claimed.IsZero() {
			detection = max(detection, p.claimed.Sub(o.began))
		}
		if !p.recovered.IsZero() {
			recovery = max(recovery, p.recovered.Sub(o.began))
		}
	}
	return detection, recovery
}

// committedSince reports whether every tile has committed after a moment, and names one that has not.
func (k *Tracker) committedSince(since time.Time, tiles []fence.TileID) (fence.TileID, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range tiles {
		if !k.commits[id].After(since) {
			return id, false
		}
	}
	return 0, true
}

// affected finds a tile in the outage under way, if it has not recovered. The mutex is held.
func (k *Tracker) affected(id fence.TileID) *affected {
	if k.outage == nil {
		return nil
	}
	if p := k.outage.tiles[id]; p != nil && p.recovered.IsZero() {
		return p
	}
	return nil
}

// late is how many batches the victim of an outage has committed to tiles that others had taken from it.
func (k *Tracker) late(o *outage) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return o.strayed
}

// Committed notes a tick that a host has committed under an epoch.
func (k *Tracker) Committed(id fence.TileID, host string, epoch fence.Epoch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.commits[id] = now
	p, o := k.affected(id), k.outage
	if o != nil && o.fenced && host == o.victim && epoch < o.taken[id] {
		o.strayed++
	}
	if p != nil && !o.delivery && now.Sub(o.began) >= o.settles && (host != o.victim || !o.healed.IsZero()) {
		p.recovered = now
	}
}

// installed notes under which epoch a host other than the victim has installed itself: before the tile recovers by it.
func (k *Tracker) installed(id fence.TileID, host string, epoch fence.Epoch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.outage; o != nil && host != o.victim {
		o.taken[id] = max(o.taken[id], epoch)
	}
}

// takenAfter reports whether a host other than the victim has installed itself under a later epoch than this.
func (k *Tracker) takenAfter(id fence.TileID, epoch fence.Epoch) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.outage.taken[id] > epoch
}

// Moved notes that a host's processor has gone from one state to another.
func (k *Tracker) Moved(host string, i tile.TransitionInfo) {
	if i.From == tile.Installing && i.To == tile.Serving {
		k.installed(i.Tile, host, i.Epoch)
		k.Committed(i.Tile, host, i.Epoch) // every replica holds the new owner's first batch
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.affected(i.Tile); p != nil && i.To == tile.Claiming && host != k.outage.victim && p.claimed.IsZero() {
		p.claimed = time.Now()
	}
}

// Delivered notes a batch that has reached a client; committed is the owner's time of it.
func (k *Tracker) Delivered(id fence.TileID, committed time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, o := k.affected(id), k.outage
	if p != nil && o.delivery && !o.healed.IsZero() && committed.After(o.healed) {
		p.recovered = time.Now()
	}
}
