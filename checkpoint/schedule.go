package checkpoint

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tilefence/tilefence/internal/schedule"
	"github.com/tilefence/tilefence/internal/wait"
)

// lane is a queue of tiles ordered by when they are due. It is guarded by Checkpointer.mu.
type lane struct {
	queue schedule.Schedule[*tileState]
	wake  chan struct{} // has a token when the head of the queue may have changed
}

func newLane() *lane { return &lane{wake: make(chan struct{}, 1)} }

// put queues a tile, and takes it out of any other lane.
func (l *lane) put(t *tileState, due time.Time) {
	t.due.Set(&l.queue, due)
	if first, _ := l.queue.First(); !first.Before(due) {
		wait.Wake(l.wake)
	}
}

// pace is how a lane is worked off.
type pace struct {
	slots  int           // how many are at work at once
	tiles  int           // at most, that one of them takes
	gather time.Duration // how long before its time a tile may be taken along with one that is due
}

// looks is the pace of looking at waiting tiles: many at once, because a look is one round trip a node however
// many tiles it is about.
var looks = pace{slots: 4, tiles: 256, gather: 50 * time.Millisecond}

// attempts is the pace of attempts at single tiles, each of which may hold a snapshot.
func attempts(concurrency int) pace { return pace{slots: concurrency, tiles: 1} }

// serve calls work with a lane's tiles as they become due, until ctx is done; then it waits for those under
// way.
func (c *Checkpointer) serve(ctx context.Context, l *lane, p pace, work func([]*tileState)) {
	var working sync.WaitGroup
	defer working.Wait()
	slots := make(chan struct{}, p.slots)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		tiles := c.next(ctx, l, p)
		if len(tiles) == 0 {
			return
		}
		working.Go(func() {
			work(tiles)
			<-slots
		})
	}
}

// next takes the lane's next tiles that are due, waiting for the first; none when ctx is done.
func (c *Checkpointer) next(ctx context.Context, l *lane, p pace) []*tileState {
	for ctx.Err() == nil {
		var due <-chan time.Time
		c.mu.Lock()
		if first, some := l.queue.First(); some {
			wait := time.Until(first)
			if wait <= 0 {
				tiles := l.queue.Take(time.Now().Add(p.gather), p.tiles)
				c.mu.Unlock()
				return tiles
			}
			due = time.After(wait)
		}
		c.mu.Unlock()
		select {
		case <-due:
		case <-l.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// take takes the busy tokens of tiles, and says which tiles are busy elsewhere.
func take(tiles []*tileState) (held, busy []*tileState) {
	for _, t := range tiles {
		select {
		case t.busy <- struct{}{}:
			held = append(held, t)
		default:
			busy = append(busy, t)
		}
	}
	return held, busy
}

// look looks at tiles taken out of the waiting lane, and queues those for an attempt that need one.
func (c *Checkpointer) look(ctx context.Context, tiles []*tileState) {
	held, busy := take(tiles)
	for _, t := range busy {
		// CheckpointNow is at it, and may change the lane when it is done.
		c.schedule(t, c.waiting, c.cadence(t))
	}
	changed, unread, _ := c.survey(ctx, held)
	for _, t := range changed {
		<-t.busy
		c.schedule(t, c.changed, 0)
	}
	for _, t := range unread { // their node may hang, and the slots of the changed ones are few
		<-t.busy
		c.schedule(t, c.failing, 0)
	}
}

// visit makes one attempt at a tile taken out of its lane.
func (c *Checkpointer) visit(ctx context.Context, t *tileState) {
	select {
	case t.busy <- struct{}{}:
		_ = c.attempt(ctx, t) // reported to the hooks, and scheduled again
	default:
		c.schedule(t, c.waiting, c.cadence(t)) // as in look
	}
}

// finish makes the last attempt at a tile and reports whether its checkpoint is up to date.
func (c *Checkpointer) finish(ctx context.Context, t *tileState) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case t.busy <- struct{}{}:
		return upToDate(c.attempt(ctx, t))
	case <-ctx.Done():
		return false
	}
}

// schedule puts a tile into a lane, due after delay, wherever it was.
func (c *Checkpointer) schedule(t *tileState, l *lane, delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.removed {
		return
	}
	l.put(t, time.Now().Add(delay))
}

// spread is when a new tile's first attempt is due: anywhere in a cadence.
func (c *Checkpointer) spread(t *tileState) time.Duration { return rand.N(c.cfg.Cadence) }

// cadence is the tile's, give or take a tenth, so that tiles which met once drift apart.
func (c *Checkpointer) cadence(t *tileState) time.Duration {
	d := c.cfg.Cadence
	tenth := d / 10
	return d - tenth + rand.N(2*tenth+1)
}

// backoff is the wait after the given number of failures in a row.
func (c *Checkpointer) backoff(failures int) time.Duration {
	return wait.Backoff(c.cfg.tuning.RetryMin, c.cfg.RetryMax, failures)
}
