package tile

import (
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

// Inputs are what a tick decides about.
type Inputs struct {
	Intents []Intent // as for Resolve

	// Elapsed is the time since the tick before this one was played, by clocks: about a tick interval; more if ticks
	// were missed or the store did not answer; hours if the tile had no owner for so long. It is 0 at the first tick of
	// a new tile, never negative, and as wrong as the clocks of two servers differ. Of an owner that was killed while
	// its tile was quiet, the last ticks without events may count as not played. What Play makes of it must be in the
	// events: followers, and later owners, see those alone. A tick that does not come to pass is in the next one's.
	Elapsed time.Duration

	// Arrivals are presented by other tiles, those of each tile in the order of their departure. The payloads are not
	// to be changed.
	Arrivals []Arrival

	// Returns are departures of this tile that their destinations have refused. The rules take them back, all of them.
	Returns []Return

	// UnderWay is how many have departed and may come back, Returns included: keep so many places free.
	UnderWay int

	// Room is how many entities, of a payload of so many bytes each, may depart for a tile at this tick. It is 0 while
	// as much is under way there as may be, the tile does not answer, or this tile's replicas or journal do not confirm
	// what has departed: the border is closed.
	Room func(to fence.TileID, bytes int) int

	// Rim is what is seen of another tile, the same however often the tick is decided: see Sighted. It is nothing of
	// tiles that the rules do not look at.
	Rim func(of fence.TileID) Rim
}

// Arrival is an entity that another tile presents.
type Arrival struct {
	stream.Transfer
	From fence.TileID
}

// Return is a departure that its destination has refused.
type Return = transfer.Return

// Outputs are what a tick comes to.
type Outputs struct {
	Events   [][]byte         // as of Resolve
	Outcomes []stream.Outcome // one for each intent, in order

	// Why says to the sender of an intent, and to nothing else, why it has its outcome: a text or a code. It is about
	// the first of the intents, in order; "" and what is missing say nothing. What is longer than MaxWhy bytes is cut,
	// and "?" takes the place of a character that fence.IsName does not take. See Decide.
	Why []string

	// Verdicts are about the first of the arrivals, in order. Those without one come again at the next tick, and the
	// later ones of their tile with them.
	Verdicts []Verdict

	// Departures are committed with the events. More for a tile than there is room for, or one that is not valid, is a
	// failure of the rules.
	Departures []stream.Departure
}

// Decide gives the next of the intents its outcome, and says why to its sender; "" says nothing, and costs nothing.
func (o *Outputs) Decide(outcome stream.Outcome, why string) {
	o.Outcomes = append(o.Outcomes, outcome)
	if why != "" {
		o.Why = append(o.Why, make([]string, max(0, len(o.Outcomes)-1-len(o.Why)))...)
		o.Why = append(o.Why, why)
	}
}

// Verdict is what becomes of an arrival. The zero value takes it.
type Verdict struct {
	Refused string // why it is not taken, as a text of Outputs.Why; it goes back
}

// Presentation is what a tile tells another: what has departed for it after a transfer, in order and without a gap.
type Presentation struct {
	From, To  fence.TileID
	Durable   bool              // the tile that presents has a journal: what it tells survives all of coordination
	After     stream.TransferID // zero: from the first on
	Settled   stream.TransferID // the last that is settled
	Transfers []stream.Transfer
}

// Validate returns a *fence.ArgumentError that names the first field that is not valid.
func (p *Presentation) Validate() error {
	if p.To == 0 || p.From == 0 || p.From == p.To {
		return &fence.ArgumentError{Field: "To", Value: p.To, Want: "two different tiles"}
	}
	if len(p.Transfers) > transfer.Window {
		return &fence.ArgumentError{Field: "Transfers", Value: len(p.Transfers),
			Want: fmt.Sprint("at most ", transfer.Window)}
	}
	for i := range p.Transfers {
		if err := p.Transfers[i].Validate(p.From); err != nil {
			return err
		}
	}
	if err := transfer.Check(p.To, p.After, p.Transfers); err != nil {
		return &fence.ArgumentError{Field: "Transfers", Value: err.Error(), Want: "what follows After, in order"}
	}
	return nil
}

// Answer is what a tile tells another of the transfers that it was presented with.
type Answer struct {
	Mark    stream.TransferID // up to which it has decided them
	Refused []stream.Refusal  // those up to Mark that it has not taken, and that the other tile has not settled
}
