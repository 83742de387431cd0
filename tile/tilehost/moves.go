package tilehost

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// Run runs the host's tiles until ctx ends; then it drains them all, as tile.TileProcessor.Run does, and returns
// nil. It owns every goroutine of the host and returns when all have ended. Tiles are drained 256 at a
// time; those that have not had their turn after Config.DrainTimeout are drained at once, so that Run
// outlives ctx by about twice that time, and in a healthy system by much less.
//
// A host runs once: fence.ErrAlreadyRun. No tile's failure is an error of Run; see Hooks.Ended.
func (h *Host) Run(ctx context.Context) error {
	h.mu.Lock()
	if h.phase != hostReady {
		h.mu.Unlock()
		return fence.ErrAlreadyRun
	}
	h.phase = hostRunning
	h.life, h.end = context.WithCancel(context.WithoutCancel(ctx))
	defer h.end()
	for _, t := range h.tiles {
		t.start()
	}
	h.mu.Unlock()

	<-ctx.Done()
	h.drainEverything()
	h.running.Wait()
	return nil
}

// Abandon ends a host that has not run, and will not: its tiles are given up, and Await returns why, for any tile.
func (h *Host) Abandon(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != hostReady {
		return
	}
	h.phase, h.abandoned = hostEnding, why
	for _, t := range h.tiles {
		t.err = why
		t.forget()
	}
}

// drainEverything ends all tiles, a limited number at a time while that is quick enough.
func (h *Host) drainEverything() {
	h.mu.Lock()
	h.phase = hostEnding
	tiles := slices.Collect(maps.Values(h.tiles))
	h.mu.Unlock()
	patience := time.NewTimer(h.cfg.Tile.DrainTimeout)
	defer patience.Stop()
	for _, t := range tiles {
		select {
		case h.slots <- struct{}{}:
			t.stop()
		case <-patience.C:
			h.end()
			return
		}
	}
}

// Own makes the host claim tiles and run them. A tile that is held elsewhere is left there: its processor
// ends with a *fence.LostError (see Await, Hooks.Ended). A tile that the host has a part in already keeps
// that part. Own does not wait. Errors: a *fence.ArgumentError, for no tile or one that Config.Allow refuses; ErrFull;
// tile.ErrHostEnded. Then no tile was added.
func (h *Host) Own(tiles ...fence.TileID) error { return h.add(asOwner, tiles) }

// Follow makes the host a warm follower of tiles: each is kept up to date, silently, and taken over when
// its owner dies, hands it over, or falls silent (Config.SuspectAfter). Otherwise it is like Own.
func (h *Host) Follow(tiles ...fence.TileID) error { return h.add(asFollower, tiles) }

// TakeOver makes the host take a tile from its owner, now: by its follower if it has one. It does
// not wait; see Await. If the host owns the tile, or is about to, nothing happens. Errors as for Own.
func (h *Host) TakeOver(id fence.TileID) error {
	_, _, err := h.promote(id, tile.Ordered)
	return err
}

// Suspect reports that gossip presumes the process at contact dead. The host takes over the tiles that it
// follows and whose owner hash, as last seen, names that process; paced, hot tiles first. A tile whose owner hash moves
// is left alone unless the report stands, for two ticks and at least a second, without a call of Vouch. A tile that
// turns out to have another owner when its turn comes is left alone, too. Suspect does not wait; it returns the number
// of tiles suspected.
func (h *Host) Suspect(contact string) int {
	suspected := h.followed(contact)
	for _, p := range suspected {
		p.TakeOver(tile.OwnerDied)
	}
	return len(suspected)
}

// Vouch reports that gossip sees a living member at contact, although Suspect said otherwise of the process there:
// that one died and was started again, or another had taken its contact and died. The host takes its tiles when their
// owner hashes do not move, and not otherwise.
func (h *Host) Vouch(contact string) {
	for _, p := range h.followed(contact) {
		p.OwnerLives()
	}
}

