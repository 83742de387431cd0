package tile

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// border is where an owner's loop and the tile's neighbours meet. A tile speaks only of a state that cannot be undone:
// what it presents, what it answers and what it says to be settled is of the last batch that is stable. That is what
// every replica has confirmed; of a tile with a journal, what the journal has. The loop does not wait for that, only
// the message does.
type border struct {
	*base

	mu         sync.Mutex         // guards what follows
	life       context.Context    // of the processor
	ctx        context.Context    // of the owner under one epoch
	stop       context.CancelFunc // ends ctx; nil: there is no owner
	speech     transfer.Speech
	changed    chan struct{} // closed when what is stable changes, or the owner ends
	confirming bool
	unstable   time.Time // since when nothing of what waits has become stable; zero: nothing waits

	presented map[fence.TileID]transfer.Presented // what waits for a tick; see keep
	waiting   atomic.Int32                        // how many those are
	bytes     int                                 // of their payloads
	neighbors map[fence.TileID]*neighbor          // that something was presented to
	inputs    Inputs                              // of the rules, the loop's
	sight     *lookout
	turn      int                        // whose arrivals come first at the next tick
	retried   map[stream.TransferID]bool // those parked with which the rules of this owner fail; the loop's
}

// Bounds of a border.
const (
	mostPresented      = 256             // tiles whose arrivals wait
	mostPresentedBytes = 8 << 20         // of their payloads
	presentBytes       = 512 << 10       // of one message
	presentTimeout     = 5 * time.Second // of one message and its answer
	answerWithin       = time.Second     // what was presented is decided and confirmed until then, or it is said later
	closedAfter        = 2 * time.Second // without an answer, or without anything that has become stable
	confirmAgain       = 50 * time.Millisecond
)

func newBorder(c *base) *border {
	b := &border{base: c, life: context.Background(), changed: make(chan struct{}),
		presented: map[fence.TileID]transfer.Presented{}, neighbors: map[fence.TileID]*neighbor{},
		sight: &lookout{base: c}}
	b.inputs.Room, b.inputs.Rim = b.room, b.sight.rim
	return b
}

// begin begins with an owner's history, which is stable: every replica has confirmed it, and it is the journal's base.
func (b *border) begin() {
	b.sight.begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
	}
	b.ctx, b.stop = context.WithCancel(b.life)
	b.confirming, b.unstable = false, time.Time{}
	b.retried = map[stream.TransferID]bool{}
	b.neighbors = map[fence.TileID]*neighbor{} // what they have answered another owner, or this one before, comes again
	b.speech.Begin(b.history.Transfers, b.journals(), b.writesThrough())
	b.said()
}

// end ends it with the owner.
func (b *border) end() {
	b.sight.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
	clear(b.presented)
	b.bytes = 0
	b.waiting.Store(0)
	close(b.changed)
	b.changed = make(chan struct{})
}

// committed notes the state after a batch, which is confirmed or has to be asked for. The journal says by itself what
// it has.
func (b *border) committed(batch *stream.Batch, at fence.Position, confirmed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.speech.Committed(batch, at, b.history.Transfers, confirmed) {
		b.said()
	}
	if b.unstable.IsZero() && b.speech.Waits() {
		b.unstable = time.Now()
	}
	b.ask()
}

// shut reports whether nothing may depart, since what has departed cannot be said. b.mu is held.
func (b *border) shut() bool { return !b.unstable.IsZero() && time.Since(b.unstable) > closedAfter }

// said has what has become stable be spoken of. b.mu is held.
func (b *border) said() {
	if b.unstable = (time.Time{}); b.speech.Waits() {
		b.unstable = time.Now()
	}
	close(b.changed)
	b.changed = make(chan struct{})
	b.speak()
}

// ask asks the replicas for what they have not confirmed, one question after the other. b.mu is held.
func (b *border) ask() {
	if _, asks := b.speech.Asks(); !asks || b.confirming || b.stop == nil {
		return
	}
	b.confirming = true
	ctx := b.ctx
	b.beside.Go(func() {
		for {
			b.mu.Lock()
			at, asks := b.speech.Asks()
			if ctx.Err() != nil || !asks {
				b.confirming = b.confirming && b.ctx != ctx
				b.mu.Unlock()
				return
			}
			b.mu.Unlock()
			if err := b.seams.Store.Confirm(ctx, b.tile, at); err != nil {
				b.cfg.Logger.Debug("what crosses the border is not confirmed yet", "at", at, "error", err)
				if retry.Sleep(ctx, confirmAgain) != nil {
					continue
				}
			} else {
				b.inbox.confirm(at)
				b.mu.Lock()
				if b.speech.Confirmed(at) {
					b.said()
				}
				b.mu.Unlock()
			}
		}
	})
}

