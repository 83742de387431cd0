package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/internal/wait"
)

// call is one run of the planner for one request.
type call struct {
	request Request
	shard   int
	began   time.Time
	cancel  context.CancelCauseFunc
	hung    *time.Timer
	dropped bool // its lease is not renewed any more; the worker's lock guards it
	end     End
	err     error
	used    Usage
}

type progressKey struct{}

// Progress reports that a call of a Planner is getting on: ctx is the one that it was given. The call may then take
// another WorkerConfig.HangAfter. A client of a model calls it for each piece of a streamed answer.
func Progress(ctx context.Context) {
	if report, ok := ctx.Value(progressKey{}).(func()); ok {
		report()
	}
}

// start runs the planner beside the caller. w.mu is held.
func (w *Worker) start(life context.Context, shard int, r Request) {
	ctx, cancel := context.WithCancelCause(life)
	c := &call{request: r, shard: shard, began: time.Now(), cancel: cancel}
	c.hung = time.AfterFunc(w.cfg.HangAfter, func() { w.drop(c, ErrHangs) })
	ctx = context.WithValue(ctx, progressKey{}, func() { c.hung.Reset(w.cfg.HangAfter) })
	if old := w.running[r.ID]; old != nil {
		old.cancel(ErrClaimLost) // this worker was paused, and has the request again; the old call has its slot still
	}
	w.running[r.ID] = c
	w.stats.Claimed++
	w.calls++
	if r.Tier == Player {
		w.players++
	}
	go w.call(ctx, c)
}

// drop ends a call's context. If the planner goes on all the same, another worker has the request after the lease.
func (w *Worker) drop(c *call, why error) {
	w.mu.Lock()
	c.dropped = true
	w.mu.Unlock()
	c.cancel(why)
}

// forget frees the slot of a call that has ended. w.mu is held.
func (w *Worker) forget(c *call) {
	w.calls--
	if c.request.Tier == Player {
		w.players--
	}
	if w.running[c.request.ID] == c {
		delete(w.running, c.request.ID)
	}
}

// call runs the planner, and leaves its end to be stored.
func (w *Worker) call(ctx context.Context, c *call) {
	body, used, err := w.ask(ctx, c.request)
	c.hung.Stop()
	cause := context.Cause(ctx)
	c.cancel(nil)
	c.end = End{Held: Held{ID: c.request.ID, Attempt: c.request.Attempt}, Keep: AnswerTTL, Attempts: attempts}
	if err == nil {
		err = used.validate()
	}
	switch {
	case err == nil && len(body) > MaxBody:
		err = fmt.Errorf("the plan has %d bytes, and an intent carries %d", len(body), MaxBody)
	case err == nil:
		c.end.Kind, c.end.Body, c.end.Usage = Succeeded, body, used
	case errors.Is(err, ErrNoSubject):
		c.end.Kind = NoSubject
	case cause != nil:
		err = cause
	}
	if c.err, c.used = err, used; c.end.Kind == 0 {
		c.end.Kind, c.end.Error = Failed, cut(err.Error())
		if c.end.Pause = w.pauseAfter(c.request.Attempt); errors.Is(err, ErrDrained) {
			c.end.Pause, c.end.Attempts = time.Millisecond, c.request.Attempt+1 // not the request's fault
		}
	}
	w.ends[c.shard] <- c // there is room for every slot
}

// ask is the planner's answer; a panic is one failed attempt, not the end of the process.
func (w *Worker) ask(ctx context.Context, r Request) (body []byte, used Usage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the planner panicked: %v", p)
			w.cfg.Logger.Error("plan: the planner panicked", "request", r.ID, "tile", r.Tile, "entity", r.Entity,
				"error", err, "stack", string(debug.Stack()))
		}
	}()
	return w.planner.Plan(ctx, r)
}

func cut(s string) string {
	if len(s) > MaxError {
		return s[:MaxError]
	}
	return s
}

