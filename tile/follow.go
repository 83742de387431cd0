package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// readTimeout bounds one reading of the stream by a follower.
const readTimeout = 2 * time.Second

// watch is what a follower knows of a tile's owner.
type watch struct {
	owner  fence.Owner   // the owner hash when it was last present
	rival  fence.Grant   // the authority's record that this follower's last claim lost to
	wrote  fence.Epoch   // of the stream's last entry
	answer time.Time     // of the last answer of the store; zero: the last reading failed
	silent time.Duration // how long the owner hash has been seen not to move
	there  time.Time     // when it was last seen
	gone   time.Time     // when it was first found missing since; zero: it was not
	stuck  int           // readings in a row in which the owner hash was ahead of the stream
}

// epoch is the highest epoch under which the follower knows somebody to own the tile, or to have owned it: the
// one it takes over from.
func (w *watch) epoch() fence.Epoch { return max(w.owner.Epoch, w.rival.Epoch, w.wrote) }

// latest is the owner as far as the follower knows: the one it lost to may not be in the owner hash yet.
func (w *watch) latest() fence.Owner {
	if w.rival.Epoch > w.owner.Epoch && w.rival.Held() {
		return ownerOf(w.rival)
	}
	return w.owner
}

// saw takes note of an owner hash that has just been read. Only time between two answers counts as silence, and
// no more of it than most: a store that does not answer, and a follower that was paused, say nothing about the
// owner. That the hash is gone is no movement.
func (w *watch) saw(o fence.Owner, most time.Duration) {
	now := time.Now()
	if o.Present() && o != w.owner {
		w.owner, w.silent = o, 0
	} else if !w.answer.IsZero() {
		w.silent += min(now.Sub(w.answer), most)
	}
	if o.Present() {
		w.there, w.gone = now, time.Time{}
	} else if w.gone.IsZero() {
		w.gone = now
	}
	w.answer = now
}

// suspicion is why a follower asks for the tile.
type suspicion struct {
	why    Suspicion
	silent time.Duration
	of     fence.Epoch // the owner's, when it became suspicious
	began  time.Time
}

func (p *TileProcessor) suspect(why Suspicion) suspicion {
	return suspicion{why: why, silent: p.watch.silent, of: p.watch.epoch(), began: time.Now()}
}

// liveAsFollower follows the tile until this processor serves it, and for as long as somebody else does. It
// returns nil when the processor is Serving. Nothing but ctx or Drain ends a follower: what it cannot read today
// it may be able to read tomorrow.
func (p *TileProcessor) liveAsFollower(ctx context.Context) error {
	for {
		p.transition(Following)
		p.sendAway()
		s, err := p.follow(ctx)
		if err != nil {
			return err
		}
		if err = p.takeTile(ctx, s); err == nil || errors.Is(err, errDrained) {
			return err
		}
		p.resign(s, err)
	}
}

// follow keeps the state up to date until there is a reason to ask for the tile.
func (p *TileProcessor) follow(ctx context.Context) (suspicion, error) {
	often, seldom := p.pace()
	wait := often
	timer := time.NewTimer(phase(p.tile, often))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return suspicion{}, errDrained
		case i := <-p.inspect:
			i.done <- p.redirect()
			continue
		case d := <-p.drains:
			if d.successor == "" {
				d.answer <- nil
				return suspicion{}, errDrained
			}
			d.answer <- p.redirect()
			continue
		case why := <-p.takeOver:
			return p.suspect(why), nil
		case <-timer.C:
		}
		n, err := p.pass(ctx)
		p.report(err)
		if err == nil && p.watch.epoch() > 0 && p.watch.silent >= p.cfg.SuspectAfter {
			return p.suspect(SilentOwner), nil
		}
		switch {
		case n >= stream.DefaultLimit:
			wait = 0 // there is more
		case n > 0:
			wait = often
		case p.damaged:
			wait = max(2*wait, seldom) // it may be reading the whole history each time
			wait = min(wait, max(seldom, damagedWait))
		default:
			wait = min(max(2*wait, often), seldom)
		}
		timer.Reset(wait)
	}
}

