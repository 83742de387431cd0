package memmatch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/internal/denied"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

type pool struct {
	tiles map[fence.TileID]*tile
	has   map[string]*allocated // by match
}

type tile struct {
	match.Offer
	until time.Time
	used  map[int]bool
}

// allocated is the seats of a match.
type allocated struct {
	match.Assignment
	shard   string
	parties map[string]holding // by ticket
	ended   time.Time
}

type holding int

const (
	held holding = iota + 1
	taken
	lapsed // and not settled
	given  // back
)

func (s *store) pool(ctx context.Context, name string) (*pool, func(), error) {
	if err := guard.Ended(ctx, "seats", 0); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	p := s.pools[name]
	if p == nil {
		p = &pool{tiles: make(map[fence.TileID]*tile), has: make(map[string]*allocated)}
		s.pools[name] = p
	}
	return p, s.mu.Unlock, nil
}

// Offer implements match.Seats.
func (s *store) Offer(ctx context.Context, name string, o match.Offer, ttl time.Duration) (match.Load, error) {
	if err := match.CheckOffer(o, ttl); err != nil {
		return match.Load{}, err
	}
	p, unlock, err := s.pool(ctx, name)
	if err != nil {
		return match.Load{}, err
	}
	defer unlock()
	t := p.tiles[o.Tile]
	if t == nil {
		t = &tile{used: make(map[int]bool)}
		p.tiles[o.Tile] = t
	}
	if t.Epoch > o.Epoch {
		return match.Load{}, denied.StaleOffer(o.Tile, o.Epoch, t.Epoch)
	}
	o.Info = maps.Clone(o.Info)
	t.Offer, t.until = o, time.Now().Add(ttl)
	return t.load(time.Now()), nil
}

func (t *tile) load(now time.Time) match.Load {
	return match.Load{Offer: t.Offer, Used: len(t.used), Serving: t.until.After(now)}
}

// Withdraw implements match.Seats.
func (s *store) Withdraw(ctx context.Context, name string, id fence.TileID, e fence.Epoch) error {
	p, unlock, err := s.pool(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	t := p.tiles[id]
	if t == nil {
		return nil
	}
	if t.Epoch > e {
		return denied.StaleOffer(id, e, t.Epoch)
	}
	t.until, t.Epoch = time.Time{}, e
	for _, a := range p.has {
		if a.Tile != id {
			continue
		}
		for party, state := range a.parties {
			switch state {
			case held:
				p.free(a, party, lapsed)
			case taken:
				p.free(a, party, given)
			}
		}
		a.close()
	}
	return nil
}

// free returns the seats of a party.
func (p *pool) free(a *allocated, party string, to holding) {
	a.parties[party] = to
	for _, n := range a.Seats[party] {
		delete(p.tiles[a.Tile].used, n)
	}
}

// remembered is how long a match that has no seats gets the same answer: longer than its tickets are kept.
const remembered = 24 * time.Hour

// close marks a match that has no seats and nothing to settle.
func (a *allocated) close() {
	for _, state := range a.parties {
		if state != given {
			return
		}
	}
	a.ended = time.Now()
}

// Allocate implements match.Seats.
func (s *store) Allocate(
	ctx context.Context, name string, orders []match.Order, hold time.Duration,
) ([]match.Allocation, error) {
	if err := match.CheckOrders(orders, hold); err != nil {
		return nil, err
	}
	p, unlock, err := s.pool(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	answers := make([]match.Allocation, len(orders))
	now := time.Now()
	maps.DeleteFunc(p.has, func(_ string, a *allocated) bool {
		return !a.ended.IsZero() && now.Sub(a.ended) > remembered
	})
	for i, o := range orders {
		if a := p.has[o.Match]; a != nil {
			answers[i].Assignment = a.Assignment
			continue
		}
		need := 0
		for _, party := range o.Tickets {
			need += party.Seats
		}
		t := p.choose(o.Tile, need, now)
		if t == nil {
			answers[i].Err = denied.NoSeat(name, o)
			continue
		}
		a := &allocated{shard: o.Shard, parties: make(map[string]holding), Assignment: match.Assignment{Match: o.Match,
			Tile: t.Tile, Epoch: t.Epoch, Contact: t.Contact, Info: t.Info, Seats: make(map[string][]int),
			TakeBy: now.Add(hold)}}
		seat := 0
		for _, party := range o.Tickets {
			a.parties[party.Ticket] = held
			for range party.Seats {
				for t.used[seat] {
					seat++
				}
				t.used[seat] = true
				a.Seats[party.Ticket] = append(a.Seats[party.Ticket], seat)
			}
		}
		p.has[o.Match] = a
		answers[i].Assignment = a.Assignment
	}
	return answers, nil
}

// choose returns the fullest tile that serves and has room.
func (p *pool) choose(only fence.TileID, need int, now time.Time) *tile {
	var best *tile
	for id, t := range p.tiles {
		free := t.Seats - len(t.used)
		if only != 0 && id != only || !t.until.After(now) || free < need {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(free, best.Seats-len(best.used)), cmp.Compare(id, best.Tile)) < 0 {
			best = t
		}
	}
	return best
}

// Take implements match.Seats.
func (s *store) Take(ctx context.Context, name, id, ticket string) error {
	p, unlock, err := s.pool(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	a := p.has[id]
	if a == nil || a.parties[ticket] != taken && (a.parties[ticket] != held || !a.TakeBy.After(time.Now())) {
		return denied.Lapsed(id, ticket)
	}
	a.parties[ticket] = taken
	return nil
}

// Free implements match.Seats.
func (s *store) Free(ctx context.Context, name, id, ticket string) error {
	p, unlock, err := s.pool(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if a := p.has[id]; a != nil && (a.parties[ticket] == held || a.parties[ticket] == taken) {
		p.free(a, ticket, given)
		a.close()
	}
	return nil
}

// Lapsed implements match.Seats.
func (s *store) Lapsed(ctx context.Context, name string, limit int) ([]match.Lapse, error) {
	p, unlock, err := s.pool(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := time.Now()
	var lapses []match.Lapse
	for id, a := range p.has {
		for party, state := range a.parties {
			if state == held && !a.TakeBy.After(now) {
				p.free(a, party, lapsed)
			}
			if a.parties[party] == lapsed && len(lapses) < limit {
				lapses = append(lapses, match.Lapse{Shard: a.shard, Match: id, Ticket: party})
			}
		}
	}
	return lapses, nil
}

// Settled implements match.Seats.
func (s *store) Settled(ctx context.Context, name string, settled []match.Lapse) error {
	p, unlock, err := s.pool(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	for _, l := range settled {
		if a := p.has[l.Match]; a != nil && a.parties[l.Ticket] == lapsed {
			a.parties[l.Ticket] = given
			a.close()
		}
	}
	return nil
}

// Tiles implements match.Seats.
func (s *store) Tiles(ctx context.Context, name string) ([]match.Load, error) {
	p, unlock, err := s.pool(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var list []match.Load
	for _, t := range p.tiles {
		list = append(list, t.load(time.Now()))
	}
	slices.SortFunc(list, func(a, b match.Load) int { return cmp.Compare(a.Tile, b.Tile) })
	return list, nil
}
