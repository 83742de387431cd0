// Package pilots has planners fly some of the battle's ships: a load of requests to package plan whose calls take
// seconds, and what a planner that dies with calls in hand must leave behind.
package pilots

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/tile"
	slow "github.com/tilefence/tilefence/tile/plan"
)

// The planners of a battle. Leases are shorter than the default, as the battle is.
const (
	planWorkers  = 3
	planLease    = 2 * time.Second
	planShortest = time.Second // a call takes so long
	planLongest  = 5 * time.Second
)

// Config is what pilots know of a deployment. All of it is required.
type Config struct {
	Tiles []fence.TileID
	Ships map[fence.TileID][]string // of each tile, actors that have a planner
	Seed  uint64                    // of the planners' decisions

	Backends tilefence.Backends // Plans and Log are needed

	Hosts  func() []Host
	Start  func(func(context.Context) error) (stop func()) // runs beside the servers; an error ends the battle
	Fail   func(error)                                     // ends the battle
	Logger *slog.Logger
}

// Host is a tile server, whose tiles ask for plans.
type Host interface {
	chaos.Host
	Plans() *slow.Desk
}

// Pilots are planners that fly some of the bots' ships along with their bots: whenever a ship has no plan under way its
// tile asks for one, and the ship flies on as its bot says. A plan is a step that the tile takes as it takes any order.
// A nil value flies none.
type Pilots struct {
	*Config

	resting atomic.Bool // no more is asked

	mu      sync.Mutex
	desks   []func() *slow.Desk // of all hosts that there were
	workers []*planWorker
	graves  []*planWorker
	calls   map[string]*faultinject.Line // of the worker that is at a request
	killed  int
	bill    map[string]int64 // tokens by request
	tokens  int64
}

// New returns pilots that do not fly yet.
func New(cfg *Config) *Pilots {
	return &Pilots{Config: cfg, calls: map[string]*faultinject.Line{}, bill: map[string]int64{}}
}

// Open starts the workers.
func (p *Pilots) Open() error {
	for range planWorkers {
		if err := p.hire(); err != nil {
			return err
		}
	}
	return nil
}

// Close stops the workers, after the hosts.
func (p *Pilots) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	all := append(p.workers, p.graves...)
	p.mu.Unlock()
	for _, w := range all {
		w.line.Bury()
		w.stop()
	}
}

// Attend has the tiles with these hooks ask, in each tick, for the ships that have no plan. desk is that of the tiles'
// server once that is made.
func (p *Pilots) Attend(desk func() *slow.Desk, hooks tile.Hooks) tile.Hooks {
	if p == nil {
		return hooks
	}
	p.mu.Lock()
	p.desks = append(p.desks, desk)
	p.mu.Unlock()
	hook.Attach(&hooks.Ticked, func(i tile.TickInfo) {
		if p.resting.Load() {
			return
		}
		for n, ship := range p.Ships[i.Tile] {
			r := slow.Request{Tile: i.Tile, Entity: ship, Requester: ship, Tier: slow.Background}
			if n == 0 {
				r.Tier, r.Words = slow.Player, "go where you see fewest"
			}
			if _, err := desk().Ask(r); err != nil {
				p.Fail(err)
			}
		}
	})
	return hooks
}

// Rest has the tiles ask for no more plans, so that they come to rest after the battle.
func (p *Pilots) Rest() {
	if p != nil {
		p.resting.Store(true)
	}
}

// Status is the planners as the page shows them.
func (p *Pilots) Status() *statuspoller.Pilots {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &statuspoller.Pilots{Workers: len(p.workers), Killed: p.killed, Tokens: p.tokens, Billed: len(p.bill),
		Waits: []statuspoller.Pilot{}}
	for _, ships := range p.Ships {
		out.Ships += len(ships)
	}
	for _, desk := range p.desks {
		d := desk()
		if d == nil {
			continue
		}
		s := d.Stats()
		out.Applied, out.Refused = out.Applied+s.Applied, out.Refused+s.Refused
		out.Stale, out.Dead = out.Stale+s.Stale, out.Dead+s.Died
	}
	for _, h := range p.Hosts() {
		d := h.Plans()
		if !h.Line().Is(faultinject.Flowing) {
			continue
		}
		for _, id := range d.Tiles() {
			for _, r := range d.Waiting(id) {
				w := statuspoller.Pilot{Tile: id, Ship: r.Entity, Age: r.Age.Milliseconds(),
					Player: r.Tier == slow.Player, Running: p.calls[r.ID] != nil}
				if out.Waits = append(out.Waits, w); w.Running {
					out.Running++
				}
			}
		}
	}
	slices.SortFunc(out.Waits, func(a, b statuspoller.Pilot) int { return cmp.Compare(b.Age, a.Age) })
	return out
}

// Record implements slow.Sink: each request is charged once.
func (p *Pilots) Record(_ context.Context, events []slow.UsageEvent) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		if _, charged := p.bill[e.Request]; !charged {
			p.bill[e.Request] = e.Usage.Input + e.Usage.Output
			p.tokens += p.bill[e.Request]
		}
	}
	return nil
}

// WorkerKilled is the fault that a worker dies with calls in hand.
func (p *Pilots) WorkerKilled() chaos.Fault {
	return chaos.Fault{Kind: faultinject.PlannerKilled,
		Choose: func(_ context.Context, r *chaos.Runner) (*chaos.Injection, error) {
			busy := p.busy()
			if len(busy) == 0 {
				return nil, chaos.ErrNotNow
			}
			w := busy[r.Intn(len(busy))]
			var lost []string
			var killed time.Time
			var back time.Duration
			return &chaos.Injection{System: chaos.Planning,
				Inject: chaos.Always(func() { lost, killed = p.kill(w), time.Now() }),
				Repair: func(ctx context.Context) error {
					err := chaos.Until(ctx, "what a dead planner was at is over", func() bool { return p.over(lost) })
					back = time.Since(killed)
					return errors.Join(err, p.hire())
				},
				Recovered: func() time.Duration { return back }}, nil
		}}
}

// busy are the workers that are at a request.
func (p *Pilots) busy() (busy []*planWorker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Collect(maps.Values(p.calls))
	for _, w := range p.workers {
		if slices.Contains(at, w.line) {
			busy = append(busy, w)
		}
	}
	return busy
}

// kill ends a worker as kill -9 does, and returns the requests that it was at.
func (p *Pilots) kill(w *planWorker) (lost []string) {
	w.line.Set(faultinject.Dead)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, at := range p.calls {
		if at == w.line {
			lost = append(lost, id)
			delete(p.calls, id)
		}
	}
	p.workers = slices.DeleteFunc(p.workers, func(other *planWorker) bool { return other == w })
	p.graves, p.killed = append(p.graves, w), p.killed+1
	return lost
}

// owner is the host that serves a tile, or nil.
func (p *Pilots) owner(id fence.TileID) (owner Host) {
	var highest fence.Epoch
	for _, h := range p.Hosts() {
		if e, serves := h.Serves(id); serves && e > highest && !h.Line().Is(faultinject.Dead) {
			owner, highest = h, e
		}
	}
	return owner
}

// over reports whether no entity waits for any of these requests, or another worker is at it.
func (p *Pilots) over(requests []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.Ships {
		owner := p.owner(id)
		if owner == nil {
			return false
		}
		for _, r := range owner.Plans().Waiting(id) {
			if slices.Contains(requests, r.ID) && p.calls[r.ID] == nil {
				return false
			}
		}
	}
	return true
}
