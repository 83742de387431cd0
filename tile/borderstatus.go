package tile

import (
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
)

// addTo adds what a channel has at a tick.
func addTo(s *BorderStatus, peer fence.TileID, c *transfer.Channel, now fence.Tick) {
	s.UnderWay += len(c.Outbox)
	s.Parked += len(c.Parked)
	s.Refused += len(c.Refused)
	if len(c.Outbox) == 0 {
		return
	}
	if age := max(now, c.Outbox[0].Tick) - c.Outbox[0].Tick; age >= s.Oldest {
		s.Peer, s.Oldest = peer, age
	}
}

// noteClosed notes since when a border is closed, and on which side. b.mu is held.
func (b *border) noteClosed(s *BorderStatus, n *neighbor) {
	if n != nil && n.closed() && (s.Closed.IsZero() || n.failing.Before(s.Closed)) {
		s.Closed = n.failing
	}
	if b.shut() {
		s.Unconfirmed = b.unstable
		if s.Closed.IsZero() || b.unstable.Before(s.Closed) {
			s.Closed = b.unstable
		}
	}
}

// status is that of all borders together. It is the loop's.
func (b *border) status() (s BorderStatus) {
	h := b.history
	if h.Transfers.Empty() {
		return s
	}
	for peer, c := range h.Transfers.All() {
		addTo(&s, peer, c, h.Tick)
	}
	s.For = time.Duration(s.Oldest) * b.cfg.TickInterval
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteClosed(&s, nil)
	for _, n := range b.neighbors {
		if s.UnderWay > 0 {
			b.noteClosed(&s, n)
		}
	}
	return s
}

// Borders are the tile's borders with other tiles that anything has crossed or is to cross, in their order, as its
// owner sees them now; none while it is not served here.
func (p *TileProcessor) Borders() (all []BorderStatus) {
	b, now := p.owner.border, p.Status().Tick
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop == nil {
		return nil
	}
	state := b.speech.Latest()
	peers := state.Peers()
	for peer := range b.presented {
		peers = append(peers, peer)
	}
	slices.Sort(peers)
	for _, peer := range slices.Compact(peers) {
		c := state.With(peer)
		s := BorderStatus{}
		addTo(&s, peer, c, now)
		s.Peer, s.For = peer, time.Duration(s.Oldest)*b.cfg.TickInterval
		b.noteClosed(&s, b.neighbors[peer])
		if t, waits := b.presented[peer]; waits {
			fresh, _ := c.Fresh(t.After, t.Transfers)
			s.Waiting = len(fresh)
		}
		all = append(all, s)
	}
	return all
}
