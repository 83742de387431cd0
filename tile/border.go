package tile

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/retry"
	"github.com/tilefence/tilefence/tile/internal/transfer"
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
	spoken     transfer.State     // the stable one
	changed    chan struct{}      // closed when spoken changes, or the owner ends
	unstable   []unstable         // committed since, oldest first
	confirming bool

	presented map[fence.TileID]*Presentation // what waits for a tick; see keep
	waiting   atomic.Int32                   // how many those are
	bytes     int                            // of their payloads
	neighbors map[fence.TileID]*neighbor     // that something was presented to
	inputs    Inputs                         // of the rules, the loop's
	turn      int                            // whose arrivals come first at the next tick
	retried   map[stream.TransferID]bool     // those parked with which the rules of this owner fail; the loop's
}

// unstable is the tile's part of its channels after a batch that may still be lost.
type unstable struct {
	at fence.Position
	transfer.State
}

// Bounds of a border.
const (
	mostPresented      = 256             // tiles whose arrivals wait
	mostPresentedBytes = 8 << 20         // of their payloads
	presentBytes       = 512 << 10       // of one message
	presentTimeout     = 5 * time.Second // of one message and its answer
	answerWithin       = time.Second     // what was presented is decided and confirmed until then, or it is said later
	closedAfter        = 2 * time.Second // without an answer
	confirmAgain       = 50 * time.Millisecond
)

func newBorder(c *base) *border {
	b := &border{base: c, life: context.Background(), changed: make(chan struct{}),
		presented: map[fence.TileID]*Presentation{}, neighbors: map[fence.TileID]*neighbor{}}
	b.inputs.Room = b.room
	return b
}

// begin begins with an owner's history, which is stable: every replica has confirmed it, and it is the journal's base.
func (b *border) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
	}
	b.ctx, b.stop = context.WithCancel(b.life)
	b.unstable, b.confirming = nil, false
	b.retried = map[stream.TransferID]bool{}
	b.neighbors = map[fence.TileID]*neighbor{} // what they have answered another owner, or this one before, comes again
	b.speakOf(b.history.Transfers)
}

// end ends it with the owner.
func (b *border) end() {
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
	crosses := len(batch.Departures)+len(batch.Decisions)+len(batch.Settlements) > 0
	switch {
	case confirmed && !b.journals(), b.writesThrough() && crosses:
		b.unstable = nil
		b.speakOf(b.history.Transfers)
	case crosses:
		b.unstable = append(b.unstable, unstable{at, b.history.Transfers})
		b.ask()
	}
}

// speakOf makes a state the one that is spoken of. b.mu is held.
func (b *border) speakOf(s transfer.State) {
	b.spoken = s
	close(b.changed)
	b.changed = make(chan struct{})
	b.speak()
}

// ask asks the replicas for what they have not confirmed, one question after the other. b.mu is held.
func (b *border) ask() {
	if b.confirming || b.stop == nil || b.journals() {
		return
	}
	b.confirming = true
	ctx := b.ctx
	b.beside.Go(func() {
		for {
			b.mu.Lock()
			if ctx.Err() != nil || len(b.unstable) == 0 {
				b.confirming = b.confirming && b.ctx != ctx
				b.mu.Unlock()
				return
			}
			at := b.unstable[len(b.unstable)-1].at
			b.mu.Unlock()
			if err := b.seams.Store.Confirm(ctx, b.tile, at); err != nil {
				b.cfg.Logger.Debug("what crosses the border is not confirmed yet", "at", at, "error", err)
				if retry.Sleep(ctx, confirmAgain) != nil {
					continue
				}
			} else {
				b.inbox.confirm(at)
				b.stable(at)
			}
		}
	})
}

// stable notes that a history is stable up to a position, if it is this one.
func (b *border) stable(at fence.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.unstable) && b.unstable[n].at.Epoch == at.Epoch && b.unstable[n].at.Seq <= at.Seq {
		n++
	}
	if n == 0 {
		return
	}
	state := b.unstable[n-1].State
	b.unstable = slices.Delete(b.unstable, 0, n)
	b.speakOf(state)
}

