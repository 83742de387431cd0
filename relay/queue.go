package relay

import (
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
)

// queue is what waits to be written to one client: frames in order, then the Syncs that are due, then the end. Its
// bounds hold for frames that push adds; the callers of force bound what they add.
type queue struct {
	maxFrames int
	maxBytes  int
	own       *syncBudget // the client's
	share     *syncBudget // its actor's, or its address's; nil: it has none
	all       *syncBudget // the relay's
	backlog   *backlog    // the relay's; nil: not counted
	turn      socket.Turn // to be written, once start was called
	pool      *socket.WritePool
	coalesce  time.Duration // how long a client of several tiles waits for more before it is written to
	writers   sync.WaitGroup

	mu        sync.Mutex
	writing   bool // a goroutine writes, or is about to
	tiles     int  // that the client watches
	frames    [][]byte
	bytes     int
	waiting   int // bytes of frames among them, which the backlog counts
	taken     int // likewise, of those being written
	dues      []due
	slowSince time.Time // since when it has not been caught up after a frame was dropped

	keeping
	ending
}

// ending is how a connection ends.
type ending struct {
	closing bool // nothing is taken any more; close when the frames are out
	over    bool // the connection has ended
	shutAt  time.Time
	flush   bool // the frames that were queued are sent first
	code    int  // status of our close; zero: the peer or the network ended it
	reason  string
}

func (q *queue) init(maxFrames, maxBytes int) {
	q.maxFrames, q.maxBytes = maxFrames, maxBytes
	q.pinged = time.Now()
}

// push queues a frame; false if the queue is full. A single frame over the bound fits an empty queue.
func (q *queue) push(frame []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing || q.over {
		return true
	}
	if len(q.frames) > 0 && (len(q.frames) >= q.maxFrames || q.bytes+len(frame) > q.maxBytes) ||
		(len(q.frames) > 0 || q.taken > 0) && q.backlog.full(q.bytes+len(frame)) {
		if q.slowSince.IsZero() {
			q.slowSince = time.Now()
		}
		return false
	}
	q.waiting += len(frame)
	q.backlog.count(len(frame))
	q.spoke = true
	q.add(frame)
	return true
}

// forcedTimes bounds what force adds, in maxFrames.
const forcedTimes = 4

// force queues a frame whatever the bounds say. What callers add is bounded by itself: a ping at a time, a Sync or a
// reason to wait for each tile, an announcement. A client for which they add up all the same is cut off.
func (q *queue) force(frame []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closing || q.over:
	case len(q.frames) >= forcedTimes*q.maxFrames:
		q.end(relaypb.CloseTooSlow, "too many messages unread", false)
	default:
		q.spoke = true
		q.add(frame)
	}
}

// fewFrames is for how many frames a client keeps room while nothing waits: what a tick brings to most.
const fewFrames = 4

func (q *queue) add(frame []byte) {
	if q.frames == nil {
		q.frames = make([][]byte, 0, fewFrames)
	}
	q.frames = append(q.frames, frame)
	q.bytes += len(frame)
	if len(q.frames) == 1 {
		q.call()
	}
}

// call has the queue written, unless a goroutine writes already. The mutex is held.
func (q *queue) call() {
	if q.writing || q.turn.Write == nil {
		return
	}
	q.writing = true
	q.writers.Add(1)
	if q.tiles > 1 && q.coalesce > 0 {
		time.AfterFunc(q.coalesce, func() { q.pool.Add(&q.turn) })
		return
	}
	q.pool.Add(&q.turn)
}

// start lets the queue be written, by write as a socket.Turn has it. The caller does it the first time, by calling
// first.
func (q *queue) start(write func() (rest func())) (first func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turn.Write = func() func() {
		rest := write()
		if rest == nil {
			q.writers.Done()
			return nil
		}
		return func() {
			defer q.writers.Done()
			rest()
		}
	}
	q.writing = true
	q.writers.Add(1)
	return func() {
		if rest := q.turn.Write(); rest != nil {
			rest()
		}
	}
}

// watches notes how many tiles the client watches.
func (q *queue) watches(tiles int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tiles = tiles
}

