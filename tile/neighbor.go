package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// neighbor is what the owner knows of a tile that it presents departures to.
type neighbor struct {
	transfer.Peer
	speaking bool      // a goroutine does
	failing  time.Time // since when no attempt has had an answer; zero: the last one had
	refuses  bool      // since then it has said that it takes nothing: it is quarantined, or of another kind

	said      stream.TransferID  // up to which the presentation under way goes
	interrupt context.CancelFunc // ends it, for one that goes further; nil: it may not be ended
}

// closed reports whether nothing more may depart for the tile: it has not answered for so long, or it has refused to
// take anything.
func (n *neighbor) closed() bool {
	return !n.failing.IsZero() && (n.refuses || time.Since(n.failing) > closedAfter)
}

// speak presents what is stable to the tiles that have not decided it, each by a goroutine of its own. b.mu is held.
func (b *border) speak() {
	if b.stop == nil || b.seams.Present == nil {
		return
	}
	for _, peer := range b.speech.Stable.Peers() {
		n := b.neighbors[peer]
		if n == nil {
			n = &neighbor{}
			b.neighbors[peer] = n
		}
		if c := b.speech.Stable.With(peer); !n.speaking && n.Owes(c) {
			n.speaking = true
			ctx := b.ctx
			b.beside.Go(func() { b.speakTo(ctx, peer, n) })
		} else if n.interrupt != nil && len(c.Waiting(n.said, 0)) > 0 {
			n.interrupt()
			n.interrupt = nil
		}
	}
}

// speakTo presents to a tile until it has decided all, or the owner ends. A presentation that the tile has not decided
// when more has departed gives way, once, to one that goes further: if each waited for the answer of the one before, a
// tile that was late once would be late by a tick of the other for as long as something departs at every tick.
func (b *border) speakTo(ctx context.Context, peer fence.TileID, n *neighbor) {
	gaveWay := false
	for attempt := 0; ; {
		b.mu.Lock()
		c := b.speech.Stable.With(peer)
		if ctx.Err() != nil || !n.Owes(c) {
			n.speaking = false
			b.mu.Unlock()
			return
		}
		shown := n.Presents(c, presentBytes)
		p := Presentation{From: b.tile, To: peer, Durable: b.journals(), After: shown.After, Settled: shown.Settled,
			Transfers: shown.Transfers}
		limited, cancel := context.WithTimeout(ctx, presentTimeout)
		mayGiveWay := false
		if last := len(p.Transfers) - 1; last >= 0 && !gaveWay {
			n.said = p.Transfers[last].ID
			if mayGiveWay = len(c.Waiting(n.said, 0)) == 0; mayGiveWay { // else the next goes no further either
				n.interrupt = cancel
			}
		}
		b.mu.Unlock()
		before := p.After
		a, err := b.seams.Present(limited, p)
		b.mu.Lock()
		gaveWay = err != nil && mayGiveWay && n.interrupt == nil && ctx.Err() == nil
		n.interrupt = nil
		b.mu.Unlock()
		cancel()
		if gaveWay {
			continue
		}
		b.heard(peer, n, a, err)
		if err == nil && a.Mark != before {
			attempt = 0
			continue
		}
		attempt++
		if retry.Sleep(ctx, retry.Backoff(attempt)) != nil {
			continue // and end
		}
	}
}

// heard notes what a tile has answered, or that it has not.
func (b *border) heard(peer fence.TileID, n *neighbor, a Answer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if n.failing.IsZero() {
			n.failing = time.Now()
		}
		n.refuses = n.refuses || errors.Is(err, fence.ErrInvalidArgument) || errors.Is(err, ErrQuarantined)
		if errors.Is(err, fence.ErrInvalidArgument) {
			b.reminder.Error("a tile does not take what departs for it: it waits here", "peer", peer, "error", err)
		}
		return
	}
	n.failing, n.refuses = time.Time{}, false
	if c := b.speech.Stable.With(peer); n.Hears(a.Mark, a.Refused, c) {
		b.cfg.Logger.Error("a tile has forgotten what it had taken from this one: was it put back to an older state? "+
			"what it had taken since is lost or in two places", "peer", peer, "decided", a.Mark, "settled", c.Settled)
	}
}

// room is Inputs.Room.
func (b *border) room(to fence.TileID, bytes int) int {
	if to == 0 || to == b.tile || b.seams.Present == nil || bytes < 0 || bytes > stream.MaxTransfer {
		return 0
	}
	b.mu.Lock()
	n := b.neighbors[to]
	closed := b.shut() || n != nil && n.closed()
	b.mu.Unlock()
	if closed {
		return 0
	}
	return b.history.Transfers.Room(to, bytes)
}

// checkRoom says which of the departures there is no room for. A tile that has stopped answering since the rules asked
// is no reason: they could not know.
func (b *border) checkRoom(all []stream.Departure) error {
	if len(all) == 0 {
		return nil
	}
	n, most := map[fence.TileID]int{}, map[fence.TileID]int{}
	for i := range all {
		d := &all[i]
		if err := d.Validate(b.tile); err != nil {
			return err
		}
		n[d.To]++
		most[d.To] = max(most[d.To], len(d.Payload))
	}
	for to, n := range n {
		if b.seams.Present == nil || n > b.history.Transfers.Room(to, most[to]) {
			return &fence.ArgumentError{Field: "Departures", Value: n, Want: "no more for tile " + to.String() +
				" than Inputs.Room has said"}
		}
	}
	return nil
}
