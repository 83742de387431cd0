package tile

import (
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/internal/transfer"
)

// BorderStatus is what is known of the entities that cross a tile's border: with one other tile, or with all together.
type BorderStatus struct {
	Peer fence.TileID // with all together, that of the oldest

	UnderWay int           // departures that are not settled; those that are parked not included
	Oldest   fence.Tick    // for how many ticks the oldest of them has been under way
	For      time.Duration // and how long so many ticks take, undilated
	Parked   int           // departures that came back, and with which the rules fail
	Refused  int           // arrivals that were refused, and that the peer has not settled
	Waiting  int           // arrivals that wait for a tick; always 0 with all together
	Closed   time.Time     // since when the peer has not answered, if the border is closed; zero: it is open
}

// add adds what a channel has at a tick.
func (s *BorderStatus) add(peer fence.TileID, c *transfer.Channel, now fence.Tick) {
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

// closed notes since when a border is closed.
func (s *BorderStatus) closed(n *neighbor) {
	if n != nil && n.closed() && (s.Closed.IsZero() || n.failing.Before(s.Closed)) {
		s.Closed = n.failing
	}
}

// status is that of all borders together. It is the loop's.
func (b *border) status() (s BorderStatus) {
	h := b.history
	if h.Transfers.Empty() {
		return s
	}
	for peer, c := range h.Transfers.All() {
		s.add(peer, c, h.Tick)
	}
	if s.For = time.Duration(s.Oldest) * b.cfg.TickInterval; s.UnderWay > 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, n := range b.neighbors {
			s.closed(n)
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
	state := b.spoken
	if n := len(b.unstable); n > 0 {
		state = b.unstable[n-1].State
	}
	peers := state.Peers()
	for peer := range b.presented {
		peers = append(peers, peer)
	}
	slices.Sort(peers)
	for _, peer := range slices.Compact(peers) {
		c := state.With(peer)
		s := BorderStatus{}
		s.add(peer, c, now)
		s.Peer, s.For = peer, time.Duration(s.Oldest)*b.cfg.TickInterval
		s.closed(b.neighbors[peer])
		if t := b.presented[peer]; t != nil {
			fresh, _ := c.Fresh(t.After, t.Transfers)
			s.Waiting = len(fresh)
		}
		all = append(all, s)
	}
	return all
}
