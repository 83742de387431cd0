package simulation

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

var (
	errNoAnswer = errors.New("no answer")
	errKilled   = errors.New("the process was killed")
	errDown     = errors.New("connection refused")
)

// maxDelay is how late a delayed request arrives at most.
const maxDelay = 8 * time.Second

// readTimeout is how long a client library waits for an answer by default.
const readTimeout = time.Second

// network carries requests. While it is bad, some are lost, some arrive late, and some answers are lost.
type network struct{ bad atomic.Bool }

// sleep waits until d has passed, or ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if wait.For(ctx, d) {
		return nil
	}
	return context.Cause(ctx)
}

// host is the machine of one client process, which can be paused and killed.
type host struct {
	net *network

	name string
	seed uint64

	mu      sync.Mutex
	rngs    map[string]*rand.Rand // by operation, so that two at once do not change each other's luck
	resumed chan struct{}         // closed while the host runs
	killed  bool
	route   int  // node it takes for the master
	parted  bool // it reaches no other
	slow    bool // half of its commits come late
	cut     bool // nothing that it asks arrives
}

func newHost(net *network, name string, seed uint64) *host {
	h := &host{net: net, name: name, seed: seed, rngs: map[string]*rand.Rand{}, resumed: make(chan struct{})}
	close(h.resumed)
	return h
}

func (h *host) pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.resumed:
		h.resumed = make(chan struct{})
	default:
	}
}

func (h *host) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.resumed:
	default:
		close(h.resumed)
	}
}

func (h *host) kill() {
	h.mu.Lock()
	h.killed = true
	h.mu.Unlock()
	h.resume()
}

// part keeps the host with the node that it takes for the master, or lets it find another.
func (h *host) part(parted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parted = parted
}

// slowDown makes commits come late, or in time.
func (h *host) slowDown(slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow = slow
}

// cutOff lets nothing that the host asks arrive, or everything again.
func (h *host) cutOff(cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = cut
}

func (h *host) isCutOff() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cut
}

func (h *host) isSlow() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slow
}

func (h *host) isParted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parted
}

// awake waits while the host is paused. It is an error once the host was killed.
func (h *host) awake() error {
	h.mu.Lock()
	resumed := h.resumed
	h.mu.Unlock()
	<-resumed
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.killed {
		return errKilled
	}
	return nil
}

// intN draws a number below n for an operation.
func (h *host) intN(op string, n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	rng := h.rngs[op]
	if rng == nil {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(h.name + " " + op)) // never fails
		rng = rand.New(rand.NewPCG(h.seed, sum.Sum64()))
		h.rngs[op] = rng
	}
	return rng.IntN(n)
}

// travel is the time of one way: 50 µs to 3 ms.
func (h *host) travel(ctx context.Context, op string) error {
	return sleep(ctx, 50*time.Microsecond+time.Duration(h.intN(op, int(3*time.Millisecond))))
}

// fate is what happens to one request.
type fate int

const (
	arrives fate = iota
	isLost
	isLate
	answerIsLost
)

func (h *host) fate(op string) fate {
	if h.isCutOff() {
		return isLost
	}
	if !h.net.bad.Load() {
		return arrives
	}
	if op == forwarding && h.isParted() {
		return answerIsLost // a partition that only requests get through
	}
	if op == "commit" && h.isSlow() && h.intN(op, 2) == 0 {
		return isLate
	}
	switch h.intN(op, 60) {
	case 0:
		return isLost
	case 1, 2:
		return isLate
	case 3, 4:
		return answerIsLost
	}
	return arrives
}

// ask sends a request and waits for its answer. deliver runs it at its destination: true if it was answered,
// false if nothing comes back. It may be called after ask has returned.
func (h *host) ask(ctx context.Context, op string, tile fence.TileID, deliver func() (bool, error)) error {
	failed := func(outcome, why error) error {
		return &fence.StoreError{Op: op, Tile: tile, Outcome: outcome, Err: why}
	}
	if err := h.awake(); err != nil {
		return failed(fence.ErrNotApplied, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return failed(fence.ErrNotApplied, context.Cause(ctx))
	}
	unheard := func(outcome error) error { return failed(outcome, errNoAnswer) }
	fate := h.fate(op)
	if fate == isLate {
		late := time.Duration(h.intN(op, int(maxDelay)))
		go func() { // the bubble ends when it has
			_ = sleep(context.Background(), late)
			_, _ = deliver() // no caller waits for the answer
		}()
	}
	if fate == isLost || fate == isLate {
		<-ctx.Done()
		return unheard(fence.ErrUnknownOutcome)
	}
	if h.travel(ctx, op) != nil {
		return unheard(fence.ErrNotApplied)
	}
	answered, err := deliver()
	if err != nil {
		return failed(fence.ErrNotApplied, err)
	}
	if !answered || fate == answerIsLost || h.travel(ctx, op) != nil {
		<-ctx.Done()
		_ = h.awake() // a paused process learns of the timeout when it continues
		return unheard(fence.ErrUnknownOutcome)
	}
	if err := h.awake(); err != nil {
		return failed(fence.ErrUnknownOutcome, err)
	}
	return nil
}
