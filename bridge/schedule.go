package bridge

import "time"

// schedule is tiles in order of when something is due: a binary heap, so that a tile that is not due costs
// nothing, however many there are.
type schedule struct {
	dates []*date
}

// date is a tile's place in a schedule. A tile has one for each purpose.
type date struct {
	tile  *tile
	at    time.Time
	in    *schedule // nil: in none
	index int
}

// set puts d into s, out of any other schedule, due at at.
func (d *date) set(s *schedule, at time.Time) {
	if d.in != s {
		d.clear()
		d.in, d.index, d.at = s, len(s.dates), at
		s.dates = append(s.dates, d)
		s.up(d.index)
		return
	}
	if d.at.Equal(at) {
		return
	}
	d.at = at
	s.fix(d.index)
}

// clear takes d out of its schedule, if it is in one.
func (d *date) clear() {
	s := d.in
	if s == nil {
		return
	}
	last := len(s.dates) - 1
	i := d.index
	s.swap(i, last)
	s.dates[last] = nil
	s.dates = s.dates[:last]
	d.in = nil
	if i < last {
		s.fix(i)
	}
}

// first is when the first is due; false if the schedule is empty.
func (s *schedule) first() (at time.Time, ok bool) {
	if len(s.dates) == 0 {
		return time.Time{}, false
	}
	return s.dates[0].at, true
}

// take removes up to limit tiles that are due by now, the earliest first.
func (s *schedule) take(now time.Time, limit int) []*tile {
	var due []*tile
	for len(due) < limit && len(s.dates) > 0 && !s.dates[0].at.After(now) {
		d := s.dates[0]
		d.clear()
		due = append(due, d.tile)
	}
	return due
}

func (s *schedule) less(i, j int) bool { return s.dates[i].at.Before(s.dates[j].at) }

func (s *schedule) swap(i, j int) {
	d := s.dates
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (s *schedule) fix(i int) {
	if !s.down(i) {
		s.up(i)
	}
}

func (s *schedule) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.less(i, parent) {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s *schedule) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(s.dates) {
			return moved
		}
		if child+1 < len(s.dates) && s.less(child+1, child) {
			child++
		}
		if !s.less(child, i) {
			return moved
		}
		s.swap(i, child)
		i, moved = child, true
	}
}
