package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/retry"
	"github.com/tilefence/tilefence/tile/internal/transfer"
)

// neighbor is what the owner knows of a tile that it presents departures to.
type neighbor struct {
	speaking bool      // a goroutine does
	answer   *Answer   // the latest; nil: there was none
	behind   int       // answers in a row that had less decided than what is settled
	failing  time.Time // since when no attempt has had an answer; zero: the last one had

	said      stream.TransferID  // up to which the presentation under way goes
	interrupt context.CancelFunc // ends it, for one that goes further; nil: it may not be ended
}

// closed reports whether the tile has not answered for so long that nothing more may depart for it.
func (n *neighbor) closed() bool { return !n.failing.IsZero() && time.Since(n.failing) > closedAfter }

// speak presents what is stable to the tiles that have not decided it, each by a goroutine of its own. b.mu is held.
func (b *border) speak() {
	if b.stop == nil || b.seams.Present == nil {
		return
	}
	for _, peer := range b.spoken.Peers() {
		n := b.neighbors[peer]
		if n == nil {
			n = &neighbor{}
			b.neighbors[peer] = n
		}
		if !n.speaking && b.owes(peer, n) {
			n.speaking = true
			ctx := b.ctx
			b.beside.Go(func() { b.speakTo(ctx, peer, n) })
		} else if n.interrupt != nil && len(b.spoken.With(peer).Waiting(n.said, 0)) > 0 {
			n.interrupt()
			n.interrupt = nil
		}
	}
}

// owes reports whether there is something to say to a tile. b.mu is held.
func (b *border) owes(peer fence.TileID, n *neighbor) bool {
	c := b.spoken.With(peer)
	unsettled := n.answer != nil && len(n.answer.Refused) > 0 && n.answer.Refused[0].ID.Compare(c.Settled) <= 0
	return unsettled || len(c.Waiting(n.believed(c), 0)) > 0
}

// believed is up to where a tile has decided, as far as it is known.
func (n *neighbor) believed(c *transfer.Channel) stream.TransferID {
	if n.answer == nil {
		return c.Settled
	}
	return n.answer.Mark
}

// speakTo presents to a tile until it has decided all, or the owner ends. A presentation that the tile has not decided
// when more has departed gives way, once, to one that goes further: if each waited for the answer of the one before, a
// tile that was late once would be late by a tick of the other for as long as something departs at every tick.
func (b *border) speakTo(ctx context.Context, peer fence.TileID, n *neighbor) {
	gaveWay := false
	for attempt := 0; ; {
		b.mu.Lock()
		if ctx.Err() != nil || !b.owes(peer, n) {
			n.speaking = false
			b.mu.Unlock()
			return
		}
		c := b.spoken.With(peer)
		p := Presentation{From: b.tile, To: peer, Durable: b.journals(), After: n.believed(c), Settled: c.Settled}
		p.Transfers = c.Waiting(p.After, presentBytes)
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
		if errors.Is(err, fence.ErrInvalidArgument) {
			b.reminder.Error("a tile does not take what departs for it: it waits here", "peer", peer, "error", err)
		}
		return
	}
	n.answer, n.failing = &a, time.Time{}
	settled := b.spoken.With(peer).Settled
	if a.Mark.Compare(settled) >= 0 {
		n.behind = 0
	} else if n.behind++; n.behind == behindBefore {
		b.cfg.Logger.Error("a tile has forgotten what it had taken from this one: was it put back to an older state? "+
			"what it had taken since is lost or in two places", "peer", peer, "decided", a.Mark, "settled", settled)
	}
}

// behindBefore is how many answers in a row must have forgotten something before that is reported: an earlier owner may
// have answered.
const behindBefore = 3

// room is Inputs.Room.
func (b *border) room(to fence.TileID, bytes int) int {
	if to == 0 || to == b.tile || b.seams.Present == nil || bytes < 0 || bytes > stream.MaxTransfer {
		return 0
	}
	b.mu.Lock()
	n := b.neighbors[to]
	closed := n != nil && n.closed()
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
