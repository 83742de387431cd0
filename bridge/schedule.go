package bridge

import (
	"container/heap"
	"time"
)

// schedule is items in order of when something is due, so that one that is not due costs nothing.
type schedule[T any] struct{ heap dates[T] }

// date is an item's place in a schedule.
type date[T any] struct {
	of    T
	at    time.Time
	in    *schedule[T] // nil: in none
	index int
}

// set puts d into s, out of any other schedule, due at at.
func (d *date[T]) set(s *schedule[T], at time.Time) {
	if d.in != s {
		d.clear()
		d.in, d.at = s, at
		heap.Push(&s.heap, d)
	} else if !d.at.Equal(at) {
		d.at = at
		heap.Fix(&s.heap, d.index)
	}
}

// clear takes d out of its schedule, if it is in one.
func (d *date[T]) clear() {
	if d.in != nil {
		heap.Remove(&d.in.heap, d.index)
		d.in = nil
	}
}

// first is when the first is due; false if the schedule is empty.
func (s *schedule[T]) first() (at time.Time, ok bool) {
	if len(s.heap) == 0 {
		return time.Time{}, false
	}
	return s.heap[0].at, true
}

// take removes up to limit items that are due by now, the earliest first.
func (s *schedule[T]) take(now time.Time, limit int) []T {
	var due []T
	for len(due) < limit && len(s.heap) > 0 && !s.heap[0].at.After(now) {
		d := s.heap[0]
		d.clear()
		due = append(due, d.of)
	}
	return due
}

// dates implements heap.Interface.
type dates[T any] []*date[T]

func (h dates[T]) Len() int           { return len(h) }
func (h dates[T]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h dates[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dates[T]) Push(x any) {
	d, _ := x.(*date[T]) // there is nothing else
	d.index = len(*h)
	*h = append(*h, d)
}

func (h *dates[T]) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return d
}