// followed are the processors of the tiles that the host follows and that the process at contact owns.
func (h *Host) followed(contact string) (processors []*tile.TileProcessor) {
	if contact == "" {
		return nil
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, t := range h.tiles {
		if t.p == nil {
			continue
		}
		if s := t.p.Status(); s.State == tile.Following && s.Owner.Contact == contact {
			processors = append(processors, t.p)
		}
	}
	return processors
}

// Await waits until the host serves all of the tiles. Its error joins one for each tile that it will not
// serve: what ended its processor, or a *tile.RedirectError if the host has no part in it. A tile that is
// quarantined will not be served until an operator has decided. One that is followed, or will be restarted, is waited
// for. ctx's cause if that ends first.
func (h *Host) Await(ctx context.Context, tiles ...fence.TileID) error {
	var failed []error
	for _, id := range tiles {
		t := h.part(id)
		if t == nil {
			failed = append(failed, h.absent(ctx, id))
			continue
		}
		if err := t.awaitServing(ctx, 0, math.MaxInt); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// absent is why Await does not wait for a tile that the host does not have.
func (h *Host) absent(ctx context.Context, id fence.TileID) error {
	h.mu.RLock()
	why := cmp.Or(h.abandoned, h.broken[id])
	h.mu.RUnlock()
	if why != nil {
		return why
	}
	return h.redirect(ctx, id)
}

// add gives tiles to the host in a role.
func (h *Host) add(r role, tiles []fence.TileID) error {
	for _, id := range tiles {
		if err := h.allow(id); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == hostEnding {
		return tile.ErrHostEnded
	}
	added := map[fence.TileID]bool{}
	for _, id := range tiles {
		if h.tiles[id] == nil {
			added[id] = true
		}
	}
	if err := h.room(len(added)); err != nil {
		return err
	}
	for _, id := range tiles {
		if t := h.tiles[id]; t == nil {
			h.admit(id, r)
		} else if t.ending() {
			t.want(r)
		}
	}
	return nil
}

// admit makes a tile the host's. h.mu is held.
func (h *Host) admit(id fence.TileID, r role) *hosted {
	t := &hosted{host: h, id: id, role: r}
	h.tiles[id] = t
	delete(h.broken, id)
	if h.phase == hostRunning {
		t.start()
	}
	return t
}

// promote makes the host take a tile, by its follower or a new rival; nothing happens if it owns the tile
// already. failed is how often its followers have tried in vain until now.
func (h *Host) promote(id fence.TileID, why tile.Suspicion) (t *hosted, failed int, err error) {
	if err := h.allow(id); err != nil {
		return nil, 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == hostEnding {
		return nil, 0, tile.ErrHostEnded
	}
	t = h.tiles[id]
	switch {
	case t == nil:
		if err := h.room(1); err != nil {
			return nil, 0, err
		}
		t = h.admit(id, asRival)
	case t.ending():
		t.want(asRival)
	case t.p != nil:
		if s := t.p.Status().State; s == tile.Serving || s == tile.Healing {
			break
		}
		if t.role == asFollower {
			t.p.TakeOver(why)
		} else {
			t.wanted = asRival // should it not get the tile as it tries now
		}
	default:
		t.role = asRival // it has not begun
	}
	return t, t.failed, nil
}

// Drain hands a tile that the host owns over to the process at successor, as tile.TileProcessor.Drain does, and
// returns when the host has forgotten it. An empty successor makes the host give up its part in the tile,
// whatever that is: an owner plays its last tick, saves a snapshot and releases the tile.
//
// Errors: those of tile.TileProcessor.Drain, after which the tile stays; a *tile.RedirectError if the host does not
// own the tile (or, with no successor, has no part in it); ctx's cause, after which it may still move.
func (h *Host) Drain(ctx context.Context, id fence.TileID, successor string) error {
	t := h.part(id)
	p := h.Processor(id)
	switch {
	case t == nil, p == nil && successor != "":
		return h.redirect(ctx, id)
	case successor == "":
		t.stop()
	default:
		if err := p.Drain(ctx, successor); err != nil {
			return err
		}
	}
	return t.await(ctx, func() bool { return t.gone || t.p != nil && t.p != p })
}

// DrainAll drains every tile that the host serves to the process that successor names for it, as Drain
// does, Config.Promotions of them at a time; a tile for which it names none is released. successor
// may be called from many goroutines. The error joins those of the tiles that stay.
func (h *Host) DrainAll(ctx context.Context, successor func(fence.TileID) string) error {
	var serving []fence.TileID
	h.mu.RLock()
	for _, id := range slices.Sorted(maps.Keys(h.tiles)) {
		if s := h.tiles[id].status(); s.State == tile.Serving || s.State == tile.Healing {
			serving = append(serving, id)
		}
	}
	h.mu.RUnlock()
	errs := make([]error, len(serving))
	slots := make(chan struct{}, h.cfg.Promotions)
	var draining sync.WaitGroup
	for i, id := range serving {
		slots <- struct{}{}
		draining.Go(func() {
			errs[i] = h.Drain(ctx, id, successor(id))
			<-slots
		})
	}
	draining.Wait()
	return errors.Join(errs...)
}

// Accept takes over a tile that its owner hands to this host, and returns when the tile is served here. A
// follower of the tile makes it quick; without one the history is replayed first. Accepting twice is no
// error. tilehttp.HandoverHandler serves it.
//
// Errors: a *fence.ArgumentError when the hand-over is not for this host, or Config.Allow refuses the tile; ErrFull; a
// *tile.RedirectError when the owner hash names another than the giver, or none; what ended the processor that
// tried, such as a *fence.LostError; tile.ErrHostEnded; ctx's cause, after which the tile may still be taken over.
func (h *Host) Accept(ctx context.Context, o tile.Handover) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.To != h.contact {
		return &fence.ArgumentError{Field: "to", Value: o.To, Want: "this process, " + h.contact}
	}
	for attempt := 0; ; attempt++ {
		if err := h.acceptable(ctx, &o); err != nil {
			h.refusals.Warn("a tile that was handed over is not taken", "tile", o.Tile, "from", o.From, "error", err)
			return err
		}
		t, failures, err := h.promote(o.Tile, tile.HandedOver)
		if err != nil {
			return err
		}
		if err = t.awaitServing(ctx, o.Epoch, failures); !errors.Is(err, tile.ErrSuperseded) &&
			!errors.Is(err, tile.ErrRedirect) {
			return err
		}
		// What ended is the life that the tile had here before it went to the giver, and now comes back.
		if err := retry.Sleep(ctx, retry.Backoff(attempt)); err != nil {
			return err
		}
	}
}
