package redisfence

import (
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// maxRenewals bounds what renewals remembers. Past it, all tiles renew once more.
const maxRenewals = 1 << 17

// renewals remembers when the time to live of owner hashes was last renewed. Batches that append leave it as it is for
// a while: renewing it is a fifth of the server's work for a commit, and one that is a second old is as good.
type renewals struct {
	every time.Duration
	mu    sync.Mutex
	at    map[fence.TileID]time.Time
}

// due reports whether a batch has to renew the time to live.
func (r *renewals) due(tile fence.TileID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.at[tile]) >= r.every
}

// renewed notes that the time to live was renewed by a call that began at a time, or, if that is zero, that nothing is
// known of it any more.
func (r *renewals) renewed(tile fence.TileID, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil || len(r.at) >= maxRenewals {
		r.at = map[fence.TileID]time.Time{}
	}
	if at.IsZero() {
		delete(r.at, tile)
	} else {
		r.at[tile] = at
	}
}
