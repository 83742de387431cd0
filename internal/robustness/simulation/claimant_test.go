package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// claimant is one run of a tile.TileProcessor in a process of its own.
type claimant struct {
	*tile.TileProcessor
	name    string // of the run, as recorded
	contact string
	host    *host
	stop    context.CancelFunc
	done    chan struct{}
	killed  bool // guarded by the world's mu
}

// ended reports whether Run has returned.
func (c *claimant) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// start runs another processor for a tile.
func (w *world) start(id fence.TileID, change func(*tile.Config)) *claimant {
	w.mu.Lock()
	n := len(w.claimants[id]) + 1
	w.mu.Unlock()
	contact := fmt.Sprintf("host-%d:7000", n%5)
	name := fmt.Sprintf("%s/%s#%d", id, contact, n)
	h := newHost(w.net, name, w.seed)
	ctx, stop := context.WithCancel(context.Background())
	c := &claimant{name: name, contact: contact, host: h, stop: stop, done: make(chan struct{})}
	cfg := tile.Config{TickInterval: tickInterval, SnapshotEvery: 25, ConfirmEvery: 5, TakeOver: true,
		MixedBorders: !w.loses, // then what they promise is what the weaker promises
		Limits:       tile.Limits{RetryWindow: retryWindow}, Timeouts: tile.Timeouts{BootTimeout: lookEvery},
		Hooks: tile.Hooks{
			Committed: func(i tile.CommitInfo) { w.crossed(i.Departures) },
			Diverged:  func(i tile.DivergenceInfo) { w.fail(i.Tile, "%s has not the owner's state: %+v", name, i) },
			Healed: func(i tile.HealInfo) {
				w.healed(i)
				w.recorder.Healed(name, contact, i)
			},
			Transition: func(i tile.TransitionInfo) {
				w.recorder.Transition(name, contact, i)
				if m := w.market; m != nil && i.To == tile.Serving {
					m.hear(route.Entry{Tile: i.Tile, Epoch: i.Epoch, Contact: contact}, h)
				}
			}}}
	keeps := &durable{Backend: w.durable, host: h, silent: &w.silent}
	cfg.Durability = w.classOf(id)
	change(&cfg)
	seams := w.seams(h)
	seams.Checkpoint, seams.Journal = keeps.Get, w.recorder.Journal(name, keeps)
	seams.Handover = func(ctx context.Context, to tile.Handover) error { return w.askSuccessor(ctx, h, to) }
	seams.Authority = w.recorder.Authority(name, seams.Authority)
	seams.Store = w.recorder.Store(name, seams.Store)
	rules := &game.Register{}
	if w.travels {
		rules.Travel = game.TravelAmong(w.tiles, id, game.Few)
		seams.Present = func(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
			return w.present(ctx, h, &p)
		}
	}
	p, err := tile.New(id, contact, seams, rules, &cfg)
	if err != nil {
		panic(err) // the arguments are constants
	}
	c.TileProcessor = p
	w.mu.Lock()
	w.claimants[id] = append(w.claimants[id], c)
	w.mu.Unlock()
	w.running.Go(func() {
		defer close(c.done)
		err := p.Run(ctx)
		last := p.Status()
		w.recorder.Ended(name, contact, &last, err)
		w.ended(c, id, err)
	})
	return c
}

// askSuccessor is an owner's way to the process that it hands its tile over to.
func (w *world) askSuccessor(ctx context.Context, from *host, h tile.Handover) error {
	to, fate := w.at(h.Tile, h.To), from.fate("hand over")
	if to == nil || fate == isLost || from.travel(ctx, "hand over") != nil || to.host.awake() != nil {
		return errNoAnswer
	}
	to.TakeOver(tile.HandedOver)
	for {
		if s := to.Status(); s.State == tile.Serving && s.Epoch > h.Epoch && fate == arrives {
			return from.awake()
		}
		if err := sleep(ctx, tickInterval/10); err != nil {
			return err
		}
	}
}