// pace is how long a follower waits between two readings: while events flow, and at most.
func (p *TileProcessor) pace() (often, seldom time.Duration) {
	quarter := p.cfg.SuspectAfter / 4
	often = min(p.cfg.TickInterval, quarter)
	return often, max(often, min(8*p.cfg.TickInterval, quarter))
}

// pass reads what was committed since the last pass and folds it. Where that does not continue the state, it
// reads everything again. n is the number of entries that were new.
func (p *TileProcessor) pass(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	before := p.position
	c, err := p.readTail(ctx)
	if err != nil {
		p.watch.answer = time.Time{}
		return 0, err
	}
	_, seldom := p.pace()
	p.watch.saw(c.Owner, 2*seldom)
	if !p.warm || !p.foldTail(&c) {
		p.warm = false
		h, err := stream.Recover(ctx, p.seams.Log, p.tile)
		if err == nil {
			err = p.replay(&h)
		}
		if err != nil {
			return 0, err
		}
		p.warm = true
	}
	p.tick = max(p.tick, p.watch.owner.Tick)
	p.lastSeen = p.tick
	p.heat.decay(p.tick)
	p.watch.wrote = p.position.Epoch
	p.saw(p.watch.epoch())
	p.mu.Lock()
	p.status.Position, p.status.Tick, p.status.Owner, p.status.Heat = p.position, p.tick, p.watch.latest(), p.heat.value
	p.mu.Unlock()
	if p.position == before {
		return 0, nil
	}
	return max(1, len(c.Entries)), nil
}

// readTail reads what follows the state, and the owner hash.
func (p *TileProcessor) readTail(ctx context.Context) (stream.Chunk, error) {
	chunks, err := p.seams.Log.Read(ctx, []stream.Cursor{{Tile: p.tile, After: p.position.Seq}})
	if err != nil {
		return stream.Chunk{}, err
	}
	return chunks[0], chunks[0].Err
}

// foldTail folds a chunk. It reports whether the state is now a state that the stream has been in: not so if
// the chunk does not continue it, if the owner hash says that the stream has ended elsewhere (a failover may
// have taken its end), or if something cannot be read.
func (p *TileProcessor) foldTail(c *stream.Chunk) bool {
	for i := range c.Entries {
		e := &c.Entries[i]
		if e.Rebase || e.Prev != p.position || e.Verify(p.tile) != nil || p.foldEntry(e) != nil {
			return false
		}
		p.heat.add(e.Tick, e.Events)
		p.memory.followed(len(e.Payload))
	}
	switch at := c.Owner.Position; {
	case c.Poison != nil:
		return false
	case !c.Owner.Present(), len(c.Entries) >= stream.DefaultLimit:
		return true
	case at.Seq > p.position.Seq:
		// Committed between the reading of the entries and that of the owner hash, unless it stays so.
		p.watch.stuck++
		return p.watch.stuck%stuckBeforeReload != 0
	default:
		p.watch.stuck = 0
		return at == p.position
	}
}

// damagedWait is how long a follower waits at most before it reads a history again that cannot be read.
const damagedWait = 5 * time.Second

// stuckBeforeReload is how many readings in a row must find an owner hash ahead of a stream that has no more
// entries, before the snapshot is read again. An operator may have deleted the stream.
const stuckBeforeReload = 3

// report says what keeps a follower from following, once each time it changes. Store errors are for Hooks.Refused.
func (p *TileProcessor) report(err error) {
	damaged := err != nil && !retryable(err) && !errors.Is(err, context.Canceled)
	switch {
	case damaged && !p.damaged:
		p.cfg.Logger.Error("tile cannot be followed: its history cannot be read; the follower keeps trying", "tile", p.tile, "at", p.position, "err", err)
	case err == nil && p.damaged:
		p.cfg.Logger.Info("tile can be followed again", "tile", p.tile, "at", p.position)
	}
	if err != nil {
		p.cfg.Hooks.Refused(RefusalInfo{Tile: p.tile, Err: err})
	}
	p.damaged = damaged || p.damaged && err != nil
}

// sendAway answers everybody who came while this processor hoped to own the tile.
func (p *TileProcessor) sendAway() {
	p.mu.Lock()
	queue := p.queue
	p.queue = nil
	p.mu.Unlock()
	for _, s := range queue {
		s.answer <- answer{err: p.redirect()}
	}
}
