package tile

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/internal/durable"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// writeBehind appends what an owner has committed to the journal, in order and beside the loop. What the journal has
// is a part of the tile's history that nothing can undo; what it has not yet is as durable as that of a Checkpointed
// tile. A journal that does not answer delays no tick: what waits for it is bounded, and where more was committed, the
// owner's state follows as a new base.
type writeBehind struct {
	*base
	reached func(fence.Position) // called when the journal has all up to a position

	mu      sync.Mutex // guards what follows
	ctx     context.Context
	stop    context.CancelFunc // ends ctx; nil: there is no owner
	queue   []fence.Commit     // committed, and not known to be in the journal; oldest first
	bytes   int                // of the queue
	end     fence.Position     // of the journal, as far as it has answered
	gap     bool               // batches after the queue were dropped: a base has to follow
	wants   bool               // the journal answers, and needs a base
	snap    *fence.Snapshot    // the base to be laid before the queue; nil: none
	refused *fence.RefusedError
	running bool
}

// begin begins with an owner's history, whose end is the journal's base.
func (w *writeBehind) begin(at fence.Position) {
	if !w.writesBehind() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.queue, w.bytes, w.end, w.running = nil, 0, at, false
	w.gap, w.wants, w.snap, w.refused = false, false, nil, nil
}

// finish ends it with the owner.
func (w *writeBehind) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// add appends a batch that was committed.
func (w *writeBehind) add(c *fence.Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := len(c.Payload) + len(c.Private)
	switch {
	case w.gap || w.wants: // the base that is to come has it
		return
	case w.bytes+size > w.cfg.KeepBytes && len(w.queue) > 0:
		w.cfg.Logger.Error("the journal does not answer, and more was committed than can wait for it: the tile's "+
			"state follows when it answers", "after", w.queue[0].Prev, "batches", len(w.queue), "bytes", w.bytes)
		w.queue, w.gap = w.queue[:1:1], true // the journal is asked with that one
		w.bytes = len(w.queue[0].Payload) + len(w.queue[0].Private)
		return
	}
	w.queue = append(w.queue, *c)
	w.bytes += size
	w.tell()
	w.run()
}

// tell says how many batches wait. w.mu is held.
func (w *writeBehind) tell() {
	n := len(w.queue)
	w.inbox.update(func(s *Status) { s.Unjournaled = n })
}

// run begins to append what waits, unless that goes on. w.mu is held.
func (w *writeBehind) run() {
	if w.running || w.stop == nil || w.refused != nil || len(w.queue) == 0 && w.snap == nil {
		return
	}
	w.running = true
	ctx := w.ctx
	w.beside.Go(func() {
		for attempt := 0; w.step(ctx, &attempt); {
			if attempt > 0 && retry.Sleep(ctx, retry.Backoff(attempt)) != nil {
				return
			}
		}
	})
}

// step lays the base or appends the first batch, once. false: there is nothing more to do.
func (w *writeBehind) step(ctx context.Context, attempt *int) bool {
	w.mu.Lock()
	snap, more := w.snap, w.snap != nil || len(w.queue) > 0
	var c fence.Commit
	if more && snap == nil {
		c = w.queue[0]
	}
	if ctx.Err() != nil || !more {
		w.running = w.running && w.ctx != ctx
		w.mu.Unlock()
		return false
	}
	w.mu.Unlock()
	var err error
	if snap != nil {
		err = newDurable(w.tile, &w.seams, w.cfg).Begin(ctx, *snap)
	} else {
		err = w.journal(ctx, &c, fence.Receipt{Position: c.Next()})
	}
	*attempt++
	if err == nil {
		*attempt = 0
	}
	return w.took(ctx, snap, err)
}

// took notes the journal's answer to the base or the first batch; snap is nil if it was the batch.
func (w *writeBehind) took(ctx context.Context, snap *fence.Snapshot, err error) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx != ctx || ctx.Err() != nil {
		return false
	}
	again, unknown := errors.AsType[*journalError](err)
	refused, taken := errors.AsType[*fence.RefusedError](err)
	if errors.Is(err, durable.ErrLater) {
		refused, taken = refusedByJournal(err, w.tile, snap.Epoch, snap.Position), true
	}
	switch {
	case err == nil && snap != nil:
		w.snap, w.end = nil, snap.Position
		w.reached(w.end)
	case err == nil:
		c := &w.queue[0]
		w.bytes -= len(c.Payload) + len(c.Private)
		w.end, w.queue = c.Next(), w.queue[1:]
		w.reached(w.end)
		w.tell()
		w.wants = w.gap && len(w.queue) == 0
	case unknown && again.restored:
		w.cfg.Logger.Error("durable store was restored to an older state; the tile's state follows", "error", err)
		w.queue, w.bytes, w.wants = nil, 0, true
	case taken && !unknown:
		w.refused, w.running = refused, false
		return false
	default:
		w.reminder.Warn("the journal does not answer; what is committed waits for it", "after", w.end,
			"batches", len(w.queue), "error", err)
		return true
	}
	return true
}

// needs is what the loop has to do: deal with a refusal, or lay a base.
func (w *writeBehind) needs() (refused *fence.RefusedError, lay bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused, w.wants
}

// lay makes a snapshot of the state the journal's base.
func (w *writeBehind) lay(s fence.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snap, w.gap, w.wants = &s, false, false
	w.run()
}

// has reports whether a journal that ends at a position has nothing that this owner does not know.
func (w *writeBehind) has(end fence.Position) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end == w.end {
		return true
	}
	for i := range w.queue {
		if w.queue[i].Next() == end {
			return true
		}
	}
	return false
}

// waiting is how many batches wait for the journal; with a base to come, at least that many.
func (w *writeBehind) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.queue); n > 0 || w.snap == nil && !w.wants {
		return n
	}
	return 1
}

// flush waits until the journal has all, or ctx ends.
func (w *writeBehind) flush(ctx context.Context) {
	for w.waiting() > 0 {
		if refused, lay := w.needs(); refused != nil || lay {
			return // the loop no longer deals with it
		}
		if retry.Sleep(ctx, flushEvery) != nil {
			w.cfg.Logger.Warn("tile stopped before the journal had its last batches", "batches", w.waiting())
			return
		}
	}
}

const flushEvery = 10 * time.Millisecond

// attendJournal deals with what the journal has answered beside the loop. While another owner may have sealed it, the
// tile is frozen.
func (o *tileOwner) attendJournal(ctx context.Context) (frozen bool, err error) {
	if !o.writesBehind() {
		return false, nil
	}
	refused, lay := o.behind.needs()
	switch {
	case refused != nil:
		if o.pending == nil {
			o.pending = &pendingBatch{formed: time.Now(), commit: o.next()}
		}
		o.pending.attempted(0, 0, false)
		o.report(refused)
		err = o.recover(ctx, o.refusedBatch(refused, refused))
		refused, _ = o.behind.needs()
		return refused != nil, err
	case lay && o.pending == nil:
		blob, err := o.history.Blob()
		if err != nil {
			o.reminder.Error("the journal needs the tile's state, and the rules do not give it", "error", err)
			return false, nil
		}
		o.behind.lay(o.history.Snapshot(o.history.Position, o.contact, blob))
	}
	return false, nil
}
