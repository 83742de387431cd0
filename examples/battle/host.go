package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/metrics/prommetrics"
	"github.com/tilefence/tilefence/tile"
	slow "github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// host is a tile server, with what chaos breaks of it. It is one life of a process: a host that was killed comes
// back as another one at the same address.
type host struct {
	*plan
	*tilefence.TileServer
	line   *faultinject.Line     // to the servers; broken, it stands for a host that is paused or dead
	conns  *faultinject.Listener // those that it has accepted
	member *faultinject.Member   // nil, if the gossip is between processes
	stop   func()                // stops it and waits for its end
}

// snapshotEvery is ticks: a player who flies into another area is sent its snapshot and what came after it, so the
// snapshots of this game are never old.
const snapshotEvery = 20

// maxDilation is how many tick intervals a tick may last when a machine is too slow: the battle plays slower, and
// misses no tick. More than two would be taken for silence. Ticks that are long already do not become longer.
func (o *options) maxDilation() int { return int(min(2, 8*time.Second/o.tick)) }

// newHost makes a tile server without tiles. A tile that ends, and was neither taken by a successor nor could not
// reach its servers, ends the battle.
func (p *plan) newHost(l net.Listener) (h *host, err error) {
	h = &host{line: faultinject.New(), conns: &faultinject.Listener{Listener: l}, plan: p}
	contact := p.options.contact
	if p.options.command == "" || strings.HasSuffix(contact, ":0") {
		contact = l.Addr().String()
	}
	b := p.backends.Backends
	if p.options.chaos {
		b = h.line.Process(b)
	}
	if group, ok := b.Members.(*route.Group); ok {
		h.member = faultinject.NewMember(group)
		b.Members = h.member
	}
	hooks := p.meters.Hooks(contact)
	hooks = p.pilot.Attend(func() *slow.Desk { return h.Plans() }, hooks)
	cfg := tilefence.TileServerConfig{
		Web:    tilefence.Web{Listener: h.conns, Handler: h.handler},
		Notify: h.notified, DecisionLog: p.decisions, RebalanceEvery: p.options.balanceEvery, Seats: p.lobby.offers(),
		Host: tilehost.Config{
			Hooks: tilehost.Hooks{Ended: func(i tilehost.EndInfo) { h.tileEnded(i, p.fail) }},
			Tile: tile.Config{TickInterval: p.options.tick, SuspectAfter: p.options.silence(),
				Limits:        tile.Limits{MaxDilation: p.options.maxDilation()},
				SnapshotEvery: snapshotEvery, Durability: p.options.durability, Hooks: hooks},
		},
		Logger: p.logger,
	}
	prommetrics.Attach(p.metrics, &cfg)
	if h.TileServer, err = tilefence.NewTileServer(contact, b, p.newRules, &cfg); err != nil {
		return nil, err
	}
	if !p.options.chaos { // which starts hosts again and again: the dead ones would be counted too
		p.metrics.Servers(h.TileServer)
	}
	return h, nil
}

// newRules makes the game's rules for a tile.
func (p *plan) newRules(id fence.TileID) (tile.Rules, error) {
	ground, err := game.GroundOf(id, p.world)
	if err != nil {
		return nil, err
	}
	return game.NewRules(ground)
}

// notified puts the death of another host into the battle's log.
func (h *host) notified(e route.Event, suspected int) {
	if e.Kind == route.Died && suspected > 0 {
		h.meters.Log.Put(statuspoller.Event{Kind: statuspoller.KindNote, Owner: h.Contact(),
			Text: h.Contact() + " heard that " + e.Member.Contact + " is dead, and goes after " +
				chaos.Count(suspected, "tile")})
	}
}

// tileEnded puts the end of a tile's processor into the battle's log.
func (h *host) tileEnded(i tilehost.EndInfo, fail func(error)) {
	superseded, _ := errors.AsType[*tile.SupersededError](i.Err)
	switch err := i.Err; {
	case err == nil, errors.Is(err, faultinject.ErrKilled), errors.Is(err, fence.ErrLost):
	case superseded != nil:
		h.meters.Log.Add(statuspoller.KindStoodDown, i.Status.Tile, h.Contact(), superseded.Held,
			"%s, which held epoch %d, redirected its clients to %s and stood down",
			h.Contact(), superseded.Held, superseded.Successor.Contact)
	case errors.Is(err, fence.ErrNotApplied), errors.Is(err, fence.ErrUnknownOutcome),
		errors.Is(err, fence.ErrUnconfirmed):
		// It is tried again.
	default:
		fail(err)
	}
}

// state reads a tile between two ticks, so that position and digest belong together.
func (h *host) state(ctx context.Context, id fence.TileID) (players.OwnerState, error) {
	p := h.Host().Processor(id)
	if p == nil {
		return players.OwnerState{}, &tile.RedirectError{Tile: id}
	}
	var s players.OwnerState
	err := p.Inspect(ctx, func(r tile.Rules, at fence.Position) {
		status, rules := p.Status(), r.(*game.Rules)
		s = players.OwnerState{Tile: id, State: status.State.String(), Epoch: status.Epoch, Seq: at.Seq,
			Chain: at.Chain, Digest: rules.Digest().String(), Areas: rules.Digests(),
			Serving: status.State == tile.Serving, UnderWay: status.UnderWay, Waits: rules.Waits()}
	})
	return s, err
}

// handler serves state, figures and the inspector, which takes tiles over, beside intents. It answers nothing while the
// host is paused.
func (h *host) handler(own http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", own)
	mux.Handle("GET /metrics", h.metricsHandler())
	mux.Handle("/inspect/", http.StripPrefix("/inspect", h.inspector()))
	mux.Handle("GET /livez", tilefence.LiveHandler(h.TileServer))
	mux.Handle("GET /readyz", tilefence.ReadyHandler(h.TileServer))
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, r *http.Request) {
		bounded, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		id, err := fence.ParseTileID(r.URL.Query().Get("tile"))
		var s players.OwnerState
		if err == nil {
			s, err = h.state(bounded, id)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // the client may have gone
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := h.line.Await(r.Context()); s != 0 && s != faultinject.Buried {
			mux.ServeHTTP(w, r)
		}
	})
}

// status is the host's part in a tile; zero if it has none.
func (h *host) status(id fence.TileID) tile.Status {
	s, _ := h.Host().TileStatus(id)
	return s
}