// owe asks for a Sync once everything queued is out.
func (q *queue) owe(d due) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closing && !q.over && !slices.Contains(q.dues, d) {
		q.dues = append(q.dues, d)
		q.call()
	}
}

// forgive takes back what owe asked for.
func (q *queue) forgive(d due) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dues = slices.DeleteFunc(q.dues, func(o due) bool { return o == d })
}

// syncWait is how long the client's next Sync has to wait, for its own budget, its share's or the relay's.
func (q *queue) syncWait() time.Duration {
	now := time.Now()
	if wait := max(q.own.wait(now), q.share.wait(now)); wait > 0 {
		return wait
	}
	return q.all.waitOf(max(q.own.spent(now), q.share.spent(now)), now)
}

// spendSync counts a Sync that was queued.
func (q *queue) spendSync(bytes int) {
	q.own.spend(bytes)
	q.share.spend(bytes)
	q.all.spend(bytes)
}

// overdue reports whether a close has waited too long for what is being written.
func (q *queue) overdue(now time.Time, cut, flushed time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flush {
		cut = flushed
	}
	return q.closing && now.Sub(q.shutAt) > cut
}

// What next returns.
type nextThing uint8

const (
	nextWait   nextThing = 1 // for call: the writer is done
	nextFrames nextThing = 2
	nextSync   nextThing = 3
	nextClose  nextThing = 4
)

// atOnce is next for a writer that must not wait. It does nothing if a Sync or the end is next.
func (q *queue) atOnce(spare [][]byte) (frames [][]byte, what nextThing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) == 0 && (q.closing || len(q.dues) > 0) {
		return nil, nextSync // or nextClose
	}
	frames, _, what = q.take(spare)
	return frames, what
}

// next is the writer's next work. spare is an emptied slice of frames to fill again.
func (q *queue) next(spare [][]byte) ([][]byte, due, nextThing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(spare)
}

func (q *queue) take(spare [][]byte) ([][]byte, due, nextThing) {
	switch {
	case len(q.frames) > 0:
		frames := q.frames
		q.frames, q.bytes = spare[:0], 0
		q.taken, q.waiting = q.waiting, 0
		q.busy = true
		return frames, nil, nextFrames
	case q.closing:
		return nil, nil, nextClose
	case len(q.dues) > 0:
		d := q.dues[0]
		q.dues[0] = nil
		q.dues = q.dues[1:]
		return nil, d, nextSync
	}
	q.dues, q.writing = nil, false
	q.slowSince = time.Time{}
	q.frames = nil
	if cap(spare) <= fewFrames {
		q.frames = spare[:0]
	}
	return nil, nil, nextWait
}

// written counts the frames out that were taken last.
func (q *queue) written() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backlog.count(-q.taken)
	q.taken, q.busy = 0, false
}

// drop forgets what is queued. The mutex is held.
func (q *queue) drop() {
	q.backlog.count(-q.waiting)
	q.frames, q.bytes, q.waiting = nil, 0, 0
}

// shut ends the connection with a status. With flush everything queued is written first; without, only
// the frame being written. It reports whether it was the first to end it.
func (q *queue) shut(code int, reason string, flush bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing || q.over {
		return false
	}
	q.end(code, reason, flush)
	return true
}

// end is shut with the mutex held, of a queue that is open.
func (q *queue) end(code int, reason string, flush bool) {
	q.closing, q.code, q.reason = true, code, reason
	q.shutAt, q.flush = time.Now(), flush
	if !flush {
		q.drop()
	}
	q.dues = nil
	q.call()
}

// gone notes that the connection has ended. The first reason given stays.
func (q *queue) gone(reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return
	}
	q.over = true
	if !q.closing {
		q.reason = reason
	}
	q.drop()
	q.dues = nil
}

// closes reports whether the relay ends the connection.
func (q *queue) closes() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}

func (q *queue) cause() (code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.code, q.reason
}

// slowFor is how long frames have been dropped without the client ever catching up.
func (q *queue) slowFor(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.slowSince.IsZero() {
		return 0
	}
	return now.Sub(q.slowSince)
}
