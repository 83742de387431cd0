package tilefence

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// Problem is something that keeps a server from doing its work. Plane and What are fixed texts, for alerts to match;
// docs/operations.md says what to do.
type Problem struct {
	Plane string        // ticks, take-overs, rules, intents, delivery, views, checkpoints or settings
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

// hangsAfter is for how long a server's loop, which comes round every second, must have stood until it hangs: longer
// than any pause of a machine that recovers.
const hangsAfter = 30 * time.Second

// loop is when a server's loop last came round. It passes all locks that Health takes, and so those of every tile.
type loop struct{ last atomic.Pointer[time.Time] }

func (l *loop) round() {
	now := time.Now()
	l.last.Store(&now)
}

// ends says that the loop does not run any more.
func (l *loop) ends() { l.last.Store(nil) }

// hangs is for how long the loop has hung; zero: it runs, or is not meant to.
func (l *loop) hangs() time.Duration {
	if last := l.last.Load(); last != nil && time.Since(*last) > hangsAfter {
		return time.Since(*last)
	}
	return 0
}

// Shorter problems are not reported: a failover of a shard takes a second or two.
const (
	troubleAfter = 2 * time.Second
	lookEvery    = time.Second      // for the log
	remindEvery  = 30 * time.Second // of a problem that stays
)

// logHealth logs the problems of a server when they begin, every half minute while they last, and when they have ended,
// until ctx does.
func logHealth(ctx context.Context, log *slog.Logger, h interface {
	Healthy
	round()
	ends()
}) error {
	h.round()
	defer h.ends()
	type seen struct{ first, said time.Time }
	known := map[[2]string]seen{}
	for wait.For(ctx, lookEvery) {
		h.round()
		now, present := time.Now(), map[[2]string]bool{}
		for _, p := range h.Health() {
			k := [2]string{p.Plane, p.What}
			present[k] = true
			s, old := known[k]
			if !old {
				s.first = now
			}
			if now.Sub(s.said) >= remindEvery {
				s.said = now
				log.Warn(p.What, "plane", p.Plane, "tiles", p.Tiles, "tile", p.Tile, "for", p.For, "detail", p.Detail)
			}
			known[k] = s
		}
		for k, s := range known {
			if !present[k] {
				log.Info("no longer: "+k[1], "plane", k[0], "after", now.Sub(s.first).Round(time.Second))
				delete(known, k)
			}
		}
	}
	return nil
}

// problems collects what is wrong, the tiles of one problem together.
type problems []Problem

func (all *problems) add(plane, what string, id fence.TileID, since time.Duration) {
	for i := range *all {
		p := &(*all)[i]
		if p.Plane == plane && p.What == what {
			p.Tiles++
			if since > p.For {
				p.Tile, p.For = id, since
			}
			return
		}
	}
	p := Problem{Plane: plane, What: what, Tile: id, For: since}
	if id != 0 {
		p.Tiles = 1
	}
	*all = append(*all, p)
}

// detail says more of the tile that a problem names, unless it says something already.
func (all problems) detail(what, text string) {
	for i := range all {
		if all[i].What == what && all[i].Detail == "" {
			all[i].Detail = text
		}
	}
}

// rising notices that a count of failures has risen lately. The zero value is ready; it is safe for concurrent use.
type rising struct {
	mu    sync.Mutex
	known bool
	count uint64
	begun time.Time // when it began to rise
	last  time.Time // when it last rose
}

// tooMany is which part of its ticks a tile may miss.
const tooMany = 0.3

// calm is for how long a count must stay for the failures to be over.
const calm = 5 * time.Second

// lately is for how long the count has been rising; zero: it is not.
func (r *rising) lately(count uint64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if over := now.Sub(r.last) >= calm; r.known && count != r.count {
		if over {
			r.begun = now
		}
		r.last = now
	} else if over {
		r.begun = time.Time{}
	}
	r.known, r.count = true, count
	if r.begun.IsZero() {
		return 0
	}
	return max(now.Sub(r.begun), 1)
}

// Health says what is wrong with the server's tiles.
func (s *TileServer) Health() []Problem {
	var all problems
	for _, t := range s.host.Status() {
		tileHealth(&t, s.cfg.Host.Tile.SuspectAfter, &all)
	}
	s.flapping.add(&all)
	s.conditions.add(&all)
	s.worlds.add(&all)
	if missing := s.consumerHealth.missing.Load(); missing != nil {
		all = append(all, *missing...)
	}
	return all
}

// acquiring is what a tile waits for in each state on the way to its owner.
var acquiring = map[tile.State]string{
	tile.Claiming:   "the authority gives no epoch",
	tile.Replaying:  "the history of tiles is not read",
	tile.Installing: "replicas do not confirm an epoch",
}

// tileHealth adds what is wrong with a tile.
func tileHealth(t *tile.Status, suspectAfter time.Duration, all *problems) {
	trouble := func(plane, what string, since time.Duration) {
		if since > troubleAfter {
			all.add(plane, what, t.Tile, since)
		}
	}
	in := time.Since(t.Since)
	switch t.State {
	case tile.Serving, tile.Draining:
		switch {
		case t.Pending:
			trouble("ticks", "tiles are frozen: the coordination store, the journal or replicas do not confirm batches",
				time.Since(t.Frozen))
		case t.Dilation > 1:
			all.add("ticks", "time is dilated: the rules or this machine are too slow", t.Tile, 0)
		case t.Missing > tooMany:
			all.add("ticks", "ticks are missed: the rules or this machine are too slow", t.Tile, 0)
		}
		if t.StreamFull {
			all.add("ticks", "tiles are stalled: their stream is full and no snapshot covers it", t.Tile, 0)
		}
	case tile.Healing:
		trouble("ticks", "the history of tiles is being repaired", in)
	case tile.Following:
		if t.Silent > max(3*suspectAfter, 10*time.Second) {
			all.add("take-overs", "tiles have a silent owner, or none, and nobody takes them", t.Tile, t.Silent)
		}
	default:
		if what, ok := acquiring[t.State]; ok && t.Ended == nil {
			trouble("take-overs", what, in)
		}
	}
	failed(t, all)
}

// failed adds why a tile does not run.
func failed(t *tile.Status, all *problems) {
	switch {
	case t.Quarantine != nil:
		const what = "tiles are quarantined: an operator must decide how they go on"
		all.add("rules", what, t.Tile, time.Since(t.Since))
		all.detail(what, t.Quarantine.Error()+"; see tilectl quarantine")
	case t.Ended != nil:
		const what = "tiles are not served: what runs them ends, and is begun again"
		all.add("take-overs", what, t.Tile, 0)
		all.detail(what, t.Ended.Error())
	case t.Failure != nil && (t.State == tile.Stopped || time.Since(t.FailedAt) < 30*time.Second):
		all.add("rules", "the game's rules fail", t.Tile, 0)
		all.detail("the game's rules fail", t.Failure.Error())
	}
}

// Health says what is wrong with the way to tile servers.
func (g *GatewayServer) Health() []Problem {
	var all problems
	peers := g.peers.Stats()
	if since := g.unreached.lately(peers.Failed + peers.Broken); since > troubleAfter {
		all.add("intents", "connections to tile servers fail", 0, since)
	}
	g.conditions.add(&all)
	g.worlds.add(&all)
	// A tile without an owner is no fault of the gateway: a player may name any tile.
	if since := g.unrouted.lately(g.router.Stats().Unread); since > troubleAfter {
		all.add("intents", "the coordination store does not answer who owns tiles", 0, since)
	}
	return all
}

// Health says what is wrong with delivery.
func (s *BridgeServer) Health() []Problem {
	var all problems
	s.conditions.add(&all)
	s.worlds.add(&all)
	st := s.bridge.Stats()
	if since := s.failing.lately(st.StoreFailures); since > troubleAfter {
		all.add("delivery", "the coordination store is not read", 0, since)
	}
	if since := s.unpublished.lately(st.PublishFailures); since > troubleAfter {
		all.add("delivery", "fan-out does not take batches", 0, since)
	}
	if st.Backlog > 0 && st.Lag > troubleAfter {
		all.add("delivery", "batches wait to be delivered", 0, st.Lag)
	}
	return append(all, sharing(s.share.Stats().LastBeat, "delivery")...)
}

// Health says what is wrong with the views that the relay serves.
func (r *RelayServer) Health() []Problem {
	var all problems
	r.conditions.add(&all)
	r.worlds.add(&all)
	st := r.relay.Stats()
	if since := r.failing.lately(st.RepairsFailed + st.MarksFailed); since > troubleAfter {
		all.add("views", "the coordination store is not read", 0, since)
	}
	if since := r.stale.lately(st.Stale); since > troubleAfter {
		all.add("views", "this relay is behind its clients", 0, since)
	}
	if since := r.forged.lately(st.Forged); since > 0 {
		all.add("views", "frames of epochs that the coordination store does not know arrive: something other than a "+
			"bridge publishes on the fan-out", 0, since)
	}
	r.hearing.Lock()
	defer r.hearing.Unlock()
	if since := r.deaf.lately(st.FramesIn, st.Caught, time.Now()); since > 0 {
		all.add("views", "no frames arrive, and clients are seconds late: no bridge runs, or it has another fan-out",
			0, since)
	}
	return all
}

// Health says what is wrong with checkpoints. It takes time in proportion to the number of tiles.
func (s *CheckpointServer) Health() []Problem {
	var all problems
	s.worlds.add(&all)
	if st := s.checkpointer.Stats(); st.Lag > time.Minute {
		all.add("checkpoints", "tiles are not copied to the durable store", st.LagTile, st.Lag)
	}
	return append(all, sharing(s.share.Stats().LastBeat, "checkpoints")...)
}

// sharing says that a worker cannot reach the list of those that it shares tiles with. beat is the last answer.
func sharing(beat time.Time, plane string) (all problems) {
	if since := time.Since(beat); !beat.IsZero() && since > 10*time.Second {
		all.add(plane, "the list of workers that share the tiles is not reached: nothing moves between them", 0, since)
	}
	return all
}
