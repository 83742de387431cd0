package tilefence

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/health"
)

// Problem is something that keeps a server from doing its work. Plane and What are fixed texts, for alerts to match;
// docs/operations.md says what to do.
type Problem struct {
	// Plane is ticks, take-overs, rules, intents, delivery, views, players, checkpoints, transfers, matches, plans or
	// settings.
	Plane string
	What  string        // in words
	Tiles int           // how many it concerns; zero: it is not about tiles
	Tile  fence.TileID  // one of them: the one that has it for the longest
	For   time.Duration // for how long, as far as that is known

	Detail string // what is known of Tile in particular, such as the intent with which its rules fail
}

func (p Problem) String() string {
	text := p.Plane + ": " + p.What
	if p.Tiles > 0 {
		text += fmt.Sprintf(" (%d, such as %s)", p.Tiles, p.Tile)
	}
	if p.For > 0 {
		text += fmt.Sprintf(" for %v", p.For.Round(100*time.Millisecond))
	}
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

// LogValue implements slog.LogValuer with the form of String.
func (p Problem) LogValue() slog.Value { return slog.StringValue(p.String()) }

// Healthy is a server that knows its problems. All servers of this package do. None means that it is well.
type Healthy interface{ Health() []Problem }

// ReadyHandler serves the problems of a process's servers, for readiness probes and people: status 200 and
// {"healthy":true}, or 503 and the problems. Servers without Health count as well. Do not let it restart processes:
// while a back end is away every server has problems, and an owner's memory may be the only copy of what players did.
// That is what LiveHandler is for.
func ReadyHandler(servers ...Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var found []string
		for _, s := range servers {
			if h, ok := s.(Healthy); ok {
				for _, p := range h.Health() {
					found = append(found, nameOf(s)+": "+p.String())
				}
			}
		}
		answerProbe(w, found)
	})
}

// LiveHandler serves whether a process's own loops run, for liveness probes: status 200, or 503 if the loop of a server
// has not come round for half a minute, as in a deadlock. It asks no back end, so that an outage of theirs kills no
// process. A server that has not begun, that has ended, and one that is not of this package, counts as live.
func LiveHandler(servers ...Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var found []string
		for _, s := range servers {
			if l, ok := s.(interface{ hangs() time.Duration }); ok && l.hangs() > 0 {
				found = append(found, fmt.Sprintf("%s: its loop hangs for %v", nameOf(s), l.hangs().Round(time.Second)))
			}
		}
		answerProbe(w, found)
	})
}

func answerProbe(w http.ResponseWriter, problems []string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if len(problems) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(struct {
		Healthy  bool     `json:"healthy"`
		Problems []string `json:"problems,omitempty"`
	}{len(problems) == 0, problems}) // the prober has gone
}

// watched is what the servers have in common of what their Health reports. Its methods are not exported: servers embed
// it.
type watched struct {
	loop       health.Loop       // that looks at its health
	conditions health.Conditions // of its back ends
	worlds     *health.Worlds
}

func (w *watched) hangs() time.Duration { return w.loop.Hangs() }

// shown are problems as users of this package see them.
func shown(found health.Problems) (all []Problem) {
	for _, p := range found {
		all = append(all, Problem(p))
	}
	return all
}

// Health says what is wrong with the server's tiles.
func (s *TileServer) Health() []Problem { return shown(s.problems()) }

func (s *TileServer) problems() (all health.Problems) {
	for _, t := range s.host.Status() {
		all.Tile(&t, s.cfg.Host.Tile.SuspectAfter)
	}
	s.flapping.Add(&all)
	s.conditions.Add(&all)
	s.worlds.Add(&all)
	s.consumers.Add(&all)
	s.players.problems(&all)
	s.plans.problems(&all)
	s.offers.problems(&all)
	return all
}

// Health says what is wrong with the way to tile servers.
func (g *GatewayServer) Health() []Problem { return shown(g.problems()) }

func (g *GatewayServer) problems() (all health.Problems) {
	peers := g.peers.Stats()
	all.Trouble("intents", "connections to tile servers fail", 0, g.unreached.Lately(peers.Failed+peers.Broken))
	g.conditions.Add(&all)
	g.worlds.Add(&all)
	g.players.problems(&all)
	// A tile without an owner is no fault of the gateway: a player may name any tile.
	unread := g.unrouted.Lately(g.router.Stats().Unread)
	all.Trouble("intents", "the coordination store does not answer who owns tiles", 0, unread)
	all.Trouble("intents", "this gateway is late: it refuses movements and new clients until it is not", 0,
		g.late.Lately(g.clients.Stats().Late))
	all.Trouble("intents", "the ledger's store is late: it refuses actions until it is not", 0,
		g.behind.Lately(g.gateway.Stats().Ledger.Refused))
	return all
}

// Health says what is wrong with delivery.
func (s *BridgeServer) Health() []Problem { return shown(s.problems()) }

func (s *BridgeServer) problems() (all health.Problems) {
	s.conditions.Add(&all)
	s.worlds.Add(&all)
	st := s.bridge.Stats()
	all.Trouble("delivery", "the coordination store is not read", 0, s.failing.Lately(st.StoreFailures))
	all.Trouble("delivery", "fan-out does not take batches", 0, s.unpublished.Lately(st.PublishFailures))
	if st.Backlog > 0 {
		all.Trouble("delivery", "batches wait to be delivered", 0, st.Lag)
	}
	all.Sharing(s.share.Stats().LastBeat, "delivery")
	return all
}

// Health says what is wrong with the views that the relay serves.
func (r *RelayServer) Health() []Problem { return shown(r.problems()) }

func (r *RelayServer) problems() (all health.Problems) {
	r.conditions.Add(&all)
	r.worlds.Add(&all)
	r.players.problems(&all)
	st := r.relay.Stats()
	all.Trouble("views", "this relay is late: it sends new clients away until it is not", 0, r.late.Lately(st.Late))
	all.Trouble("views", "the coordination store is not read", 0, r.failing.Lately(st.RepairsFailed+st.MarksFailed))
	all.Trouble("views", "this relay is behind its clients", 0, r.stale.Lately(st.Stale))
	if since := r.forged.Lately(st.Forged); since > 0 {
		all.Add("views", "frames of epochs that the coordination store does not know arrive: something other than a "+
			"bridge publishes on the fan-out", 0, since)
	}
	r.hearing.Lock()
	defer r.hearing.Unlock()
	if since := r.deaf.Lately(st.FramesIn, st.Caught, time.Now()); since > 0 {
		all.Add("views", "no frames arrive, and clients are seconds late: no bridge runs, or it has another fan-out",
			0, since)
	}
	return all
}

// Health says what is wrong with checkpoints. It takes time in proportion to the number of tiles.
func (s *CheckpointServer) Health() []Problem { return shown(s.problems()) }

func (s *CheckpointServer) problems() (all health.Problems) {
	s.worlds.Add(&all)
	st := s.checkpointer.Stats()
	if st.Lag > time.Minute {
		all.Add("checkpoints", "tiles are not copied to the durable store", st.LagTile, st.Lag)
	}
	if st.UnsettledFor > 2*time.Minute {
		all.Add("transfers", "tiles without an owner have entities under way, and no tile server begins them",
			st.UnsettledTile, st.UnsettledFor)
	}
	all.Sharing(s.share.Stats().LastBeat, "checkpoints")
	return all
}