// journaled notes that the journal has the history up to a position, if it is this one.
func (b *border) journaled(at fence.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.speech.Journaled(at) {
		b.said()
	}
}

// present is TileProcessor.Present.
func (b *border) present(ctx context.Context, p *Presentation) (Answer, error) {
	if !transfer.Admits(p.Durable, b.journals(), b.cfg.MixedBorders) {
		return Answer{}, &fence.ArgumentError{Field: "Durable", Value: p.Durable,
			Want: "a tile whose durability is of the same kind as " + b.cfg.Durability.String() +
				", or tile.Config.MixedBorders here"}
	}
	if err := b.keep(p); err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for {
		if err := b.inbox.away(); err != nil {
			return Answer{}, err
		}
		b.mu.Lock()
		c, changed, serves := b.speech.Stable.With(p.From), b.changed, b.stop != nil
		b.mu.Unlock()
		if !serves {
			return Answer{}, ErrOverloaded
		}
		_, joins := c.Fresh(p.After, p.Transfers)
		if n := len(p.Transfers); n == 0 || !joins || c.Mark.Compare(p.Transfers[n-1].ID) >= 0 {
			return Answer{Mark: c.Mark, Refused: c.Refused}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Answer{Mark: c.Mark, Refused: c.Refused}, nil
		}
	}
}

// keep keeps a presentation for the next tick. Of two of one tile the one that goes further counts. ErrOverloaded if
// too much waits.
func (b *border) keep(p *Presentation) error {
	shown := transfer.Presented{After: p.After, Settled: p.Settled, Transfers: p.Transfers}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop == nil {
		return nil // present says why
	}
	size := shown.Size()
	old, known := b.presented[p.From]
	if known {
		shown = shown.Over(&old)
		size = shown.Size() - old.Size()
	}
	if size > 0 && b.bytes+size > mostPresentedBytes || !known && len(b.presented) >= mostPresented {
		return ErrOverloaded
	}
	if !known {
		b.waiting.Add(1)
	}
	b.presented[p.From] = shown
	b.bytes += size
	return nil
}

// nothing is the offer of a quiet border.
var nothing transfer.Offer

// offer is what the next tick decides about.
func (b *border) offer() *transfer.Offer {
	h := &b.history.Transfers
	if b.waiting.Load() == 0 && h.UnderWay() == 0 {
		return &nothing
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	f, idle := h.Offer(b.presented, func(peer fence.TileID) *transfer.Peer {
		if n := b.neighbors[peer]; n != nil {
			return &n.Peer
		}
		return nil
	}, b.retried, b.turn)
	for _, peer := range idle {
		b.drop(peer)
	}
	return f
}

// offered notes with which of the parked ones the rules still fail.
func (b *border) offered(f *transfer.Offer) {
	for i := range f.Returns {
		if r := &f.Returns[i]; r.Poison != "" {
			b.retried[r.ID] = true
		}
	}
}

// drop forgets what a tile has presented: it is decided. b.mu is held.
func (b *border) drop(peer fence.TileID) {
	p := b.presented[peer]
	b.bytes -= p.Size()
	delete(b.presented, peer)
	b.waiting.Add(-1)
}

// inputs are what the rules are asked about of an offer.
func inputs(f *transfer.Offer, in *Inputs) {
	for i := range f.Arrivals {
		if a := &f.Arrivals[i]; a.Poison == "" {
			in.Arrivals = append(in.Arrivals, Arrival{Transfer: a.Transfer, From: a.From})
		}
	}
	for i := range f.Returns {
		if r := &f.Returns[i]; r.Poison == "" {
			in.Returns = append(in.Returns, r.Return)
		}
	}
}

// decided puts into a batch what the rules have said of the arrivals.
func decided(f *transfer.Offer, d *Outputs, b *stream.Batch) (transfer.Crossed, error) {
	var reasons []string
	if n := len(d.Verdicts); n > 0 {
		reasons = make([]string, n)
	}
	for i, v := range d.Verdicts {
		reasons[i] = v.Refused
	}
	return f.Decide(reasons, b)
}
