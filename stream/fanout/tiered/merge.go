package tiered

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// side is one of the two tiers, of a subscription.
type side int

const (
	sideOrdinary side = 0
	sideBroker   side = 1
)

// carriesFor is how long after its last frame on the broker a tile counts as carried there. It exceeds a slow tile's
// tick.
const carriesFor = 30 * time.Second

// remembered is how many positions are kept to recognise frames that came on both tiers. Relays ignore the others.
const remembered = 32

// The frames that wait are at most maxHeld, and their bytes at most maxHeldBytes, which is two of the largest. Beyond
// either the gap is left to the relay.
const (
	maxHeld      = 256
	maxHeldBytes = 2 * fence.MaxFrame
)

// merge makes one sequence of what two tiers bring of one tile.
type merge struct {
	count   *subCounters
	deliver func(data []byte)

	heardBroker atomic.Int64 // when, since begun; zero: never. Apart from mu, which a slow deliver holds

	mu      sync.Mutex
	stopped bool
	last    fence.Position // the highest position delivered; zero: none
	recent  [remembered]fence.Chain
	oldest  int               // in recent
	heard   [2]fence.Position // the highest that each side has brought
	waiting []heldFrame       // by position
	bytes   int               // of the frames in waiting
	timer   *time.Timer
}

type heldFrame struct {
	entry fence.Entry
	since time.Time
}

// before reports whether p comes before q in a tile's history.
func before(p, q fence.Position) bool {
	return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Seq < q.Seq
}

// receive takes a message from a tier.
func (m *merge) receive(from side, data []byte) {
	e, err := fence.DecodeEntry(data)
	now := time.Now()
	if from == sideBroker {
		m.heardBroker.Store(int64(now.Sub(begun)))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	if err != nil {
		m.deliver(data) // not ours to judge
		return
	}
	// The first frame of a subscription waits too: what came before may be under way on the other tier.
	alone := m.heardBroker.Load() == 0 && !m.last.IsZero() && len(m.waiting) == 0
	if before(m.heard[from], e.Position) {
		m.heard[from] = e.Position
	}
	switch {
	case slices.Contains(m.recent[:], e.Chain) && !alone:
		m.count.duplicates.Add(1)
	case alone, e.Prev == m.last, !before(m.last, e.Position):
		m.pass(&e)
	case slices.ContainsFunc(m.waiting, func(h heldFrame) bool { return h.entry.Position == e.Position }):
		m.count.duplicates.Add(1)
	default:
		m.count.held.Add(1)
		m.wait(heldFrame{e, now})
	}
	m.release(now)
}

// pass delivers a frame.
func (m *merge) pass(e *fence.Entry) {
	m.recent[m.oldest] = e.Chain
	m.oldest = (m.oldest + 1) % remembered
	if !before(e.Position, m.last) {
		m.last = e.Position
	}
	m.deliver(e.Frame)
}

// wait keeps a frame that came before its predecessor.
func (m *merge) wait(h heldFrame) {
	i, _ := slices.BinarySearchFunc(m.waiting, h, func(a, b heldFrame) int {
		switch {
		case before(a.entry.Position, b.entry.Position):
			return -1
		case before(b.entry.Position, a.entry.Position):
			return 1
		}
		return 0
	})
	m.waiting = slices.Insert(m.waiting, i, h)
	m.bytes += len(h.entry.Frame)
}

// release delivers the frames that wait no longer: because they follow by now, because neither tier will bring what is
// missing, since each is in order and has gone past it, or because they have waited long enough.
func (m *merge) release(now time.Time) {
	for len(m.waiting) > 0 {
		h := &m.waiting[0]
		p := h.entry.Position
		passed := !before(m.heard[sideOrdinary], p) && !before(m.heard[sideBroker], p)
		overdue := now.Sub(h.since) >= hold || len(m.waiting) > maxHeld || m.bytes > maxHeldBytes
		if h.entry.Prev != m.last && !passed && !overdue {
			m.wakeAt(h.since.Add(hold).Sub(now))
			return
		}
		if h.entry.Prev != m.last && !m.last.IsZero() {
			m.count.missed.Add(1)
		}
		m.pass(&h.entry)
		m.bytes -= len(h.entry.Frame)
		m.waiting = slices.Delete(m.waiting, 0, 1)
	}
	m.waiting = nil
}

// wakeAt looks again after d.
func (m *merge) wakeAt(d time.Duration) {
	if m.timer == nil {
		m.timer = time.AfterFunc(d, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !m.stopped {
				m.release(time.Now())
			}
		})
		return
	}
	m.timer.Reset(d)
}

// stop ends deliveries; it waits for a running one.
func (m *merge) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped, m.waiting, m.bytes = true, nil, 0
	if m.timer != nil {
		m.timer.Stop()
	}
}

// begun is a moment on the monotonic clock. By the wall clock, one that is stepped back would carry a tile for long.
var begun = time.Now()

// hears reports whether the broker carries the tile, as far as this subscription knows.
func (m *merge) hears(now time.Time) bool {
	heard := m.heardBroker.Load()
	return heard != 0 && now.Sub(begun)-time.Duration(heard) < carriesFor
}
