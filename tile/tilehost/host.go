package tilehost

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/internal/turn"
)

var errNoTile = &fence.ArgumentError{Field: "tile", Value: 0, Want: "an H3 index, not zero"}

// Host runs the tiles of one process, thousands of them: each in a tile.TileProcessor and a goroutine of its
// own, their ticks spread over the interval, their promotions paced.
//
// A tile enters the host by Own, Follow, TakeOver or Accept. When its processor ends, because it was
// superseded, drained or failed, the host learns and announces who owns the tile now, and forgets it:
// processor and rules are garbage. Config says when it follows the tile or runs it again instead. What
// happens to one tile never ends another, nor the host.
//
// All methods may be called from any goroutine. Tiles may be added before Run; nothing happens to them
// until then.
type Host struct {
	contact string
	seams   tile.Seams
	rules   func(fence.TileID) (tile.Rules, error)
	cfg     Config
	tile    tile.Config // of the processors, but for their role
	pacer   *pacer
	spread  turn.Spread
	// refusals are the lines that strangers can cause, ended those of tiles that end one by one.
	refusals, ended *slog.Logger
	slots           chan struct{} // taken by tiles that are drained because Run ends

	rebalanced, rebalanceFailed atomic.Uint64 // see Stats

	mu    sync.RWMutex // guards what follows, and the tiles; a processor's lock may be taken under it
	phase hostPhase
	// abandoned is why the host will never run, see Abandon.
	abandoned error
	tiles     map[fence.TileID]*hosted
	// broken is why tiles whose rules could not be made are not here any more, maxBroken of them at most.
	broken  map[fence.TileID]error
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
// releases the tile, and the stores serve other hosts too.
const drainWidth = 256

// New makes a host. contact is the address at which it takes intents and hand-overs, as for tile.New. rules
// makes a tile's rules, empty and for that tile alone, each time the tile gets a processor; it may be
// called from many goroutines. A nil cfg means the defaults. New does no I/O and starts nothing; a
// *fence.ArgumentError names a bad argument.
func New(contact string, seams tile.Seams, rules func(fence.TileID) (tile.Rules, error), cfg *Config) (*Host, error) {
	c, err := cfg.withDefaults(seams)
	if err != nil {
		return nil, err
	}
	switch {
	case contact == "" || len(contact) > fence.MaxContact:
		return nil, &fence.ArgumentError{Field: "contact", Value: contact,
			Want: "this server's address, 1 to 255 bytes"}
	case rules == nil:
		return nil, &fence.ArgumentError{Field: "rules", Value: rules, Want: "a function that makes a tile's rules"}
	}
	if seams.Rims == nil {
		seams.Rims = tile.NewRims(seams.Log)
	}
	h := &Host{contact: contact, seams: seams, rules: rules, cfg: c, tiles: map[fence.TileID]*hosted{},
		broken:   map[fence.TileID]error{},
		refusals: sampled.Logger(c.Tile.Logger), ended: sampled.Logger(c.Tile.Logger),
		pacer: newPacer(c.Promotions, c.PromotionRate, promotionJitter), slots: make(chan struct{}, drainWidth)}
	if cfg != nil {
		h.tile = cfg.Tile // without defaults, which may depend on what Configure sets
	}
	return h, nil
}

// Submit queues an intent at its tile's processor and waits for its outcome, as tile.TileProcessor.Submit does.
// A tile that the host does not run is answered with a *tile.RedirectError from the owner hash, whose contact is
// empty if there is none or it cannot be read; one that it knows to be quarantined, with a *tile.QuarantinedError.
// The host is a tilehttp.Submitter.
func (h *Host) Submit(ctx context.Context, in tile.Intent) (tile.Result, error) {
	if p := h.submitTo(ctx, in.Tile); p != nil {
		r, err := p.Submit(ctx, in)
		if away, ok := errors.AsType[*tile.RedirectError](err); !ok || away.Contact != "" {
			return r, err
		}
	} else if err := in.Validate(); err != nil {
		return tile.Result{}, err
	}
	return tile.Result{}, h.redirect(ctx, in.Tile)
}

// Queue is tile.TileProcessor.Queue for a tile that the host runs now. For any other it queues nothing, and the error
// is a *tile.RedirectError without a contact: Submit finds out more. So it does after such an error in an answer.
func (h *Host) Queue(ctx context.Context, in tile.Intent, answered func(tile.Result, error)) error {
	if p := h.Processor(in.Tile); p != nil {
		return p.Queue(ctx, in, answered)
	}
	return &tile.RedirectError{Tile: in.Tile}
}

// Present is tile.TileProcessor.Present for a tile of the host. For any other the error is a *tile.RedirectError, to
// the owner as far as it is known.
func (h *Host) Present(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
	if processor := h.submitTo(ctx, p.To); processor != nil {
		return processor.Present(ctx, p)
	}
	return tile.Answer{}, h.redirect(ctx, p.To)
}

// submitTo is the processor that takes a tile's intents, or nil. A tile that has only just been added gets
// its processor in a moment.
func (h *Host) submitTo(ctx context.Context, id fence.TileID) *tile.TileProcessor {
	h.mu.RLock()
	t := h.tiles[id]
	if t == nil || t.p != nil || t.last != nil {
		defer h.mu.RUnlock()
		if t == nil {
			return nil
		}
		return t.p
	}
	h.mu.RUnlock()
	_ = t.await(ctx, func() bool { return t.p != nil || t.last != nil || t.gone }) // else there is none
	return h.Processor(id)
}

// redirectTimeout bounds the reading of an owner hash for a client that came to the wrong host.
const redirectTimeout = 500 * time.Millisecond

// redirect is what this host answers for a tile it does not run.
func (h *Host) redirect(ctx context.Context, id fence.TileID) error {
	if s, ok := h.TileStatus(id); ok && s.Quarantine != nil {
		return s.Quarantine
	}
	ctx, cancel := context.WithTimeout(ctx, redirectTimeout)
	defer cancel()
	o, err := h.seams.Store.Owner(ctx, id)
	if err != nil || o.Contact == h.contact {
		return &tile.RedirectError{Tile: id} // "owner unknown" is true then, and the ladder goes on
	}
	return &tile.RedirectError{Tile: id, Epoch: o.Epoch, Contact: o.Contact}
}

// Processor returns the processor that runs or follows the tile, or nil: for Inspect and Superseded. It is
// garbage with its rules when it has ended, unless the caller keeps it.
func (h *Host) Processor(id fence.TileID) *tile.TileProcessor {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.tiles[id]; t != nil {
		return t.p
	}
	return nil
}

// Status reports on all tiles that the host has a part in, in the order of their IDs. A tile that waits for
// its restart has the last status of the processor that failed.
func (h *Host) Status() []tile.Status {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make([]tile.Status, 0, len(h.tiles))
	for _, id := range slices.Sorted(maps.Keys(h.tiles)) {
		all = append(all, h.tiles[id].status())
	}
	return all
}

// TileStatus reports on one tile; ok is false if the host has no part in it.
func (h *Host) TileStatus(id fence.TileID) (s tile.Status, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	t := h.tiles[id]
	if t == nil {
		return tile.Status{}, false
	}
	return t.status(), true
}

// part is the host's part in a tile, or nil.
func (h *Host) part(id fence.TileID) *hosted {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.tiles[id]
}