// present is TileProcessor.Present.
func (b *border) present(ctx context.Context, p *Presentation) (Answer, error) {
	if p.Durable != b.journals() && !b.cfg.MixedBorders {
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
		c, changed, serves := b.spoken.With(p.From), b.changed, b.stop != nil
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
	size := 0
	for i := range p.Transfers {
		size += p.Transfers[i].Size()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.presented[p.From]
	switch {
	case b.stop == nil:
		return nil // present says why
	case old == nil:
		if len(b.presented) >= mostPresented || b.bytes+size > mostPresentedBytes {
			return ErrOverloaded
		}
		b.presented[p.From] = p
		b.waiting.Add(1)
		b.bytes += size
	case further(p, old):
		for i := range old.Transfers {
			size -= old.Transfers[i].Size()
		}
		if b.bytes+size > mostPresentedBytes {
			return ErrOverloaded
		}
		b.presented[p.From] = p
		b.bytes += size
	}
	if old != nil && old.Settled.Compare(p.Settled) > 0 {
		settled := *b.presented[p.From]
		settled.Settled = old.Settled
		b.presented[p.From] = &settled
	}
	return nil
}

// nothing is the offer of a quiet border.
var nothing offer

// offer is what the next tick decides about.
func (b *border) offer() *offer {
	h := &b.history.Transfers
	if b.waiting.Load() == 0 && h.UnderWay() == 0 {
		return &nothing
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &offer{forgets: map[fence.TileID]stream.TransferID{}}
	var from []fence.TileID
	fresh := map[fence.TileID][]stream.Transfer{}
	for peer, p := range b.presented {
		c := h.With(peer)
		if id := c.Forgets(p.Settled); !id.IsZero() {
			f.forgets[peer] = id
		}
		if all, _ := c.Fresh(p.After, p.Transfers); len(all) > 0 {
			fresh[peer] = all
			from = append(from, peer)
		} else if f.forgets[peer].IsZero() {
			b.drop(peer)
		}
	}
	slices.Sort(from)
	f.arrivals = b.interleave(from, fresh)
	for _, peer := range h.Peers() {
		n := b.neighbors[peer]
		if n == nil || n.answer == nil {
			continue
		}
		upTo, returns := h.With(peer).Decided(n.answer.Mark, n.answer.Refused, mostReturns-len(f.returns))
		if upTo.IsZero() {
			continue
		}
		f.settles = append(f.settles, stream.Settlement{To: peer, UpTo: upTo})
		for _, r := range returns {
			f.returns = append(f.returns, back{Return: r})
		}
	}
	b.again(f)
	return f
}

// again offers what is parked, once to each owner: its rules may be others.
func (b *border) again(f *offer) {
	for _, peer := range b.history.Transfers.Peers() {
		for _, r := range b.history.Transfers.With(peer).Parked {
			if !b.retried[r.ID] && len(f.returns) < mostReturns {
				f.returns = append(f.returns, back{Return: r, parked: true})
			}
		}
	}
}

// offered notes with which of the parked ones the rules still fail.
func (b *border) offered(f *offer) {
	for i := range f.returns {
		if r := &f.returns[i]; r.poison != "" {
			b.retried[r.ID] = true
		}
	}
}

// drop forgets what a tile has presented: it is decided. b.mu is held.
func (b *border) drop(peer fence.TileID) {
	for i := range b.presented[peer].Transfers {
		b.bytes -= b.presented[peer].Transfers[i].Size()
	}
	delete(b.presented, peer)
	b.waiting.Add(-1)
}

// interleave takes one transfer of each tile after the other, so that none makes the others wait. b.mu is held.
func (b *border) interleave(from []fence.TileID, fresh map[fence.TileID][]stream.Transfer) (all []arrival) {
	if len(from) == 0 {
		return nil
	}
	b.turn = (b.turn + 1) % len(from)
	from = append(from[b.turn:len(from):len(from)], from[:b.turn]...)
	for left := arrivalsBytes; len(from) > 0; {
		rest := from[:0:0]
		for _, peer := range from {
			t := fresh[peer][0]
			if len(all) > 0 && (len(all) >= mostArrivals || t.Size() > left) {
				return all
			}
			left -= t.Size()
			all = append(all, arrival{Arrival: Arrival{Transfer: t, From: peer}})
			if fresh[peer] = fresh[peer][1:]; len(fresh[peer]) > 0 {
				rest = append(rest, peer)
			}
		}
		from = rest
	}
	return all
}
