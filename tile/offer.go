package tile

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

// offer is what a tick decides about beside its intents. What makes the rules fail is taken out of it: it is refused,
// or parked, and the rules are asked about the rest.
type offer struct {
	arrivals []arrival
	returns  []back
	settles  []stream.Settlement
	forgets  map[fence.TileID]stream.TransferID

	examined bool // the rules were asked about it without any intent
}

type arrival struct {
	Arrival
	poison string // why the rules fail with it; empty: they do not
	taken  bool   // by the rules, when they were asked last
}

// back is a departure that comes back.
type back struct {
	Return
	parked bool // and was parked
	poison string
}

func (f *offer) empty() bool {
	return len(f.arrivals)+len(f.returns)+len(f.settles)+len(f.forgets) == 0
}

// inputs are what the rules are asked about.
func (f *offer) inputs(in *Inputs) {
	for i := range f.arrivals {
		if f.arrivals[i].poison == "" {
			in.Arrivals = append(in.Arrivals, f.arrivals[i].Arrival)
		}
	}
	for i := range f.returns {
		if f.returns[i].poison == "" {
			in.Returns = append(in.Returns, f.returns[i].Return)
		}
	}
}

// crossed is what becomes of an offer in a tick.
type crossed struct {
	arrivals int // that are decided
	returns  int // that are taken back
	parked   int
}

// decided puts into a batch what the rules have said of the arrivals.
func (f *offer) decided(d *Outputs, b *stream.Batch) (n crossed, err error) {
	if f.empty() && len(d.Verdicts) == 0 {
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
	verdicts := d.Verdicts
	for i := range f.arrivals {
		a := &f.arrivals[i]
		reason := a.poison
		if reason == "" {
			if len(verdicts) == 0 {
				break
			}
			reason, verdicts = verdicts[0].Refused, verdicts[1:]
		}
		of := decision(a.From)
		of.Mark, a.taken = a.ID, reason == ""
		n.arrivals++
		if reason != "" {
			of.Refused = append(of.Refused, refusal(a.ID, reason))
		}
	}
	if len(verdicts) > 0 {
		return n, fmt.Errorf("it returned %d verdicts for %d arrivals", len(d.Verdicts), len(d.Verdicts)-len(verdicts))
	}
	for from, id := range f.forgets {
		decision(from).Forget = id
	}
	for _, from := range order {
		b.Decisions = append(b.Decisions, *byTile[from])
	}
	b.Settlements = append(b.Settlements, f.settles...)
	for i := range f.returns {
		switch r := &f.returns[i]; {
		case r.poison == "" && r.parked:
			s := settlement(b, r.To)
			s.Retaken = append(s.Retaken, r.ID)
			n.returns++
		case r.poison == "":
			n.returns++
		case !r.parked:
			s := settlement(b, r.To)
			s.Parked = append(s.Parked, refusal(r.ID, r.poison))
			n.parked++
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

// items is how many things there are that may be to blame.
func (f *offer) items() int { return len(f.arrivals) + len(f.returns) }

// blame marks one of them.
func (f *offer) blame(i int, why string) {
	if i < len(f.returns) {
		f.returns[i].poison = why
	} else {
		f.arrivals[i-len(f.returns)].poison = why
	}
}

// first is the offer of the first n items: the returns, then the arrivals. What is left out waits.
func (f *offer) first(n int) *offer {
	c := &offer{forgets: f.forgets, examined: true, arrivals: f.arrivals[:max(0, n-len(f.returns))]}
	if n >= len(f.returns) {
		c.returns, c.settles = f.returns, f.settles
		return c
	}
	c.returns = f.returns[:n]
	for _, s := range f.settles { // a tile's departures are settled up to the last return that is not left out
		if slices.ContainsFunc(f.returns[n:], func(r back) bool { return r.To == s.To && !r.parked }) {
			s.UpTo = stream.TransferID{}
			for _, r := range c.returns {
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
