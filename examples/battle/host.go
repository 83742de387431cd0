package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/region"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// host is a tile server: it runs tiles and takes intents for them at one address. It is one life of a
// process: a host that was killed comes back as another one at the same address.
type host struct {
	*tile.Host
	contact string
	line    *line // to the servers; broken, it stands for a host that is paused or dead
	meters  *meters
	logger  *slog.Logger

	stop   context.CancelFunc // drains
	ended  chan struct{}      // closed when everything of the host has ended
	others *tilehttp.Client   // to hand tiles over with
	member route.Membership
	hinter *fanout.Hinter
	leave  context.CancelFunc // ends the membership
}

// rememberActions is how long a tile remembers what became of an action.
const rememberActions = 10 * time.Minute

// newHost starts a host without tiles. failed is called when a tile ends and neither was taken by a successor
// nor could not reach its servers: with a *fence.LostError if another host has it already.
func newHost(ctx context.Context, contact string, joins join, b *backends, o *options, m *meters, logger *slog.Logger, failed func(error)) (*host, error) {
	h := &host{contact: contact, line: newLine(), meters: m, logger: logger, ended: make(chan struct{})}
	seams := tile.Seams{Authority: b.authority, Store: b.store, Log: b.log}
	if o.chaos {
		seams = b.seams(h.line)
	}
	var err error
	if h.member, err = joins(contact, new(route.Table), h.told); err != nil {
		return nil, err
	}
	if h.others, err = tilehttp.NewClient(nil); err != nil {
		return nil, err
	}
	if h.hinter, err = fanout.NewHinter(b.broker, &fanout.HinterConfig{Logger: logger}); err != nil {
		return nil, err
	}
	h.Host, err = tile.NewHost(contact, seams, newRules, &tile.HostConfig{
		Refollow: true,
		Restart:  true,
		Announce: func(o fence.Owner) {
			announce(h.member, logger, route.Entry{Tile: o.Tile, Epoch: o.Epoch, Contact: o.Contact})
		},
		Hooks: tile.HostHooks{Ended: func(i tile.EndInfo) { h.tileEnded(i, failed) }},
		Tile: tile.Config{
			TickInterval: o.tick,
			SuspectAfter: o.silence(),
			Handover:     h.others.Handover,
			// Longer than the gateway sends an action again, whatever the tick.
			RememberFor: rememberActions,
			Checkpoint: func(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
				return checkpoint.Restore(ctx, b.checkpoints, id)
			},
			Durability: o.durability,
			Journal:    b.checkpoints,
			Logger:     logger,
			Hooks:      h.hooks(),
		}})
	if err != nil {
		return nil, err
	}
	h.start(context.WithoutCancel(ctx), failed)
	return h, nil
}

// start runs the host, and its membership until the host has told the others about its last tile.
func (h *host) start(ctx context.Context, failed func(error)) {
	var life, taking context.Context
	life, h.stop = context.WithCancel(ctx)
	taking, h.leave = context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		if err := h.member.Run(taking); err != nil {
			failed(err)
		}
	}()
	hinting := make(chan struct{})
	go func() {
		defer close(hinting)
		_ = h.hinter.Run(taking) // it is run once
	}()
	go func() {
		defer close(h.ended)
		_ = h.Run(life) // what became of the tiles, tileEnded was told
		h.leave()
		<-left
		<-hinting
		h.others.Close()
	}()
}

// hooks are the meters', and tell the bridge at once of what was committed.
func (h *host) hooks() tile.Hooks {
	hooks := h.meters.hooks(h.contact)
	count := hooks.Committed
	hooks.Committed = func(i tile.CommitInfo) {
		if count(i); !i.Refresh {
			h.hinter.Hint(i.Tile)
		}
	}
	return hooks
}

// newRules makes the game's rules for a tile.
func newRules(id fence.TileID) (tile.Rules, error) {
	ground, err := region.Of(id)
	if err != nil {
		return nil, err
	}
	return game.NewRules(ground)
}

// tileEnded tells what became of a tile's processor.
func (h *host) tileEnded(i tile.EndInfo, failed func(error)) {
	var superseded *tile.SupersededError
	switch err := i.Err; {
	case err == nil, errors.Is(err, errKilled):
	case errors.As(err, &superseded):
		h.meters.log.add(spectator.KindStoodDown, i.Status.Tile, h.contact, superseded.Held, "%s, which held epoch %d, redirected its clients to %s and stood down",
			h.contact, superseded.Held, superseded.Successor.Contact)
	case errors.Is(err, fence.ErrNotApplied), errors.Is(err, fence.ErrUnknownOutcome), errors.Is(err, fence.ErrUnconfirmed):
		h.logger.Warn("tile could not be served, and is tried again", "tile", i.Status.Tile, "after", i.After, "err", err)
	default:
		failed(err)
	}
}

// drain ends every tile, each after its last tick and snapshot.
func (h *host) drain() {
	h.stop()
	<-h.ended
}

// bury ends the goroutines of a host that was killed. They write nothing more.
func (h *host) bury() {
	h.stop()
	h.line.set(buried)
	<-h.ended
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
	p := h.Processor(id)
	if p == nil {
		return tileState{}, &tile.RedirectError{Tile: id}
	}
	var s tileState
	err := p.Inspect(ctx, func(r tile.Rules, at fence.Position) {
		status := p.Status()
		s = tileState{Tile: id, State: status.State.String(), Epoch: status.Epoch, Seq: at.Seq, Chain: at.Chain,
			Digest: r.(*game.Rules).Digest().String(), Serving: status.State == tile.Serving}
	})
	return s, err
}

// handler serves intents, state, the take-over button, and figures. It answers nothing while the host is paused.
func (h *host) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.meters.serve)
	mux.Handle(tilehttp.Path, tilehttp.Handler(h))
	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(h))
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

// takeOver takes a tile from the host that owns it.
func (h *host) takeOver(id fence.TileID) error {
	if s, ok := h.TileStatus(id); ok && s.State == tile.Serving {
		return errAlreadyOwner
	}
	return h.TakeOver(id)
}
