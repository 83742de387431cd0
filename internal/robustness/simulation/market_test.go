package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
)

// market is where players pay for what they do: a ledger, and two gateways, which hear of owners by gossip.
type market struct {
	*world
	ledger   *sqliteledger.Store
	bank     *game.Bank
	counters []*counter
	deaf     atomic.Bool // gossip is lost
}

// counter is a place at which one gateway runs after the other.
type counter struct {
	server
	of *market

	mu  sync.Mutex
	now *gateway // nil: none runs
}

// gateway is one that runs.
type gateway struct {
	*admission.Gateway
	table *route.Table
	host  *host
}

var players = []string{"ann", "ben", "cat", "dan"}

// trade starts two gateways, and players who act until ctx ends.
func (w *world) trade(ctx context.Context, wg *sync.WaitGroup) *market {
	m := &market{world: w}
	var err error
	if m.ledger, err = sqliteledger.Open(ctx, sqliteledger.Memory); err == nil {
		m.bank, err = game.NewBank(ctx, m.ledger, players...)
	}
	if err != nil {
		panic(err) // it is memory
	}
	for i := range 2 {
		c := &counter{of: m}
		c.name, c.run = fmt.Sprintf("gateway-%d", i), c.serve
		w.launch(&c.server)
		m.counters = append(m.counters, c)
	}
	for _, name := range players {
		wg.Go(func() { m.play(ctx, name) })
	}
	return m
}

