package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/region"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// host is a tile server: it runs tile processors and takes intents for them at one address. It is one life
// of a process: a host that was killed comes back as another one at the same address.
type host struct {
	contact  string
	line     *line // to the servers; broken, it stands for a host that is paused or dead
	seams    tile.Seams
	backends *backends
	options  *options
	meters   *meters
	logger   *slog.Logger

	life    context.Context // of the processors
	stop    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	tiles   map[fence.TileID]*ownedTile
}

// rememberActions is how long a tile remembers what became of an action.
const rememberActions = 10 * time.Minute

// ownedTile is one processor and the rules it plays.
type ownedTile struct {
	processor *tile.TileProcessor
	rules     *game.Rules
}

func newHost(ctx context.Context, contact string, b *backends, o *options, m *meters, logger *slog.Logger) *host {
	h := &host{contact: contact, line: newLine(), backends: b, options: o, meters: m, logger: logger, tiles: map[fence.TileID]*ownedTile{}}
	h.seams = tile.Seams{Authority: b.authority, Store: b.store, Log: b.log}
	if o.chaos {
		h.seams = b.seams(h.line)
	}
	h.life, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	return h
}

// start runs a tile's processor until the host is drained or another host takes the tile. It returns when the
// processor has been made; failed, if not nil, is called should it end otherwise.
func (h *host) start(id fence.TileID, takeOver bool, failed func(error)) error {
	ground, err := region.Of(id)
	if err != nil {
		return err
	}
	rules, err := game.NewRules(ground)
	if err != nil {
		return err
	}
	p, err := tile.New(id, h.contact, h.seams, rules,
		&tile.Config{
			TickInterval: h.options.tick,
			TakeOver:     takeOver,
			// Longer than the gateway sends an action again, whatever the tick.
			RememberTicks: int(rememberActions / h.options.tick),
			Checkpoint: func(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
				return checkpoint.Restore(ctx, h.backends.checkpoints, id)
			},
			Logger: h.logger,
			Hooks:  h.meters.hooks(h.contact),
		})
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.tiles[id] = &ownedTile{processor: p, rules: rules}
	h.mu.Unlock()
	h.running.Go(func() {
		err := p.Run(h.life)
		var superseded *tile.SupersededError
		switch {
		case errors.As(err, &superseded):
			h.meters.log.add(spectator.KindStoodDown, id, h.contact, superseded.Held, "%s, which held epoch %d, redirected its clients to %s and stood down",
				h.contact, superseded.Held, superseded.Successor.Contact)
		case errors.Is(err, errKilled):
		case err != nil && failed != nil:
			failed(err)
		}
	})
	return nil
}

// drain ends every processor, each after its last tick and snapshot.
func (h *host) drain() {
	h.stop()
	h.running.Wait()
}

// bury ends the goroutines of a host that was killed. They write nothing more.
func (h *host) bury() {
	h.line.set(buried)
	h.drain()
}

func (h *host) tile(id fence.TileID) *ownedTile {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tiles[id]
}

// load is how many tiles the host runs, or is about to.
func (h *host) load() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, t := range h.tiles {
		if !t.ended() {
			n++
		}
	}
	return n
}

// status is how a tile's processor here is doing; false if there is none.
func (h *host) status(id fence.TileID) (tile.Status, bool) {
	if h == nil {
		return tile.Status{}, false
	}
	t := h.tile(id)
	if t == nil {
		return tile.Status{}, false
	}
	return t.processor.Status(), true
}

// ended reports whether the processor will not serve again.
func (t *ownedTile) ended() bool {
	s := t.processor.Status().State
	return s == tile.StoodDown || s == tile.Stopped
}

// Submit implements tilehttp.Submitter for all tiles of the host.
func (h *host) Submit(ctx context.Context, in tile.Intent) (stream.Outcome, error) {
	if t := h.tile(in.Tile); t != nil {
		return t.processor.Submit(ctx, in)
	}
	return 0, &tile.RedirectError{Tile: in.Tile}
}

// tileState is what GET /state answers: the owner's own view of its tile, to compare a watcher's with.
type tileState struct {
	Tile    fence.TileID `json:"tile"`
	State   string       `json:"state"`
	Epoch   fence.Epoch  `json:"epoch"`
	Seq     fence.Seq    `json:"seq"`
	Chain   fence.Chain  `json:"chain"`
	Digest  string       `json:"digest"`
	Serving bool         `json:"serving"`
}

// state reads a tile between two ticks, so that position and digest belong together.
func (h *host) state(ctx context.Context, id fence.TileID) (tileState, error) {
	t := h.tile(id)
	if t == nil {
		return tileState{}, &tile.RedirectError{Tile: id}
	}
	var s tileState
	err := t.processor.Inspect(ctx, func(_ tile.Rules, at fence.Position) {
		status := t.processor.Status()
		s = tileState{Tile: id, State: status.State.String(), Epoch: status.Epoch, Seq: at.Seq, Chain: at.Chain,
			Digest: t.rules.Digest().String(), Serving: status.State == tile.Serving}
	})
	return s, err
}

// handler serves intents, state, the take-over button, and figures. It answers nothing while the host is paused.
func (h *host) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.meters.serve)
	mux.Handle(tilehttp.Path, tilehttp.Handler(h))
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, r *http.Request) {
		id, err := fence.ParseTileID(r.URL.Query().Get("tile"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		bounded, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		s, err := h.state(bounded, id)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // the client may have gone
	})
	mux.HandleFunc("POST /takeover", func(w http.ResponseWriter, r *http.Request) {
		id, err := fence.ParseTileID(r.URL.Query().Get("tile"))
		if err == nil {
			err = h.takeOver(id)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.line.awaitFor(r.Context()) == nil {
			mux.ServeHTTP(w, r)
		}
	})
}

// errAlreadyOwner: a host cannot take a tile over from itself.
var errAlreadyOwner = errors.New("this host owns the tile already")

// takeOver starts a rival processor for a tile that another host owns.
func (h *host) takeOver(id fence.TileID) error {
	if t := h.tile(id); t != nil && !t.ended() {
		return errAlreadyOwner
	}
	h.meters.takeovers.Add(1)
	return h.start(id, true, func(err error) {
		if errors.Is(err, fence.ErrLost) {
			h.logger.Info("somebody else was first to take the tile over", "tile", id, "by", err)
			return
		}
		h.logger.Warn("take-over failed", "tile", id, "err", err)
	})
}
