package route

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// confirmation is what the store said of a tile, and what gossip said at that time.
type confirmation struct {
	owner Entry
	heard fence.Epoch
	at    time.Time
}

// holds reports whether the store need not be asked again, given what gossip says now. Gossip of an epoch above the
// owner's may be news, which the store has too, or a lie: it is looked into once in maxAge.
func (c *confirmation) holds(heard Entry, maxAge time.Duration) bool {
	return heard.Epoch <= c.owner.Epoch || heard.Epoch == c.heard && time.Since(c.at) < maxAge
}

// Confirmed names the contact of the tile's owner according to the store, whatever gossip and redirects say: those are
// the word of processes, which may lie, and where money moves a lie pays. The owner hash is read once for each owner,
// again when gossip knows of a later epoch, and after Correct found the owner wrong. Errors: a *NoRouteError.
func (r *Router) Confirmed(ctx context.Context, id fence.TileID) (contact string, err error) {
	s := r.shard(id)
	heard, _ := r.table.Lookup(id)
	s.mu.Lock()
	known, ok := s.confirmed.Get(id)
	s.mu.Unlock()
	if ok && known.holds(heard, r.maxAge) {
		return known.owner.Contact, nil
	}
	owner, asked, err := r.read(ctx, s, id)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed.Put(id, confirmation{owner: owner, heard: heard.Epoch, at: asked})
	return owner.Contact, nil
}

// unconfirm forgets what the store said if it was wrong. It needs the shard's lock.
func (s *shard) unconfirm(id fence.TileID, wrong string) {
	if known, ok := s.confirmed.Get(id); ok && known.owner.Contact == wrong {
		s.confirmed.Remove(id)
	}
}
