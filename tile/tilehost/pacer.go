package tilehost

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// pacer lets the promotions of one process through: so many under way, so many a second, the hottest tile
// first. It keeps the death of a host with thousands of tiles from becoming a storm on the authority and
// the store, which serve all other tiles meanwhile.
//
// Heat counts in powers of two; tiles of one class go in random order. Two processes that follow the same
// tiles therefore walk through them in different orders and seldom want the same one at the same time.
// Where they do, the authority decides.
type pacer struct {
	limit  int
	every  time.Duration // between two promotions, on average
	jitter time.Duration

	mu       sync.Mutex
	waiting  []*promotion // in the order of compare
	underWay int
	due      time.Time   // when the next promotion may begin
	timer    *time.Timer // set while the queue waits for due
}

// pacerSlack is how much time without promotions is made up for at once. It hides the coarseness of timers,
// which would otherwise lower the rate.
const pacerSlack = 10 * time.Millisecond

// promotion is a request that waits in a pacer.
type promotion struct {
	class    int    // of heat; urgentClass goes before all others
	order    uint64 // random, within the class
	admitted chan struct{}
}

// compare sorts the hottest first.
func compare(a, b *promotion) int {
	return cmp.Or(cmp.Compare(b.class, a.class), cmp.Compare(a.order, b.order))
}

// urgentClass is for what a caller waits for, such as a hand-over: neither rate nor jitter delays it.
const urgentClass = math.MaxInt

// newPacer wants a positive limit and rate a second.
func newPacer(limit, rate int, jitter time.Duration) *pacer {
	return &pacer{limit: limit, every: time.Second / time.Duration(rate), jitter: jitter}
}

// heatClass ranks heat (events a tick) in powers of two: what differs by less is equally urgent.
func heatClass(heat float64) int {
	const finest = 256 // heat below 1/256 is none
	if !(heat > 0) {   // also not a number
		return 0
	}
	return bits.Len64(uint64(min(heat, math.MaxInt32) * finest))
}

// enter waits for the turn of a tile's promotion. The caller promotes and calls leave, once or more often.
// The error is ctx's cause; then there is nothing to leave.
func (p *pacer) enter(ctx context.Context, class int) (leave func(), err error) {
	w := &promotion{class: class, order: rand.Uint64(), admitted: make(chan struct{})}
	p.mu.Lock()
	if len(p.waiting) == 0 && p.jitter > 0 {
		// The first of a burst waits, so that the others can be ranked with it, and a random while, so
		// that two processes that noticed the same death do not ask in step.
		p.due = later(p.due, time.Now().Add(p.jitter/2+rand.N(p.jitter/2+1)))
	}
	at, _ := slices.BinarySearchFunc(p.waiting, w, compare)
	p.waiting = slices.Insert(p.waiting, at, w)
	p.admit()
	p.mu.Unlock()
	select {
	case <-w.admitted:
		return sync.OnceFunc(p.leave), nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	if at := slices.Index(p.waiting, w); at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
		p.mu.Unlock()
		return nil, context.Cause(ctx)
	}
	p.mu.Unlock()
	p.leave() // admitted at the same moment
	return nil, context.Cause(ctx)
}

func (p *pacer) leave() {
	p.mu.Lock()
	p.underWay--
	p.admit()
	p.mu.Unlock()
}

// admit lets through the promotions that may begin now, and arranges to be called again when the next one may.
// p.mu is held.
func (p *pacer) admit() {
	for len(p.waiting) > 0 && p.underWay < p.limit {
		if p.waiting[0].class != urgentClass {
			now := time.Now()
			if wait := p.due.Sub(now); wait > 0 {
				p.wake(wait)
				return
			}
			p.due = later(p.due, now.Add(-pacerSlack)).Add(p.every)
		}
		w := p.waiting[0]
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.underWay++
		close(w.admitted)
	}
}

// wake calls admit after a wait, unless that has been arranged. p.mu is held.
func (p *pacer) wake(wait time.Duration) {
	if p.timer != nil {
		return
	}
	p.timer = time.AfterFunc(wait, func() {
		p.mu.Lock()
		p.timer = nil
		p.admit()
		p.mu.Unlock()
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
