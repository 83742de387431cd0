package pgfence

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// stall is how long a lane waits for the server before another lane replaces it, so that a connection without
// answers delays only its own calls.
const stall = time.Second

// lanes make calls that arrive together share transactions, as a group commit does; package groupcommit says why it
// does not serve here. A call that finds a lane free takes it, alone, at once. While all lanes are under way, calls
// gather; a lane that comes back takes the set that has waited longest. A set is of one kind and one shard, and a tile
// is in it once.
//
//	         lane free             lane comes back            answered
//	call ──────────────► alone         ┌──────────► sealed ────────────► done
//	  └────────────────► gathering ────┘               │
//	   all under way        │ ctx ends                 │ ctx ends
//	                        ▼                          ▼
//	                   not applied              outcome unknown
//
// No goroutine outlives the calls in progress.
type lanes struct {
	run     func(*set)
	size    int // members of a set at most
	shardOf func(fence.TileID) int

	mu     sync.Mutex
	free   int
	queues map[group][]*member
	order  []group // those with a queue, each once, the one that has waited longest first
}

// group is what the members of a set have in common.
type group struct {
	kind  verdict.Kind
	shard int
}

// member is a call on its way through the lanes.
type member struct {
	verdict.Call
	set  *set          // once it has been taken; guarded by lanes.mu
	gone bool          // its caller was cancelled; guarded by lanes.mu
	done chan struct{} // closed when the rest is there

	row     fence.Grant
	err     error
	refused bool // the server rolled the set back: nothing was applied, and alone it may succeed
}

// set is some members on one lane.
type set struct {
	group
	members []*member // in the order of their tiles
	ctx     context.Context
	cancel  context.CancelFunc // when the last caller was cancelled
	present int                // callers that still wait; guarded by lanes.mu
	sealed  bool               // the request may have been sent; guarded by lanes.mu
}

func newLanes(count, size int, shardOf func(fence.TileID) int, run func(*set)) *lanes {
	return &lanes{run: run, size: size, shardOf: shardOf, free: count, queues: map[group][]*member{}}
}

// try takes a free lane for a call that goes alone. The function that it returns frees the lane.
func (l *lanes) try() (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free == 0 {
		return nil, false
	}
	l.free--
	return l.occupy(), true
}

// occupy starts the timeout of a lane that has been taken, and returns the function that frees it.
func (l *lanes) occupy() (leave func()) {
	stalled := time.AfterFunc(stall, l.comeBack)
	return func() {
		if stalled.Stop() {
			l.comeBack()
		}
	}
}

// comeBack gives a lane to the calls that wait, or frees it.
func (l *lanes) comeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	l.dispatch()
}

// gather queues calls up for the next sets.
func (l *lanes) gather(calls []verdict.Call) []*member {
	members := make([]*member, len(calls))
	for i, c := range calls {
		members[i] = &member{Call: c, done: make(chan struct{})}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range calls {
		g := group{kind: c.Kind}
		if l.shardOf != nil {
			g.shard = l.shardOf(c.Tile)
		}
		if len(l.queues[g]) == 0 {
			l.order = append(l.order, g)
		}
		l.queues[g] = append(l.queues[g], members[i])
	}
	l.dispatch()
	return members
}

// dispatch sends sets off while there are lanes and calls. With mu held.
func (l *lanes) dispatch() {
	for l.free > 0 {
		s := l.take()
		if s == nil {
			return
		}
		l.free--
		leave := l.occupy()
		go func() {
			defer leave()
			defer s.cancel()
			l.run(s)
		}()
	}
}

// take makes a set of what has waited longest; nil when nothing waits. With mu held.
func (l *lanes) take() *set {
	for len(l.order) > 0 {
		g := l.order[0]
		l.order = l.order[1:]
		taken, left := choose(l.queues[g], l.size)
		if len(left) > 0 {
			l.queues[g] = left
			l.order = append(l.order, g)
		} else {
			delete(l.queues, g)
		}
		if len(taken) > 0 {
			return newSet(g, taken)
		}
	}
	return nil
}

func newSet(g group, members []*member) *set {
	s := &set{group: g, members: members, present: len(members)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, m := range members {
		m.set = s
	}
	return s
}

// choose takes up to size members from a queue, in the order of their tiles and no tile twice. It drops cancelled
// members when it reaches them. The rest stays in the queue's own array, because the queue may be long.
func choose(queue []*member, size int) (taken, left []*member) {
	taken = make([]*member, 0, min(size, len(queue)))
	seen := 0
	for ; seen < len(queue) && len(taken) < size; seen++ {
		if m := queue[seen]; !m.gone {
			taken = append(taken, m)
		}
	}
	slices.SortStableFunc(taken, func(a, b *member) int { return cmp.Compare(int64(a.Tile), int64(b.Tile)) })
	var again []*member
	distinct := taken[:0]
	for _, m := range taken {
		if len(distinct) > 0 && distinct[len(distinct)-1].Tile == m.Tile {
			again = append(again, m)
			continue
		}
		distinct = append(distinct, m)
	}
	left = queue[seen-len(again):]
	copy(left, again)
	clear(queue[:seen-len(again)]) // the array outlives them
	return distinct, left
}

// seal returns the members of a set whose callers still wait, just before a request is sent for them. A call that
// is cancelled after its set was sealed has an unknown outcome.
func (l *lanes) seal(s *set) []*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.sealed = true
	s.members = slices.DeleteFunc(s.members, func(m *member) bool { return m.gone })
	return s.members
}

// leaveBehind takes the members of some tiles, which are in order, out of a set that was rolled back, and returns them.
func (l *lanes) leaveBehind(s *set, tiles []int64) (behind []*member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.members = slices.DeleteFunc(s.members, func(m *member) bool {
		_, found := slices.BinarySearch(tiles, int64(m.Tile))
		if !found {
			return false
		}
		behind = append(behind, m)
		if m.set = nil; !m.gone {
			s.present--
		}
		return true
	})
	if s.present == 0 {
		s.cancel()
	}
	return behind
}

// leave removes a member whose caller no longer waits, and reports whether its request may have been sent. The
// last one to leave a set cancels it.
func (l *lanes) leave(m *member) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.gone = true
	if m.set == nil {
		return false
	}
	if m.set.present--; m.set.present == 0 {
		m.set.cancel()
	}
	return m.set.sealed
}
