package transfer

import (
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// The most that a tick is asked about at once, beside its intents.
const (
	mostArrivals  = 2048
	arrivalsBytes = 256 << 10 // the events that put them in, and their outcomes, fit into a batch
	mostReturns   = 512
)

// Offer is what a tick decides about beside its intents. What makes the rules fail is taken out of it: it is refused,
// or parked, and the rules are asked about the rest.
type Offer struct {
	Arrivals []Arrival
	Returns  []Back
	settles  []stream.Settlement
	forgets  map[fence.TileID]stream.TransferID

	Examined bool // the rules were asked about it without any intent
}

// Arrival is a transfer that another tile presents.
type Arrival struct {
	stream.Transfer
	From   fence.TileID
	Poison string // why the rules fail with it; empty: they do not
	Taken  bool   // by the rules, when they were asked last
}

// Back is a departure that comes back.
type Back struct {
	Return
	parked bool // and was parked
	Poison string
}

// Offer is what a tick of the tile decides: what was presented by other tiles, by what they have answered, and what is
// parked, unless the rules of this owner have failed with it. turn changes whose arrivals come first. Of what the tiles
// in idle have presented nothing is left to be decided.
func (s *State) Offer(presented map[fence.TileID]Presented, heard func(fence.TileID) *Peer,
	failed map[stream.TransferID]bool, turn int) (f *Offer, idle []fence.TileID) {
	f = &Offer{forgets: map[fence.TileID]stream.TransferID{}}
	var from []fence.TileID
	fresh := map[fence.TileID][]stream.Transfer{}
	for peer, p := range presented {
		c := s.With(peer)
		if id := c.Forgets(p.Settled); !id.IsZero() {
			f.forgets[peer] = id
		}
		if all, _ := c.Fresh(p.After, p.Transfers); len(all) > 0 {
			fresh[peer] = all
			from = append(from, peer)
		} else if f.forgets[peer].IsZero() {
			idle = append(idle, peer)
		}
	}
	slices.Sort(from)
	f.interleave(from, fresh, turn)
	for _, peer := range s.Peers() {
		p := heard(peer)
		if p == nil || !p.Answered {
			continue
		}
		upTo, returns := s.With(peer).Decided(p.Mark, p.Refused, mostReturns-len(f.Returns))
		if upTo.IsZero() {
			continue
		}
		f.settles = append(f.settles, stream.Settlement{To: peer, UpTo: upTo})
		for _, r := range returns {
			f.Returns = append(f.Returns, Back{Return: r})
		}
	}
	for _, peer := range s.Peers() {
		for _, r := range s.With(peer).Parked {
			if !failed[r.ID] && len(f.Returns) < mostReturns {
				f.Returns = append(f.Returns, Back{Return: r, parked: true})
			}
		}
	}
	return f, idle
}

// interleave takes one transfer of each tile after the other, so that none makes the others wait.
func (f *Offer) interleave(from []fence.TileID, fresh map[fence.TileID][]stream.Transfer, turn int) {
	if len(from) == 0 {
		return
	}
	turn %= len(from)
	from = append(from[turn:len(from):len(from)], from[:turn]...)
	for left := arrivalsBytes; len(from) > 0; {
		rest := from[:0:0]
		for _, peer := range from {
			t := fresh[peer][0]
			if len(f.Arrivals) > 0 && (len(f.Arrivals) >= mostArrivals || t.Size() > left) {
				return
			}
			left -= t.Size()
			f.Arrivals = append(f.Arrivals, Arrival{Transfer: t, From: peer})
			if fresh[peer] = fresh[peer][1:]; len(fresh[peer]) > 0 {
				rest = append(rest, peer)
			}
		}
		from = rest
	}
}

// Empty reports whether there is nothing to decide.
func (f *Offer) Empty() bool {
	return len(f.Arrivals)+len(f.Returns)+len(f.settles)+len(f.forgets) == 0
}

// Crossed is what becomes of an offer in a tick.
type Crossed struct {
	Arrivals int // that are decided
	Returns  int // that are taken back
	Parked   int
}

// Decide puts into a batch what the rules have said of the arrivals: a reason for each of the first of them, empty if
// they take it.
func (f *Offer) Decide(verdicts []string, b *stream.Batch) (n Crossed, err error) {
	if f.Empty() && len(verdicts) == 0 {
		return n, nil
	}
	byTile := map[fence.TileID]*stream.Decision{}
	var order []fence.TileID
	decision := func(from fence.TileID) *stream.Decision {
		if byTile[from] == nil {
			byTile[from] = &stream.Decision{From: from}
			order = append(order, from)
		}
		return byTile[from]
	}
	said := len(verdicts)
	for i := range f.Arrivals {
		a := &f.Arrivals[i]
		reason := a.Poison
		if reason == "" {
			if len(verdicts) == 0 {
				break
			}
			reason, verdicts = verdicts[0], verdicts[1:]
		}
		of := decision(a.From)
		of.Mark, a.Taken = a.ID, reason == ""
		n.Arrivals++
		if reason != "" {
			of.Refused = append(of.Refused, refusal(a.ID, reason))
		}
	}
	if len(verdicts) > 0 {
		return n, fmt.Errorf("it returned %d verdicts for %d arrivals", said, said-len(verdicts))
	}
	for from, id := range f.forgets {
		decision(from).Forget = id
	}
	for _, from := range order {
		b.Decisions = append(b.Decisions, *byTile[from])
	}
	b.Settlements = append(b.Settlements, f.settles...)
	for i := range f.Returns {
		switch r := &f.Returns[i]; {
		case r.Poison == "" && r.parked:
			s := settlement(b, r.To)
			s.Retaken = append(s.Retaken, r.ID)
			n.Returns++
		case r.Poison == "":
			n.Returns++
		case !r.parked:
			s := settlement(b, r.To)
			s.Parked = append(s.Parked, refusal(r.ID, r.Poison))
			n.Parked++
		}
	}
	return n, nil
}

// settlement is the one of a batch with a tile.
func settlement(b *stream.Batch, to fence.TileID) *stream.Settlement {
	for i := range b.Settlements {
		if b.Settlements[i].To == to {
			return &b.Settlements[i]
		}
	}
	b.Settlements = append(b.Settlements, stream.Settlement{To: to})
	return &b.Settlements[len(b.Settlements)-1]
}

// refusal is a refusal with the reason as it may travel.
func refusal(id stream.TransferID, reason string) stream.Refusal {
	return stream.Refusal{ID: id, Reason: fence.AsName(reason, stream.MaxRefusal)}
}

// Items is how many things there are that may be to blame.
func (f *Offer) Items() int { return len(f.Arrivals) + len(f.Returns) }

// Blame marks one of them.
func (f *Offer) Blame(i int, why string) {
	if i < len(f.Returns) {
		f.Returns[i].Poison = why
	} else {
		f.Arrivals[i-len(f.Returns)].Poison = why
	}
}

// First is the offer of the first n items: the returns, then the arrivals. What is left out waits.
func (f *Offer) First(n int) *Offer {
	c := &Offer{forgets: f.forgets, Examined: true, Arrivals: f.Arrivals[:max(0, n-len(f.Returns))]}
	if n >= len(f.Returns) {
		c.Returns, c.settles = f.Returns, f.settles
		return c
	}
	c.Returns = f.Returns[:n]
	for _, s := range f.settles { // a tile's departures are settled up to the last return that is not left out
		if slices.ContainsFunc(f.Returns[n:], func(r Back) bool { return r.To == s.To && !r.parked }) {
			s.UpTo = stream.TransferID{}
			for _, r := range c.Returns {
				if r.To == s.To && !r.parked {
					s.UpTo = r.ID
				}
			}
		}
		if !s.UpTo.IsZero() {
			c.settles = append(c.settles, s)
		}
	}
	return c
}
