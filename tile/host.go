package tile

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// ErrHostEnded means: the host's Run is ending or has ended, and takes no more tiles.
var ErrHostEnded = errors.New("tile host has ended")

// Host runs the tiles of one process, thousands of them: each in a TileProcessor and a goroutine of its
// own, their ticks spread over the interval, their promotions paced.
//
//	h, err := tile.NewHost("10.0.0.7:7000", seams, newRules, &tile.HostConfig{Announce: announce})
//	go func() { ended <- h.Run(ctx) }()
//	err = h.Own(mine...)
//	err = h.Follow(theirs...)
//	mux.Handle(tilehttp.Path, tilehttp.Handler(h))
//
// A tile enters the host by Own, Follow, TakeOver or Accept. When its processor ends, because it was
// superseded, drained or failed, the host learns and announces who owns the tile now, and forgets it:
// processor and rules are garbage. HostConfig says when it follows the tile or runs it again instead. What
// happens to one tile never ends another, nor the host.
//
// All methods may be called from any goroutine. Tiles may be added before Run; nothing happens to them
// until then.
type Host struct {
	contact string
	seams   Seams
	rules   func(fence.TileID) (Rules, error)
	cfg     HostConfig
	tile    Config // of the processors, but for their role
	pacer   *pacer
	slots   chan struct{} // taken by tiles that are drained because Run ends

	mu      sync.RWMutex // guards what follows, and the tiles; a processor's lock may be taken under it
	phase   hostPhase
	tiles   map[fence.TileID]*hosted
	life    context.Context // of all tiles
	end     context.CancelFunc
	running sync.WaitGroup // the tiles' goroutines
}

type hostPhase int

const (
	hostReady hostPhase = iota
	hostRunning
	hostEnding // or ended
)

// drainWidth is how many tiles a host drains at once when it ends: each plays a tick, saves a snapshot and
// tells the authority, and these serve others too.
const drainWidth = 256

// NewHost makes a host. contact is the address at which it takes intents and hand-overs, as for New. rules
// makes a tile's rules, empty and for that tile alone, each time the tile gets a processor; it may be
// called from many goroutines. A nil cfg means the defaults. NewHost does no I/O and starts nothing; a
// *fence.ArgumentError names a bad argument.
func NewHost(contact string, seams Seams, rules func(fence.TileID) (Rules, error), cfg *HostConfig) (*Host, error) {
	c, err := cfg.withDefaults(seams)
	if err != nil {
		return nil, err
	}
	switch {
	case contact == "" || len(contact) > fence.MaxContact:
		return nil, &fence.ArgumentError{Field: "contact", Value: contact, Want: "this server's address, 1 to 255 bytes"}
	case rules == nil:
		return nil, &fence.ArgumentError{Field: "rules", Value: rules, Want: "a function that makes a tile's rules"}
	}
	h := &Host{contact: contact, seams: seams, rules: rules, cfg: c, tiles: map[fence.TileID]*hosted{},
		pacer: newPacer(c.Promotions, c.PromotionRate, c.PromotionJitter), slots: make(chan struct{}, drainWidth)}
	if cfg != nil {
		h.tile = cfg.Tile // without defaults, which may depend on what Configure sets
	}
	return h, nil
}

// Run runs the host's tiles until ctx ends; then it drains them all, as TileProcessor.Run does, and returns
// nil. It owns every goroutine of the host and returns when all have ended. Tiles are drained 256 at a
// time; those that have not had their turn after Config.DrainTimeout are drained at once, so that Run
// outlives ctx by about twice that time, and in a healthy system by much less.
//
// A host runs once: fence.ErrAlreadyRun. No tile's failure is an error of Run; see HostHooks.Ended.
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
		h.start(t)
	}
	h.mu.Unlock()

	<-ctx.Done()
	h.drainEverything()
	h.running.Wait()
	return nil
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
			h.stop(t)
		case <-patience.C:
			h.end()
			return
		}
	}
}

// Own makes the host claim tiles and run them. A tile that is held elsewhere is left there: its processor
// ends with a *fence.LostError (see Await, HostHooks.Ended). A tile that the host has a part in already keeps
// that part. Own does not wait. Errors: a *fence.ArgumentError, and then no tile was added; ErrHostEnded.
func (h *Host) Own(tiles ...fence.TileID) error { return h.add(asOwner, tiles) }

// Follow makes the host a warm follower of tiles: each is kept up to date, silently, and taken over when
// its owner dies, hands it over, or falls silent (Config.SuspectAfter). Otherwise it is like Own.
func (h *Host) Follow(tiles ...fence.TileID) error { return h.add(asFollower, tiles) }

