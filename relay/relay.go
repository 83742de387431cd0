package relay

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Relay holds client connections and keeps each client's view of its tiles equal to what was committed.
// Create one with New. All methods are safe for concurrent use.
type Relay struct {
	cfg   Config
	count counters
	life  *lifecycle

	hubs    *registry
	checker *checker
	marker  *marker
	syncs   *syncBudget // of all clients
	gate    *gate.Gate
	backlog *backlog
	pool    *socket.WritePool
	shares  shares

	heartbeats [forms][]byte

	mu      sync.Mutex // before any client's
	clients map[*client]struct{}
}

// New returns a Relay that follows tiles through sub and reads what it missed from log. It does no I/O and
// starts no goroutine: Run does. authorize decides what each client may watch; it must not be nil, and Public lets all
// watch everything. A nil cfg means the defaults. A *fence.ArgumentError names a missing argument or a field of cfg
// that is out of range.
func New(sub fanout.Subscriber, log stream.Log, authorize AuthorizeFunc, cfg *Config) (*Relay, error) {
	if sub == nil {
		return nil, &fence.ArgumentError{Field: "sub", Value: "nil", Want: "the fan-out to follow"}
	}
	if log == nil {
		return nil, &fence.ArgumentError{Field: "log", Value: "nil", Want: "the coordination store to read"}
	}
	if authorize == nil {
		return nil, &fence.ArgumentError{Field: "authorize", Value: "nil",
			Want: "a function, or Public to let all clients watch every tile"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c.authorize = authorize
	r := &Relay{cfg: c, life: newLifecycle(), clients: map[*client]struct{}{},
		syncs: newSyncBudget(relaySyncRate), pool: socket.NewWritePool(), heartbeats: heartbeats(c.PingInterval / 2)}
	if r.gate, err = gate.New(c.Authenticate, c.Sessions, c.MaxClients); err != nil {
		return nil, err
	}
	r.backlog = newBacklog(&r.cfg)
	r.pool.Waited = r.backlog.turns.Observe
	r.shares = shares{cfg: &r.cfg, all: map[string]*share{}}
	repairs := &repairer{sub: sub, log: log, life: r.life, cfg: &r.cfg, count: &r.count,
		tasks: make(chan struct{}, tasksPerSlot*c.MaxRepairs), slots: make(chan struct{}, c.MaxRepairs)}
	r.hubs = &registry{cfg: &r.cfg, stats: &r.count, life: r.life, repair: repairs.start,
		kept: &keptSyncs{most: int64(c.RelaySyncBytes)}, hubs: map[fence.TileID]*hub{}}
	r.checker = &checker{log: log, hubs: r.hubs, life: r.life, cfg: &r.cfg}
	r.marker = &marker{consumer: stream.RelayMember(c.ID), log: log, hubs: r.hubs, life: r.life, cfg: &r.cfg,
		count: &r.count}
	return r, nil
}

// Run serves connections until ctx is cancelled or Drain has ended, and owns every goroutine of the Relay. At the end
// it closes the clients that are left with status 1001, waits for them at most two seconds, ends the fan-out
// subscriptions, releases its marks and returns nil. It can be called once: fence.ErrAlreadyRun otherwise. To send
// clients to other relays first, call Drain.
func (r *Relay) Run(ctx context.Context) error {
	if !r.life.advance(idle, serving) {
		return fmt.Errorf("relay: %w", fence.ErrAlreadyRun)
	}
	defer close(r.life.ended)
	close(r.life.began)
	for _, loop := range []func(){r.checker.run, r.marker.run, r.sweepLoop} {
		r.life.spawn(loop)
	}
	select {
	case <-ctx.Done():
	case <-r.life.drained:
	}
	r.life.advance(serving, closing)
	r.life.advance(draining, closing)
	r.gate.Close()
	r.closeClients()
	r.life.cancel()
	r.life.advance(closing, stopped)
	for _, h := range r.hubs.all() {
		r.hubs.drop(h)
	}
	r.life.tasks.Wait()
	return nil
}

// sweepLoop does what depends only on time passing: pings, clients that are silent or too slow, tiles
// without clients.
func (r *Relay) sweepLoop() {
	shortest := min(r.cfg.PingInterval, r.cfg.slowTimeout, r.cfg.linger)
	every := min(max(shortest/4, 5*time.Millisecond), time.Second)
	for r.life.sleep(every) {
		now := time.Now()
		for _, c := range r.allClients() {
			c.sweep(now)
		}
		r.hubs.sweep(now)
	}
}

// closeClients ends every connection at once and waits for them, for a bounded time before the connections are cut.
func (r *Relay) closeClients() {
	for _, c := range r.allClients() {
		c.shut(relaypb.CloseGoingAway, "relay stopped", false)
	}
	late := time.AfterFunc(r.cfg.closeTimeout, r.cut)
	defer late.Stop()
	r.life.conns.Wait()
}

// cut closes the network connections of the clients that are left.
func (r *Relay) cut() {
	for _, c := range r.allClients() {
		_ = c.wire.Close()
	}
}

// serve runs a connection that was admitted until it ends. It is closed at once if the relay has begun to send its
// clients away, or if sessions were ended meanwhile and the game does not let this client in any more.
func (r *Relay) serve(c *client, req *http.Request, first *relaypb.Subscribe) {
	register := func() {
		r.mu.Lock()
		r.clients[c] = struct{}{}
		r.mu.Unlock()
	}
	r.enter(c)
	hook.Call(r.cfg.Hooks.ClientOpened, ClientOpenedInfo{Actor: c.sess.Actor(), Began: c.sess.Began()})
	if err := c.sess.Register(req, register, c.makePlace); err != nil {
		register() // it takes a moment to close it
		r.cfg.refusals.Info("client ended", "remote", c.sess.Remote(), "error", err)
		c.end()
	}
	if r.life.reached(draining) {
		c.shut(relaypb.CloseGoingAway, "relay stopped", false)
	}
	c.session()
	go c.start(c.writeSome)() // the game may take its time: what is queued meanwhile does not wait, nor does an end
	c.subscribeAll(first)
	// Its own goroutine, so that the server's buffers and the request are freed.
	go c.run(func() {
		defer r.life.dismiss()
		c.sess.Close()
		r.mu.Lock()
		delete(r.clients, c)
		r.mu.Unlock()
		if c.sess.Holder() != "" {
			r.shares.leave(c.share)
		}
	})
}

// enter gives a client its share of the relay.
func (r *Relay) enter(c *client) {
	holder, stranger := c.sess.Holder(), c.sess.Actor() == ""
	switch {
	case holder == "":
		return // it has one alone
	case stranger:
		c.share = r.shares.enter(holder, true)
		c.queue.share = c.share.syncs
	default: // all of an actor's connections have what one has
		c.share = r.shares.enter(holder, false)
		c.own = c.share.syncs
	}
}

func (r *Relay) allClients() []*client {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*client, 0, len(r.clients))
	for c := range r.clients {
		all = append(all, c)
	}
	return all
}

// Stats returns the relay's figures. It may be called at any time.
func (r *Relay) Stats() Stats {
	r.mu.Lock()
	clients := len(r.clients)
	r.mu.Unlock()
	turns := r.backlog.turns.Stats(time.Now())
	s := r.count.stats(clients, r.hubs.len())
	s.Late, s.Delay = turns.Late, turns.Delay
	return s
}

// EndActor closes the connections of an actor with status 4004 and returns how many. It does not keep the actor out:
// make Authenticate refuse first. Of a handshake under way, Authenticate is asked again.
func (r *Relay) EndActor(actor string) int {
	r.gate.Ending()
	ended := 0
	for _, c := range r.allClients() {
		if actor != "" && c.sess.Actor() == actor && c.end() {
			ended++
		}
	}
	return ended
}

// EndTile closes the connections that watch a tile with status 4004 and returns how many. It does not keep them from
// watching it again: make the AuthorizeFunc refuse first. Over a subscription under way, it decides again.
func (r *Relay) EndTile(tile fence.TileID) int {
	r.gate.Ending()
	ended := 0
	for _, c := range r.hubs.watchers(tile) {
		if c.shut(relaypb.CloseEnded, endedReason, false) {
			ended++
		}
	}
	return ended
}

// newClient makes a client for a session; the connection is not there yet.
func (r *Relay) newClient(sess *gate.Session, e relaypb.Encoding) *client {
	c := &client{
		cfg: &r.cfg, count: &r.count, hubs: r.hubs, form: form(e), sess: sess, opened: time.Now(),
		subs: map[fence.TileID]*subscription{},
	}
	c.queue.init(r.cfg.queueFrames, r.cfg.queueBytes)
	c.backlog, c.pool = r.backlog, r.pool
	c.share = newShare(&r.cfg, 1)
	c.own, c.all = c.share.syncs, r.syncs
	c.coalesce = r.cfg.coalesce
	return c
}
