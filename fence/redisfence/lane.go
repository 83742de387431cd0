package redisfence

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// request is one command on its way to a node. It is the redis.Cmder that travels, and holds its own reply.
type request struct {
	redis.Cmder
	size     int // bytes, near enough
	replicas int // as in fence.Commit

	// Set by the lane's send function.
	err             error // why there is no reply, or the reply's error
	confirmed, want int
	detail          string // why too few replicas can confirm it

	// Used by the lane, under its lock.
	done     chan struct{} // closed when the above are set
	deadline time.Time     // of the caller; zero for none
	self     [1]*request
}

// alone is a set of this request, without an allocation.
func (r *request) alone() []*request {
	r.self[0] = r
	return r.self[:]
}

// NoRetry keeps the client library from sending the command a second time by itself. What a request is
// answered is then the answer to the only time it was sent.
func (r *request) NoRetry() bool { return true }

// lane sends requests to one node, one set at a time: while a set is under way, the next one gathers. A
// request that finds the lane free goes at once, on its caller's goroutine. Otherwise a goroutine sends the
// sets, and ends when no request waits.
type lane struct {
	send         func(ctx context.Context, set []*request)
	calls, bytes int // bounds of a set

	mu      sync.Mutex
	busy    bool
	waiting []*request // oldest first
}

// do has a request sent. It returns nil when the request's reply or error is set; a *notSentError when
// ctx ended before it was sent; the context's cause when ctx ended with the request under way.
//
// A caller that leaves does not affect the others. One that is alone on the lane waits on the connection
// itself, and returns at its context's deadline, not at an earlier cancellation.
func (l *lane) do(ctx context.Context, r *request) error {
	l.mu.Lock()
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		defer l.release()
		l.send(ctx, r.alone())
		return nil
	}
	r.done = make(chan struct{})
	r.deadline, _ = ctx.Deadline()
	l.waiting = append(l.waiting, r)
	l.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return l.leave(ctx, r)
	}
}

// leave takes a request out of the lane if it is still there: then it was not sent. If it is under way, its outcome is
// its reply's, which its caller does not wait for.
func (l *lane) leave(ctx context.Context, r *request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, r); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return &notSentError{context.Cause(ctx)}
	}
	select {
	case <-r.done:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// release ends the turn of a request that went alone, and starts sending those that gathered meanwhile.
func (l *lane) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.busy = false
		return
	}
	go l.drain()
}

// drain sends sets until no request waits.
func (l *lane) drain() {
	for {
		set := l.take()
		if len(set) == 0 {
			return
		}
		ctx, cancel := batchContext(set)
		l.send(ctx, set)
		cancel()
		for _, r := range set {
			close(r.done)
		}
	}
}

// take removes the next set: at least one request, and as many as the bounds allow. If none waits it frees the
// lane.
func (l *lane) take() (set []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(l.waiting), l.calls) && (n == 0 || bytes+l.waiting[n].size <= l.bytes) {
		bytes += l.waiting[n].size
		n++
	}
	set = slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.busy = n > 0
	return set
}

// batchContext expires at the latest deadline of the set's callers, or not at all if one of them has none.
func batchContext(set []*request) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, r := range set {
		if r.deadline.IsZero() {
			return context.WithCancel(context.Background())
		}
		if r.deadline.After(last) {
			last = r.deadline
		}
	}
	return context.WithDeadline(context.Background(), last)
}
