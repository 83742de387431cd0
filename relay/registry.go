package relay

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/fairshare"
)

// registry holds the hubs of the tiles that the relay watches. Its mutex is taken before any hub's.
type registry struct {
	cfg    *Config
	stats  *counters
	life   *lifecycle
	repair func(*hub) bool // starts a hub's repair task
	kept   *keptSyncs

	mu   sync.Mutex
	hubs map[fence.TileID]*hub
	// subs are the subscriptions of actors and addresses: that with most loses a tile when there is no room for another
	subs fairshare.Pool[*subscription]
}

// open returns the tile's hub for a client of some holder, making it if need be; nil when there is no room for another.
func (r *registry) open(tile fence.TileID, holder string) *hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hubs[tile]
	if h == nil && (len(r.hubs) < r.cfg.MaxTiles || r.makeRoom() || r.takeRoom(holder)) {
		h = newHub(tile, r.cfg, r.stats, r.repair)
		h.syncs.kept = r.kept
		r.hubs[tile] = h
	}
	return h
}

// roomTries bounds how many hubs are looked at to make room for one.
const roomTries = 64

// makeRoom drops a tile without clients before its time, if it soon finds one. The mutex is held.
func (r *registry) makeRoom() bool {
	tries := 0
	for tile, h := range r.hubs { // in random order
		if h.expire(time.Now(), 0) {
			delete(r.hubs, tile)
			r.life.spawn(h.close)
			return true
		}
		if tries++; tries == roomTries {
			return false
		}
	}
	return false
}

// takeRoom drops a tile of the holder that has most subscriptions, if that leaves it at least as many as the one for
// which there is no room. Others may watch the tile only if that holds for them, too, and they have half as many at
// least. The clients that watch it are sent CODE_OVERLOADED. The mutex is held.
func (r *registry) takeRoom(holder string) bool {
	_, of := r.subs.Heaviest()
	least := r.subs.Held(holder) + 2
	if len(of) < least {
		return false
	}
	may := func(other string) bool { return r.subs.Held(other) >= max(least, len(of)/2) }
	for i := len(of) - 1; i >= max(0, len(of)-roomTries); i-- {
		h := of[i].h
		ended := h.endAll(may)
		if ended == nil {
			continue
		}
		for _, s := range ended {
			r.subs.Remove(s.holder, s)
		}
		delete(r.hubs, h.tile)
		r.life.spawn(h.close)
		return true
	}
	return false
}

// count counts a subscription in or out.
func (r *registry) count(s *subscription, in bool) {
	if s.holder == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if in {
		r.subs.Add(s.holder, s)
	} else {
		r.subs.Remove(s.holder, s)
	}
}

// find is the tile's hub if there is one.
func (r *registry) find(tile fence.TileID) *hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hubs[tile]
}

// watchers are the clients that watch a tile.
func (r *registry) watchers(tile fence.TileID) []outlet {
	h := r.find(tile)
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]outlet, 0, len(h.subs))
	for _, s := range h.subs {
		all = append(all, s.out)
	}
	return all
}

func (r *registry) all() []*hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.hubs))
}

func (r *registry) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.hubs)
}

// forget makes room for another hub of the same tile.
func (r *registry) forget(h *hub) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hubs[h.tile] == h {
		delete(r.hubs, h.tile)
	}
}

// drop forgets a hub and ends its fan-out subscription.
func (r *registry) drop(h *hub) {
	r.forget(h)
	h.close()
}

// sweep drops the tiles that no client has watched for 30 s.
func (r *registry) sweep(now time.Time) {
	for _, h := range r.all() {
		if h.expire(now, r.cfg.linger) {
			r.life.spawn(func() { r.drop(h) }) // ending a subscription is I/O
		}
	}
}
