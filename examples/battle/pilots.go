package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/stream"
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

// pilots are planners that fly some of the bots' ships along with their bots: whenever a ship has no plan under way its
// tile asks for one, and the ship flies on as its bot says. A plan is a step that the tile takes as it takes any order.
type pilots struct {
	*deployment
	ships map[fence.TileID][]string // actors that have a planner

	resting atomic.Bool // no more is asked

	mu      sync.Mutex
	desks   map[*host]*slow.Desk
	stops   []func()
	workers []*planWorker
	graves  []*planWorker
	calls   map[string]*faultinject.Line // of the worker that is at a request
	killed  int
	bill    map[string]int64 // tokens by request
	tokens  int64
}

func (d *deployment) newPilots() *pilots {
	p := &pilots{deployment: d, ships: map[fence.TileID][]string{}, desks: map[*host]*slow.Desk{},
		calls: map[string]*faultinject.Line{}, bill: map[string]int64{}}
	for i := range min(d.options.pilots*len(d.world), d.options.clients) {
		id := d.world[i%len(d.world)]
		p.ships[id] = append(p.ships[id], players.Name(i))
	}
	return p
}

// open starts the workers, and the billing of what they use.
func (p *pilots) open() error {
	for range planWorkers {
		if err := p.hire(); err != nil {
			return err
		}
	}
	p.metrics.Plan(p.backends.plans)
	b, err := slow.NewBiller(p.backends.plans, p, &slow.BillerConfig{Logger: p.logger})
	if err == nil {
		p.stops = append(p.stops, p.start(b.Run))
	}
	return err
}

// close stops workers, desks and billing, after the hosts.
func (p *pilots) close() {
	p.mu.Lock()
	all := append(p.workers, p.graves...)
	stops := p.stops
	p.mu.Unlock()
	for _, w := range all {
		w.line.Bury()
		w.stop()
	}
	for _, stop := range stops {
		stop()
	}
}

// attend gives a host a desk, and its tiles' hooks to the desk. In each tick a tile asks for the ships that have no
// plan.
func (p *pilots) attend(h *host, hooks tile.Hooks) (tile.Hooks, error) {
	submit := func(ctx context.Context, in tile.Intent) (stream.Outcome, error) { return h.Host().Submit(ctx, in) }
	d, err := slow.NewDesk(p.backends.plans, submit, &slow.DeskConfig{Logger: p.logger})
	if err != nil {
		return hooks, err
	}
	ticked := hooks.Ticked
	hooks.Ticked = func(i tile.TickInfo) {
		ticked(i)
		if p.resting.Load() {
			return
		}
		for n, ship := range p.ships[i.Tile] {
			r := slow.Request{Tile: i.Tile, Entity: ship, Requester: ship, Tier: slow.Background}
			if n == 0 {
				r.Tier, r.Words = slow.Player, "go where you see fewest"
			}
			if _, err := d.Ask(r); err != nil {
				p.fail(err)
			}
		}
	}
	p.mu.Lock()
	p.desks[h] = d
	p.stops = append(p.stops, p.start(d.Run))
	p.mu.Unlock()
	return d.Hooks(hooks), nil
}

// rest has the tiles ask for no more plans, so that they come to rest after the battle.
func (p *pilots) rest() {
	if p != nil {
		p.resting.Store(true)
	}
}

// status is the planners as the page shows them.
func (p *pilots) status() *statuspoller.Pilots {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &statuspoller.Pilots{Workers: len(p.workers), Killed: p.killed, Tokens: p.tokens, Billed: len(p.bill),
		Waits: []statuspoller.Pilot{}}
	for _, ships := range p.ships {
		out.Ships += len(ships)
	}
	for _, d := range p.desks {
		s := d.Stats()
		out.Applied, out.Refused = out.Applied+s.Applied, out.Refused+s.Refused
		out.Stale, out.Dead = out.Stale+s.Stale, out.Dead+s.Died
	}
	for _, h := range p.hosts.all() {
		d := p.desks[h]
		if d == nil || !h.line.Is(faultinject.Flowing) {
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
func (p *pilots) Record(_ context.Context, events []slow.UsageEvent) error {
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

// workerKilled is the fault that a worker dies with calls in hand.
func (p *pilots) workerKilled() chaos.Fault {
	return chaos.Fault{Kind: faultinject.PlannerKilled,
		Choose: func(_ context.Context, r *chaos.Runner) (*chaos.Injection, error) {
			p.mu.Lock()
			w := p.workers[r.Intn(len(p.workers))]
			p.mu.Unlock()
			if w.Stats().Running == 0 {
				return nil, chaos.ErrNotNow
			}
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

// kill ends a worker as kill -9 does, and returns the requests that it was at.
func (p *pilots) kill(w *planWorker) (lost []string) {
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

// over reports whether no entity waits for any of these requests, or another worker is at it.
func (p *pilots) over(requests []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.ships {
		d := p.desks[p.hosts.owner(id)]
		if d == nil {
			return false // it has no owner at the moment
		}
		for _, r := range d.Waiting(id) {
			if slices.Contains(requests, r.ID) && p.calls[r.ID] == nil {
				return false
			}
		}
	}
	return true
}
