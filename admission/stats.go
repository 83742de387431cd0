package admission

import (
	"errors"
	"sync"
	"time"

	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Stats counts what left a gateway since it was made. The Done hook says more.
type Stats struct {
	Moves, Acts Tally
	Redirects   uint64 // met, by intents of both kinds
	Resubmits   uint64 // submissions after a redirect

	// Intents above a rate: of their actor, of their tile, of take-overs.
	Actors, Tiles, Takeovers Shaped
	// Actions that the ledger had no time for. Only Refused is counted.
	Ledger Shaped
}

// Shaped counts the intents above a rate.
type Shaped struct {
	Delayed uint64        // until their turn
	Waited  time.Duration // all of those together
	Refused uint64
}

// Tally counts the intents of one kind by how they ended.
type Tally struct {
	Applied, Fizzled, Rejected, Redirected uint64

	Pending    uint64 // admitted, outcome not yet known
	Limited    uint64 // above a rate, and refused
	Overloaded uint64 // the tile's queue was full, and nothing recorded
	Failed     uint64 // every other error
}

// Stats returns the counts.
func (g *Gateway) Stats() Stats {
	g.counts.mu.Lock()
	defer g.counts.mu.Unlock()
	return g.counts.Stats
}

type counters struct {
	mu sync.Mutex
	Stats
}

func (c *counters) shaped(scope Scope, wait time.Duration, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &c.Actors
	switch scope {
	case ScopeTile:
		n = &c.Tiles
	case ScopeTakeover:
		n = &c.Takeovers
	}
	if refused {
		n.Refused++
		return
	}
	n.Delayed++
	n.Waited += wait
}

func (c *counters) add(info DoneInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Redirects += uint64(info.Redirects)
	c.Resubmits += uint64(info.Resubmits)
	t := &c.Moves
	if info.Kind == Act {
		t = &c.Acts
	}
	if late, ok := errors.AsType[*LimitError](info.Err); ok && late.Scope == ScopeLedger {
		c.Ledger.Refused++
	}
	n := &t.Failed
	switch {
	case info.Err == nil:
		n = [...]*uint64{stream.Applied: &t.Applied, stream.Fizzled: &t.Fizzled, stream.Rejected: &t.Rejected,
			stream.Redirected: &t.Redirected}[info.Outcome]
	case errors.Is(info.Err, ErrPending):
		n = &t.Pending
	case errors.Is(info.Err, ErrLimited):
		n = &t.Limited
	case errors.Is(info.Err, tile.ErrOverloaded):
		n = &t.Overloaded
	}
	*n++
}
