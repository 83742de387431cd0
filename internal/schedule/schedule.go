// Package schedule keeps things in order of when something is due, so that what is not due costs nothing.
package schedule

import (
	"container/heap"
	"time"
)

// Schedule is items in order of when something is due, so that one that is not due costs nothing.
type Schedule[T any] struct{ heap dates[T] }

// Date is an item's place in a schedule.
type Date[T any] struct {
	Of    T
	at    time.Time
	in    *Schedule[T] // nil: in none
	index int
}

// Set puts d into s, out of any other schedule, due at at.
func (d *Date[T]) Set(s *Schedule[T], at time.Time) {
	if d.in != s {
		d.Clear()
		d.in, d.at = s, at
		heap.Push(&s.heap, d)
	} else if !d.at.Equal(at) {
		d.at = at
		heap.Fix(&s.heap, d.index)
	}
}

// Clear takes d out of its schedule, if it is in one.
func (d *Date[T]) Clear() {
	if d.in != nil {
		heap.Remove(&d.in.heap, d.index)
		d.in = nil
	}
}

// First is when the first is due; false if the schedule is empty.
func (s *Schedule[T]) First() (at time.Time, ok bool) {
	if len(s.heap) == 0 {
		return time.Time{}, false
	}
	return s.heap[0].at, true
}

// Take removes up to limit items that are due by now, the earliest first.
func (s *Schedule[T]) Take(now time.Time, limit int) []T {
	var due []T
	for len(due) < limit && len(s.heap) > 0 && !s.heap[0].at.After(now) {
		d := s.heap[0]
		d.Clear()
		due = append(due, d.Of)
	}
	return due
}

// All are the items in no order.
func (s *Schedule[T]) All() []T {
	all := make([]T, len(s.heap))
	for i, d := range s.heap {
		all[i] = d.Of
	}
	return all
}

// dates implements heap.Interface.
type dates[T any] []*Date[T]

func (h dates[T]) Len() int           { return len(h) }
func (h dates[T]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h dates[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dates[T]) Push(x any) {
	d, _ := x.(*Date[T]) // there is nothing else
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