// serve is one gateway process. It knows nothing of what the one before it knew.
func (c *counter) serve(ctx context.Context, h *host) error {
	seams := c.of.seams(h)
	table := new(route.Table)
	router, err := route.NewRouter(table, seams.Store, nil)
	if err != nil {
		return err
	}
	reconciler, err := admission.NewReconciler(seams.Authority, seams.Store, seams.Log, &admission.ReconcilerConfig{
		RememberFor: tile.DefaultRememberFor, RetryWindow: retryWindow, MaxClockSkew: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	ledger, err := admission.New(&ledger{Store: c.of.ledger, host: h}, nil)
	if err != nil {
		return err
	}
	gate, err := admission.NewGateway(ledger, router, &forwarder{world: c.of.world, host: h}, game.Price,
		&admission.GatewayConfig{Unlimited: true, RetryWindow: retryWindow,
			ForwardTimeout: readTimeout, SweepAge: 300 * time.Millisecond, Reconciler: reconciler})
	if err != nil {
		return err
	}
	c.set(&gateway{gate, table, h})
	defer c.set(nil)
	for sleep(ctx, time.Duration(h.intN("sweep", int(time.Second)))) == nil {
		_, _ = gate.Sweep(ctx) // what it could not do, a later one does
	}
	return nil
}

func (c *counter) set(g *gateway) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = g
}

func (c *counter) open() (*gateway, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.now != nil
}

// hear tells every gateway of an owner, if the message is not lost, and at a time of its own.
func (m *market) hear(e route.Entry, from *host) {
	for _, c := range m.counters {
		to, open := c.open()
		luck := from.intN("gossip", 5)
		if !open || m.deaf.Load() || m.net.bad.Load() && luck == 0 {
			continue
		}
		var late time.Duration
		if m.net.bad.Load() && luck == 1 {
			late = time.Duration(from.intN("gossip", int(maxDelay)))
		}
		go func() {
			_ = sleep(context.Background(), late)
			if from.travel(context.Background(), "gossip") == nil && to.host.awake() == nil {
				to.table.Learn(e)
			}
		}()
	}
}

// play lets a player act through one gateway or the other until ctx ends.
func (m *market) play(ctx context.Context, name string) {
	h := newHost(m.net, name, m.seed)
	for n := 1; sleep(ctx, time.Duration(h.intN("think", int(800*time.Millisecond)))) == nil; n++ {
		m.act(ctx, h, admission.Action{ID: fmt.Sprintf("%s-%d", name, n), Actor: name, Asset: game.Coin, Cost: 1,
			Tile: m.tiles[h.intN("tile", len(m.tiles))]})
	}
}

// act sends an action until it has an outcome, or is too old, or the player is tired of it; sometimes once more.
func (m *market) act(ctx context.Context, h *host, a admission.Action) {
	again, tries := h.intN("again", 10) == 0, 8
	if h.intN("patience", 3) == 0 {
		tries = 1
	}
	for range tries {
		if gate, open := m.counters[h.intN("gateway", len(m.counters))].open(); open {
			call, cancel := context.WithTimeout(ctx, 3*time.Second)
			art, err := gate.Act(call, a)
			cancel()
			var unsure *fence.StoreError
			switch {
			case gate.host.awake() != nil: // the answer is lost with the process
			case err == nil:
				m.bank.Tell(a.ID, art.Outcome)
				if !again {
					return
				}
				again = false
			case errors.Is(err, admission.ErrExpired):
				return // a sweep finds out
			case !errors.Is(err, admission.ErrPending) && !errors.As(err, &unsure):
				m.fail(a.Tile, "action %s: %v", a.ID, err)
				return
			}
		}
		if sleep(ctx, time.Duration(h.intN("think", int(time.Second)))) != nil {
			return
		}
	}
}

// faults are what happens to gateways.
func (m *market) faults(b *breaker) []fault {
	some := func() *counter { return m.counters[b.rng.IntN(len(m.counters))] }
	return []fault{
		{"gateway killed", false, func(ctx context.Context) {
			c := some()
			c.kill()
			b.rest(ctx, 0, 3*time.Second)
			m.launch(&c.server)
		}},
		{"gateway paused", false, func(ctx context.Context) {
			if g, open := some().open(); open {
				g.host.pause()
				b.rest(ctx, 100*time.Millisecond, maxDelay)
				g.host.resume()
			}
		}},
		{"gossip lost", false, func(ctx context.Context) {
			m.deaf.Store(true)
			b.rest(ctx, 100*time.Millisecond, 5*time.Second)
			m.deaf.Store(false)
		}},
	}
}

func (m *market) breaker() *breaker {
	return &breaker{world: m.world, rng: rand.New(rand.NewPCG(m.seed, 4))}
}

// close waits until no action is open, and records the books. No tile decides anything meanwhile: what was paid for
// is too old to be sent.
func (m *market) close() {
	var err error
	for range 120 {
		if err = m.bank.Settled(context.Background()); err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	if err != nil {
		m.fail(0, "two minutes after the tiles came to rest %v", err)
	}
	if err := m.bank.Record(context.Background(), m.recorder); err != nil {
		m.fail(0, "the books: %v", err)
	}
	for _, c := range m.counters {
		c.kill()
	}
	time.Sleep(maxDelay) // what is late arrives
	if err := m.ledger.Close(); err != nil {
		m.fail(0, "the ledger: %v", err)
	}
}

const forwarding = "forward"

// forwarder is a gateway's way to tiles.
type forwarder struct {
	*world
	host *host
}

// Forward implements admission.Forwarder.
func (f *forwarder) Forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error) {
	type answer struct {
		result tile.Result
		err    error
	}
	if err := f.host.awake(); err != nil {
		return tile.Result{}, err
	}
	answers := make(chan answer, 1)
	to, fate := f.at(in.Tile, contact), f.host.fate(forwarding)
	if to == nil {
		return tile.Result{}, &fence.StoreError{Op: forwarding, Tile: in.Tile, Outcome: fence.ErrNotApplied,
			Err: errDown}
	}
	var late time.Duration
	if fate == isLate {
		late = time.Duration(f.host.intN(forwarding, int(maxDelay)))
	}
	if fate != isLost {
		go func() {
			_ = sleep(context.Background(), late)
			_ = f.host.travel(context.Background(), forwarding) // the one that waits is gone, or not
			if to.host.awake() != nil {
				return
			}
			call, cancel := context.WithTimeout(context.Background(), readTimeout)
			defer cancel()
			o, err := to.Submit(call, in)
			if to.host.awake() == nil && fate == arrives && f.host.travel(context.Background(), forwarding) == nil {
				answers <- answer{o, err}
			}
		}()
	}
	select {
	case a := <-answers:
		if err := f.host.awake(); err != nil {
			return tile.Result{}, err
		}
		return a.result, a.err
	case <-ctx.Done():
		return tile.Result{}, errNoAnswer
	}
}

// at is the processor of a tile in the process at a contact: the one that serves, or the newest; nil if none lives.
func (w *world) at(id fence.TileID, contact string) (found *claimant) {
	for _, c := range w.living(id) {
		if c.contact != contact {
			continue
		}
		if found == nil || found.Status().State != tile.Serving {
			found = c
		}
	}
	return found
}

// ledger is a gateway's way to the ledger's store.
type ledger struct {
	admission.Store
	host *host
}

// reach makes a call of the store, which may be carried out long after reach has returned.
func reach[T any](ctx context.Context, l *ledger, op string, f func(context.Context) (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	got := new(reply)
	err := l.host.ask(ctx, op, 0, func() (bool, error) {
		got.value, got.err = f(context.Background())
		return true, nil
	})
	if err != nil {
		var none T
		return none, err
	}
	return got.value, got.err
}

// Now implements admission.Store.
func (l *ledger) Now(ctx context.Context) (time.Time, error) {
	now, err := reach(ctx, l, "now", l.Store.Now)
	return now, unread(err)
}

// Admit implements admission.Store.
func (l *ledger) Admit(ctx context.Context, a admission.Artifact) (admission.Artifact, error) {
	return reach(ctx, l, "admit", func(ctx context.Context) (admission.Artifact, error) {
		return l.Store.Admit(ctx, a)
	})
}

// Attempt implements admission.Store.
func (l *ledger) Attempt(
	ctx context.Context, action string, attempt admission.AttemptID, at time.Time,
) (admission.Artifact, error) {
	return reach(ctx, l, "attempt", func(ctx context.Context) (admission.Artifact, error) {
		return l.Store.Attempt(ctx, action, attempt, at)
	})
}

// Withdraw implements admission.Store.
func (l *ledger) Withdraw(ctx context.Context, action string, attempt admission.AttemptID) error {
	_, err := reach(ctx, l, "withdraw", func(ctx context.Context) (any, error) {
		return nil, l.Store.Withdraw(ctx, action, attempt)
	})
	return err
}

// Settle implements admission.Store.
func (l *ledger) Settle(ctx context.Context, s admission.Settlement) (admission.Artifact, error) {
	return reach(ctx, l, "settle", func(ctx context.Context) (admission.Artifact, error) {
		return l.Store.Settle(ctx, s)
	})
}

// Lookup implements admission.Store.
func (l *ledger) Lookup(ctx context.Context, action string) (admission.Artifact, error) {
	a, err := reach(ctx, l, "lookup", func(ctx context.Context) (admission.Artifact, error) {
		return l.Store.Lookup(ctx, action)
	})
	return a, unread(err)
}

// Pending implements admission.Store.
func (l *ledger) Pending(
	ctx context.Context, from, before time.Time, limit int,
) ([]admission.PendingAction, error) {
	pending, err := reach(ctx, l, "pending", func(ctx context.Context) ([]admission.PendingAction, error) {
		return l.Store.Pending(ctx, from, before, limit)
	})
	return pending, unread(err)
}

// pay counts what a player paid for, and got back.
func (s *Stats) pay(p *history.Payment) {
	if p.Reason == "" {
		s.Paid++
		if p.Refunded {
			s.Refunded++
		}
	}
}
