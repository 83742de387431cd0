// Package faultinject breaks what connects a process to its back ends, for tests, for the campaign and for the battle
// under chaos. Within one process, a Line that passes no call stands for a process that is paused or dead; it needs no
// server. A Listener breaks the connections that a process has accepted, and a Throttle refuses requests to DynamoDB.
package faultinject

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream/share"
)

// Line is what all calls of a process to its back ends go through. All methods may be called from any goroutine.
type Line struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // closed, and replaced, at every change of state
}

// State is how a Line is broken.
type State int

// The states. A Line whose calls neither begin nor return stands for a process that is paused, or dead.
const (
	Flowing State = 1 // nothing is broken
	Cut     State = 2 // calls fail at once, and do nothing
	Deaf    State = 3 // calls do what they should, and their answers are lost
	Paused  State = 4 // calls neither begin nor return, as in a process that was sent SIGSTOP
	Dead    State = 5 // the same for ever
	Buried  State = 6 // dead, and its goroutines may end
)

// ErrKilled is the error of all calls over a line that is Buried.
var ErrKilled = fmt.Errorf("this process was killed (chaos): %w", context.Canceled)

var (
	errCut       = errors.New("connection refused (chaos)")
	errReplyLost = errors.New("connection reset before the answer (chaos)")
)

// New returns a line that is Flowing.
func New() *Line { return &Line{state: Flowing, changed: make(chan struct{})} }

// Set changes the state. A Dead line can only be Buried.
func (l *Line) Set(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state >= Dead && s != Buried || l.state == s {
		return
	}
	l.state = s
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Line) look() (State, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.changed
}

// Is reports whether the line is in a state.
func (l *Line) Is(s State) bool {
	state, _ := l.look()
	return state == s
}

// Await returns the state once the process runs: at once, unless it is paused or dead. A paused process does not
// notice that a deadline has passed, so ctx is for callers outside the process. It is zero when ctx ended first.
func (l *Line) Await(ctx context.Context) State {
	for {
		state, changed := l.look()
		if state != Paused && state != Dead {
			return state
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0
		}
	}
}

// Lives returns nil once the process runs, and ErrKilled when it is dead and its goroutines may end.
func (l *Line) Lives() error {
	if l.Await(context.Background()) == Buried {
		return ErrKilled
	}
	return nil
}

// Bury lets the goroutines of a process that is dead end. It does nothing to one that is not.
func (l *Line) Bury() {
	if l.Is(Dead) {
		l.Set(Buried)
	}
}

// Process returns b as the process at the end of the line sees it.
func (l *Line) Process(b tilefence.Backends) tilefence.Backends {
	b = l.Coordination(b)
	b.Authority = intercept.AuthorityOf(b.Authority, l.call)
	if b.Workers != nil {
		b.Workers = &workers{l, b.Workers}
	}
	if b.Matches != nil {
		b.Matches = &offers{b.Matches, l}
	}
	if b.Plans != nil {
		b.Plans = l.Plans(b.Plans)
	}
	return b
}

// Coordination returns b with the coordination store at the far end of the line.
func (l *Line) Coordination(b tilefence.Backends) tilefence.Backends {
	b.Store, b.Log = intercept.StoreOf(b.Store, l.call), intercept.LogOf(b.Log, l.call)
	return b
}

// deafness is how long a caller waits for an answer that is lost before its connection is known to be broken.
const deafness = 50 * time.Millisecond

// call makes a call over the line.
func (l *Line) call(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
	switch l.Await(context.Background()) {
	case Cut:
		return &fence.StoreError{Op: "call", Outcome: fence.ErrNotApplied, Err: errCut}
	case Buried:
		return ErrKilled
	}
	err := do(ctx)
	switch l.Await(context.Background()) {
	case Deaf:
		wait.For(ctx, deafness) // an answer that is lost is waited for
		lost := fence.ErrNotApplied
		if c.Write {
			lost = fence.ErrUnknownOutcome
		}
		return &fence.StoreError{Op: "call", Outcome: lost, Err: errReplyLost}
	case Buried:
		return ErrKilled
	}
	return err
}

// workers are share.Members at the far end of a line.
type workers struct {
	*Line
	share.Members
}

var beat = intercept.Call{Op: "beat", Write: true}

func (w *workers) Beat(ctx context.Context, group, member string, ttl time.Duration) (all []string, known bool,
	err error) {
	err = w.call(ctx, beat, func(ctx context.Context) (err error) {
		all, known, err = w.Members.Beat(ctx, group, member, ttl)
		return err
	})
	if err != nil {
		all = nil
	}
	return all, known, err
}

func (w *workers) Leave(ctx context.Context, group, member string) error {
	return w.call(ctx, beat, func(ctx context.Context) error { return w.Members.Leave(ctx, group, member) })
}

// Listener is a listener whose connections can be broken. All methods may be called from any goroutine.
type Listener struct {
	net.Listener
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	killed chan struct{} // closed by Close; nil: it was not killed
}

// Accept implements net.Listener.
func (c *Listener) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		c.mu.Lock()
		killed := c.killed
		c.mu.Unlock()
		if killed != nil {
			<-killed
		}
		return nil, err
	}
	remembered := &conn{accepted, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns = map[net.Conn]struct{}{}
	}
	c.conns[remembered] = struct{}{}
	return remembered, nil
}

// Cut closes every connection, without a word.
func (c *Listener) Cut() {
	c.mu.Lock()
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	for conn := range conns {
		_ = conn.Close() // that is the point
	}
}

// Kill closes the listener and every connection, as the kernel does when a process dies. In a process that is dead
// Accept does not return: it does so after Close.
func (c *Listener) Kill() {
	c.mu.Lock()
	c.killed = make(chan struct{})
	c.mu.Unlock()
	_ = c.Listener.Close()
	c.Cut()
}

// Close implements net.Listener.
func (c *Listener) Close() error {
	c.mu.Lock()
	killed := c.killed
	c.killed = nil
	c.mu.Unlock()
	if killed != nil {
		close(killed)
		return nil
	}
	return c.Listener.Close()
}

// conn is a connection that is forgotten when it is closed.
type conn struct {
	net.Conn
	by *Listener
}

// Close implements net.Conn.
func (r *conn) Close() error {
	r.by.mu.Lock()
	delete(r.by.conns, net.Conn(r))
	r.by.mu.Unlock()
	return r.Conn.Close()
}