// finish stores the ends of the calls of one shard, all that are there in one step.
func (w *Worker) finish(ctx context.Context, shard int) {
	for {
		var set []*call
		select {
		case <-ctx.Done():
			return
		case c := <-w.ends[shard]:
			set = append(set, c)
		}
		for len(set) < MaxAsks/2 && len(w.ends[shard]) > 0 {
			set = append(set, <-w.ends[shard])
		}
		w.storeEnds(ctx, shard, set)
	}
}

// finishTimeout bounds one attempt to store ends.
const finishTimeout = 2 * time.Second

// storeEnds stores ends. It tries again until the store answers: a planner's call is worth it.
func (w *Worker) storeEnds(ctx context.Context, shard int, set []*call) {
	ends := make([]End, len(set))
	for i, c := range set {
		ends[i] = c.end
	}
	var held []bool
	var err error
	for limit := time.Now().Add(w.cfg.DrainTimeout); ; {
		bounded, cancel := context.WithTimeout(ctx, finishTimeout)
		held, err = w.store.Finish(bounded, shard, w.cfg.name, ends)
		cancel()
		if err == nil || ctx.Err() != nil || time.Now().After(limit) {
			break
		}
		w.storeFailed()
		w.cfg.Logger.Warn("plan: results not stored, trying again", "calls", len(set), "shard", shard, "error", err)
		wait.For(ctx, retryAfter)
	}
	for i, c := range set {
		w.ended(c, err == nil && held[i])
	}
	w.notify()
}

// ended frees the slot of a call, and says how it ended.
func (w *Worker) ended(c *call, held bool) {
	r := &c.request
	w.mu.Lock()
	w.forget(c)
	switch {
	case !held:
		w.stats.Lost++
	case c.end.Kind == Succeeded:
		w.stats.Succeeded++
	case c.end.Kind == NoSubject:
		w.stats.NoSubject++
	default:
		w.stats.Failed++
	}
	if errors.Is(c.err, ErrHangs) {
		w.stats.Hung++
	}
	w.mu.Unlock()
	log := w.cfg.Logger.With("request", r.ID, "tile", r.Tile, "entity", r.Entity, "attempt", r.Attempt)
	switch {
	case !held:
		log.Warn("plan: the result of a lost claim was refused", "took", time.Since(c.began))
	case c.end.Kind == Failed && r.Attempt >= attempts:
		log.Error("plan: the last attempt failed: the request is a dead letter", "error", c.err)
	case c.end.Kind == Failed:
		log.Warn("plan: an attempt failed", "next", c.end.Pause, "error", c.err)
	}
}

// renew keeps the claims of running calls, and cancels those whose claims are lost.
func (w *Worker) renew(ctx context.Context) {
	for {
		if wait.For(ctx, w.cfg.Lease/4); ctx.Err() != nil {
			return
		}
		var shards sync.WaitGroup // one that hangs must not cost the claims of the others
		for shard, held := range w.claims() {
			shards.Go(func() {
				for set := range slices.Chunk(held, MaxAsks) {
					w.renewSet(ctx, shard, set)
				}
			})
		}
		shards.Wait()
	}
}

func (w *Worker) renewSet(ctx context.Context, shard int, set []Held) {
	bounded, cancel := context.WithTimeout(ctx, w.cfg.Lease/4)
	defer cancel()
	lost, err := w.store.Renew(bounded, shard, w.cfg.name, w.cfg.Lease, set)
	if err != nil && ctx.Err() == nil {
		w.storeFailed()
		w.cfg.Logger.Warn("plan: leases not renewed", "calls", len(set), "shard", shard, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range lost {
		if c := w.running[id]; c != nil && slices.Contains(set, Held{ID: id, Attempt: c.request.Attempt}) {
			c.dropped = true
			c.cancel(ErrClaimLost)
		}
	}
}

// claims are those of running calls, by shard.
func (w *Worker) claims() map[int][]Held {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := map[int][]Held{}
	for c := range maps.Values(w.running) {
		if !c.dropped {
			by[c.shard] = append(by[c.shard], Held{ID: c.request.ID, Attempt: c.request.Attempt})
		}
	}
	return by
}
