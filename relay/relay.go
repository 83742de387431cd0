package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// ErrStopped: Run has returned, or was called before. A Relay runs once.
var ErrStopped = errors.New("relay: already run")

// Relay holds client connections and keeps each client's view of its tiles equal to what was committed.
// Create one with New. All methods are safe for concurrent use.
type Relay struct {
	sub   fanout.Subscriber
	log   stream.Log
	cfg   Config
	count counters

	consumer stream.Consumer // whose marks it writes

	base   context.Context // of everything Run owns; ends when Run has closed the clients
	cancel context.CancelFunc
	slots  chan struct{} // one a cold read under way
	began  chan struct{} // closed when Run begins

	mu      sync.Mutex // before any hub's or client's mutex
	hubs    map[fence.TileID]*hub
	clients map[*client]struct{}

	// life guards the phase and, with it, that no goroutine is started once Run waits for them. It is
	// taken last, under any other mutex.
	life  sync.Mutex
	phase phase
	open  int            // connections admitted and not ended
	tasks sync.WaitGroup // everything but connections
	conns sync.WaitGroup // one a connection
}

// phase is what a Relay is doing. It only moves forward.
type phase uint8

const (
	idle     phase = iota // Run has not been called: nobody is admitted
	serving               // Run runs
	draining              // Run runs, nobody new is admitted
	closing               // Run closes the connections that are left
	stopped               // Run waits for the rest, or has returned
)

// New returns a Relay that follows tiles through sub and reads what it missed from log. A nil cfg means
// all defaults. It does no I/O and starts no goroutine: Run does. An *fence.ArgumentError names a missing
// argument or a field of cfg that is out of range.
func New(sub fanout.Subscriber, log stream.Log, cfg *Config) (*Relay, error) {
	if sub == nil {
		return nil, &fence.ArgumentError{Field: "sub", Value: "nil", Want: "the fan-out to follow"}
	}
	if log == nil {
		return nil, &fence.ArgumentError{Field: "log", Value: "nil", Want: "the coordination store to read"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Relay{
		sub: sub, log: log, cfg: c, consumer: stream.RelayMember(c.ID),
		slots: make(chan struct{}, c.MaxRepairs), began: make(chan struct{}),
		hubs: map[fence.TileID]*hub{}, clients: map[*client]struct{}{},
	}
	r.base, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Run serves connections until ctx is cancelled, and owns every goroutine of the Relay. At the end it
// closes the clients that are left with status 1001, waits for them at most Config.CloseTimeout, ends
// the fan-out subscriptions, releases its marks and returns nil. It can be called once: ErrStopped otherwise. For a slower
// end call Drain before cancelling ctx.
func (r *Relay) Run(ctx context.Context) error {
	if !r.advance(idle, serving) {
		return ErrStopped
	}
	close(r.began)
	for _, loop := range []func(){r.checkLoop, r.markLoop, r.sweepLoop} {
		r.spawn(loop)
	}
	<-ctx.Done()
	r.advance(serving, closing)
	r.advance(draining, closing)
	r.closeClients()
	r.cancel()
	r.advance(closing, stopped)
	for _, h := range r.allHubs() {
		r.dropHub(h)
	}
	r.tasks.Wait()
	return nil
}

// advance moves the relay from one phase to a later one, if it is in the first.
func (r *Relay) advance(from, to phase) bool {
	r.life.Lock()
	defer r.life.Unlock()
	if r.phase != from {
		return false
	}
	r.phase = to
	return true
}

// spawn starts a goroutine that Run waits for; false if it is too late.
func (r *Relay) spawn(f func()) bool {
	r.life.Lock()
	defer r.life.Unlock()
	if r.phase == idle || r.phase == stopped {
		return false
	}
	r.tasks.Go(f)
	return true
}

// admit counts a connection in, if the relay takes new ones and has room.
func (r *Relay) admit() bool {
	r.life.Lock()
	defer r.life.Unlock()
	if r.phase != serving || r.open >= r.cfg.MaxClients {
		return false
	}
	r.open++
	r.conns.Add(1)
	return true
}

// dismiss counts a connection out that admit counted in.
func (r *Relay) dismiss() {
	r.life.Lock()
	defer r.life.Unlock()
	r.open--
	r.conns.Done()
}

// sleep waits; false if the relay stops meanwhile.
func (r *Relay) sleep(d time.Duration) bool {
	if d <= 0 {
		return r.base.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.base.Done():
		return false
	}
}

// acquire takes one of the places for a cold read; false if the relay stops meanwhile.
func (r *Relay) acquire() bool {
	select {
	case r.slots <- struct{}{}:
		return true
	case <-r.base.Done():
		return false
	}
}

func (r *Relay) release() { <-r.slots }

// hub returns the tile's hub, making it if need be; nil when there is no room for another.
func (r *Relay) hub(tile fence.TileID) *hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hubs[tile]
	if h == nil && (len(r.hubs) < r.cfg.MaxHubs || r.makeRoom()) {
		h = newHub(r, tile)
		r.hubs[tile] = h
	}
	return h
}

// roomTries bounds how many hubs are looked at to make room for one.
const roomTries = 64

// makeRoom drops a tile that nobody watches before its time, if it soon finds one. The mutex is held.
func (r *Relay) makeRoom() bool {
	tries := 0
	for tile, h := range r.hubs { // in random order
		if h.sweep(time.Now(), 0) {
			delete(r.hubs, tile)
			r.spawn(func() { r.dropHub(h) })
			return true
		}
		if tries++; tries == roomTries {
			return false
		}
	}
	return false
}

func (r *Relay) allHubs() []*hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*hub, 0, len(r.hubs))
	for _, h := range r.hubs {
		all = append(all, h)
	}
	return all
}

// forget makes room for another hub of the same tile.
func (r *Relay) forget(h *hub) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hubs[h.tile] == h {
		delete(r.hubs, h.tile)
	}
}

// dropHub forgets a hub and ends its fan-out subscription. A repair under way ends it itself.
func (r *Relay) dropHub(h *hub) {
	r.forget(h)
	h.mu.Lock()
	h.closed = true
	var stop func()
	if !h.repairing {
		stop, h.stop = h.stop, nil
	}
	h.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// turns calls f in each of n parts of interval with the number of the part, from a random moment on,
// until the relay stops.
func (r *Relay) turns(n int, interval time.Duration, f func(turn int)) {
	step := max(interval/time.Duration(n), time.Millisecond)
	if !r.sleep(rand.N(step)) {
		return
	}
	for turn := 0; r.sleep(step); turn = (turn + 1) % n {
		f(turn)
	}
}
