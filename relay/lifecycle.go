package relay

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// lifecycle is what a Relay is doing, and the goroutines and connections that Run waits for. Its mutex is taken last,
// under any other: it guards that nothing is started once Run waits for what is left.
type lifecycle struct {
	base    context.Context // of everything that Run owns; ends when Run has closed the clients
	cancel  context.CancelFunc
	began   chan struct{} // closed when Run begins
	drained chan struct{} // closed when Drain has sent the clients away
	ended   chan struct{} // closed when Run has returned

	mu    sync.Mutex
	phase phase
	tasks sync.WaitGroup // everything but connections
	conns sync.WaitGroup // one a connection
}

// phase is what a Relay is doing. It only moves forward.
type phase uint8

const (
	idle     phase = iota // Run has not been called: no client is admitted
	serving               // Run runs
	draining              // Run runs, no new client is admitted
	closing               // Run closes the connections that are left
	stopped               // Run waits for the rest, or has returned
)

func newLifecycle() *lifecycle {
	l := &lifecycle{began: make(chan struct{}), drained: make(chan struct{}), ended: make(chan struct{})}
	l.base, l.cancel = context.WithCancel(context.Background())
	return l
}

// advance moves to a later phase, if the present one is from.
func (l *lifecycle) advance(from, to phase) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != from {
		return false
	}
	l.phase = to
	return true
}

// reached reports whether the phase is p or a later one.
func (l *lifecycle) reached(p phase) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase >= p
}

// spawn starts a goroutine that Run waits for; false if it is too late.
func (l *lifecycle) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == idle || l.phase == stopped {
		return false
	}
	l.tasks.Go(f)
	return true
}

// admit counts a connection in, if the relay takes new ones.
func (l *lifecycle) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != serving {
		return false
	}
	l.conns.Add(1)
	return true
}

// dismiss counts a connection out that admit counted in.
func (l *lifecycle) dismiss() { l.conns.Done() }

// sleep waits; false if the relay stops meanwhile.
func (l *lifecycle) sleep(d time.Duration) bool {
	if d <= 0 {
		return l.base.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.base.Done():
		return false
	}
}

// turns calls f in each of n parts of interval with the number of the part, from a random moment on,
// until the relay stops.
func (l *lifecycle) turns(n int, interval time.Duration, f func(turn int)) {
	step := max(interval/time.Duration(n), time.Millisecond)
	if !l.sleep(rand.N(step)) {
		return
	}
	for turn := 0; l.sleep(step); turn = (turn + 1) % n {
		f(turn)
	}
}