// seams are the back ends as a host reaches them.
func (w *world) seams(h *host) tile.Seams {
	s := store{cluster: w.cluster, host: h}
	return tile.Seams{Authority: &authority{registry: w.registry, host: h}, Store: &s, Log: &log{store: s}}
}

// ended notes an end that no fault explains.
func (w *world) ended(c *claimant, id fence.TileID, err error) {
	excusable := err == nil || errors.Is(err, tile.ErrSuperseded) || errors.Is(err, fence.ErrLost) ||
		errors.Is(err, fence.ErrNotApplied) || errors.Is(err, fence.ErrUnknownOutcome) ||
		errors.Is(err, fence.ErrUnconfirmed) || errors.Is(err, tile.ErrUnreleased)
	if !excusable {
		w.fail(id, "%s ended: %v", c.name, err)
	}
}

// crash kills a claimant's process.
func (w *world) crash(c *claimant) {
	w.mu.Lock()
	c.killed = true
	w.mu.Unlock()
	c.host.kill()
	c.stop()
}

// living lists a tile's claimants whose process runs, oldest first.
func (w *world) living(id fence.TileID) []*claimant {
	w.mu.Lock()
	defer w.mu.Unlock()
	var living []*claimant
	for _, c := range w.claimants[id] {
		if !c.ended() && !c.killed {
			living = append(living, c)
		}
	}
	return living
}

// follower is a tile's warm follower; nil if it has none.
func (w *world) follower(id fence.TileID) *claimant {
	for _, c := range w.living(id) {
		if c.Status().State == tile.Following {
			return c
		}
	}
	return nil
}

// server is the claimant that serves a tile, as far as it knows; the newest if several do, nil if none.
func (w *world) server(id fence.TileID) *claimant {
	living := w.living(id)
	for i := len(living) - 1; i >= 0; i-- {
		if s := living[i].Status().State; s == tile.Serving || s == tile.Healing {
			return living[i]
		}
	}
	return nil
}

// gateway sends actions to a tile until ctx ends, each until it has an outcome or its outcome stays unknown.
func (w *world) gateway(ctx context.Context, id fence.TileID, n int) {
	h := newHost(w.net, fmt.Sprintf("gateway %s %d", id, n), w.seed)
	name := fmt.Sprintf("gateway-%d", n)
	for i := 0; ctx.Err() == nil; i++ {
		action := fmt.Sprintf("%d-%d", n, i)
		for range 8 {
			if w.submit(ctx, id, name, action, h) || ctx.Err() != nil {
				break
			}
			_ = sleep(ctx, time.Duration(h.intN("submit", int(time.Second))))
		}
		_ = sleep(ctx, time.Duration(h.intN("submit", int(600*time.Millisecond))))
	}
}

// submit sends an action once; true if it has an outcome.
func (w *world) submit(ctx context.Context, id fence.TileID, client, action string, h *host) bool {
	living := slices.DeleteFunc(w.living(id), func(c *claimant) bool { return c.Status().State == tile.Following })
	if len(living) == 0 {
		return false
	}
	to := living[len(living)-1]
	if h.intN("submit", 4) == 0 {
		to = living[h.intN("submit", len(living))]
	}
	in := tile.Intent{Tile: id, ActionID: action, Actor: client, Body: []byte(action)}
	ended := w.recorder.Submit(client, &in, to.contact)
	end := func(o stream.Outcome, err error) {
		_ = h.travel(context.Background(), "answer") // one event may end several calls
		ended(o, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if h.travel(ctx, "submit") != nil || to.host.awake() != nil {
		end(0, errNoAnswer)
		return false
	}
	o, err := to.Submit(ctx, in)
	if to.host.awake() != nil {
		o, err = tile.Result{}, errKilled
	}
	end(o.Outcome, err)
	if err == nil {
		w.answered()
	}
	return err == nil
}

// answered counts outcomes.
func (w *world) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Actions++
}

func (w *world) healed(i tile.HealInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.Rebased {
		w.stats.Rebases++
	}
	w.stats.Reappended += i.Reappended
	if i.Reclaimed {
		w.stats.Reclaimed++
	}
}
