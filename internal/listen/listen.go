// Package listen keeps functions that are to be called when something happens to a thing that a key names.
package listen

import "sync"

// Set is the functions, by key. The zero Set is empty. It is safe for concurrent use.
type Set[K comparable, F any] struct {
	mu   sync.Mutex
	last int
	all  map[K]map[int]F
}

// Add adds a function; stop takes it off again.
func (s *Set[K, F]) Add(key K, f F) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[K]map[int]F{}
	}
	if s.all[key] == nil {
		s.all[key] = map[int]F{}
	}
	s.last++
	id := s.last
	s.all[key][id] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.all[key], id); len(s.all[key]) == 0 {
			delete(s.all, key)
		}
	}
}

// Of are the functions of a key, in no order.
func (s *Set[K, F]) Of(key K) []F {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := make([]F, 0, len(s.all[key]))
	for _, f := range s.all[key] {
		of = append(of, f)
	}
	return of
}
