package admission

import (
	"errors"
	"sync/atomic"
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

// Stats returns the counts. They are read one after the other, so they may differ by what is going on.
func (g *Gateway) Stats() Stats {
	return Stats{
		Moves: g.counts.moves.read(), Acts: g.counts.acts.read(),
		Redirects: g.counts.redirects.Load(), Resubmits: g.counts.resubmits.Load(),
		Actors: g.counts.actors.read(), Tiles: g.counts.tiles.read(), Takeovers: g.counts.takeovers.read(),
	}
}

type counters struct {
	moves, acts          tally
	redirects, resubmits atomic.Uint64

	actors, tiles, takeovers shapeCounts
}

type shapeCounts struct {
	delayed, refused atomic.Uint64
	waited           atomic.Int64
}

func (c *counters) shaped(i ShapeInfo) {
	n := &c.actors
	switch i.Scope {
	case ScopeTile:
		n = &c.tiles
	case ScopeTakeover:
		n = &c.takeovers
	}
	if i.Refused {
		n.refused.Add(1)
		return
	}
	n.delayed.Add(1)
	n.waited.Add(int64(i.Wait))
}

func (n *shapeCounts) read() Shaped {
	return Shaped{Delayed: n.delayed.Load(), Waited: time.Duration(n.waited.Load()), Refused: n.refused.Load()}
}

type tally struct {
	outcomes                            [stream.Redirected + 1]atomic.Uint64
	pending, limited, overloaded, other atomic.Uint64
}

func (c *counters) add(info DoneInfo) {
	c.redirects.Add(uint64(info.Redirects))
	c.resubmits.Add(uint64(info.Resubmits))
	t := &c.moves
	if info.Kind == Act {
		t = &c.acts
	}
	switch {
	case info.Err == nil:
		t.outcomes[info.Outcome].Add(1)
	case errors.Is(info.Err, ErrPending):
		t.pending.Add(1)
	case errors.Is(info.Err, ErrLimited):
		t.limited.Add(1)
	case errors.Is(info.Err, tile.ErrOverloaded):
		t.overloaded.Add(1)
	default:
		t.other.Add(1)
	}
}

func (t *tally) read() Tally {
	return Tally{
		Applied: t.outcomes[stream.Applied].Load(), Fizzled: t.outcomes[stream.Fizzled].Load(),
		Rejected: t.outcomes[stream.Rejected].Load(), Redirected: t.outcomes[stream.Redirected].Load(),
		Pending: t.pending.Load(), Limited: t.limited.Load(), Overloaded: t.overloaded.Load(), Failed: t.other.Load(),
	}
}