// TakeOver makes the host take a tile from whoever owns it, now: by its follower if it has one. It does
// not wait; see Await. If the host owns the tile, or is about to, nothing happens. Errors as for Own.
func (h *Host) TakeOver(tile fence.TileID) error {
	_, _, err := h.promote(tile, Ordered)
	return err
}

// Suspect tells the host that gossip holds the process at contact for dead. It takes over the tiles that it
// follows and whose owner hash, as last seen, names that process; paced, hot tiles first. A tile that turns
// out to have another owner when its turn comes is left alone. Suspect does not wait; it returns the number
// of tiles suspected.
func (h *Host) Suspect(contact string) int {
	if contact == "" {
		return 0
	}
	var suspected []*TileProcessor
	h.mu.RLock()
	for _, t := range h.tiles {
		if t.p == nil {
			continue
		}
		if s := t.p.Status(); s.State == Following && s.Owner.Contact == contact {
			suspected = append(suspected, t.p)
		}
	}
	h.mu.RUnlock()
	for _, p := range suspected {
		p.TakeOver(OwnerDied)
	}
	return len(suspected)
}

// Await waits until the host serves all of the tiles. Its error joins one for each tile that it will not
// serve: what ended its processor, or a *RedirectError if the host has no part in it. A tile that is
// followed, or will be restarted, is waited for. ctx's cause if that ends first.
func (h *Host) Await(ctx context.Context, tiles ...fence.TileID) error {
	var failed []error
	for _, id := range tiles {
		t := h.part(id)
		if t == nil {
			failed = append(failed, h.redirect(ctx, id))
			continue
		}
		if err := h.awaitServing(ctx, t, 0, math.MaxInt); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// Submit queues an intent at its tile's processor and waits for its outcome, as TileProcessor.Submit does.
// A tile that the host does not run is answered with a *RedirectError from the owner hash, whose contact is
// empty if there is none or it cannot be read. The host is a tilehttp.Submitter.
func (h *Host) Submit(ctx context.Context, in Intent) (stream.Outcome, error) {
	if err := in.Validate(); err != nil {
		return 0, err
	}
	if p := h.submitTo(ctx, in.Tile); p != nil {
		outcome, err := p.submit(ctx, in)
		if away, ok := errors.AsType[*RedirectError](err); !ok || away.Contact != "" {
			return outcome, err
		}
	}
	return 0, h.redirect(ctx, in.Tile)
}

// submitTo is the processor that takes a tile's intents, or nil. A tile that has only just been added gets
// its processor in a moment.
func (h *Host) submitTo(ctx context.Context, tile fence.TileID) *TileProcessor {
	h.mu.RLock()
	t := h.tiles[tile]
	if t == nil || t.p != nil || t.last != nil {
		defer h.mu.RUnlock()
		if t == nil {
			return nil
		}
		return t.p
	}
	h.mu.RUnlock()
	_ = h.await(ctx, t, func() bool { return t.p != nil || t.last != nil || t.gone }) // else there is none
	return h.Processor(tile)
}

// redirectTimeout bounds the reading of an owner hash for somebody who came to the wrong host.
const redirectTimeout = 500 * time.Millisecond

// redirect is what this host answers for a tile it does not run.
func (h *Host) redirect(ctx context.Context, tile fence.TileID) error {
	ctx, cancel := context.WithTimeout(ctx, redirectTimeout)
	defer cancel()
	o, err := h.seams.Store.Owner(ctx, tile)
	if err != nil || o.Contact == h.contact {
		return &RedirectError{Tile: tile} // "owner unknown" is true then, and the ladder goes on
	}
	return &RedirectError{Tile: tile, Epoch: o.Epoch, Contact: o.Contact}
}

// Processor returns the processor that runs or follows the tile, or nil: for Inspect and Superseded. It is
// collected with its rules when it has ended, if nobody holds on to it.
func (h *Host) Processor(tile fence.TileID) *TileProcessor {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.tiles[tile]; t != nil {
		return t.p
	}
	return nil
}

// Status reports on all tiles that the host has a part in, in the order of their IDs. A tile that waits for
// its restart has the last status of the processor that failed.
func (h *Host) Status() []Status {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make([]Status, 0, len(h.tiles))
	for _, id := range slices.Sorted(maps.Keys(h.tiles)) {
		all = append(all, h.tiles[id].status(h))
	}
	return all
}

// TileStatus reports on one tile; ok is false if the host has no part in it.
func (h *Host) TileStatus(tile fence.TileID) (s Status, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	t := h.tiles[tile]
	if t == nil {
		return Status{}, false
	}
	return t.status(h), true
}
