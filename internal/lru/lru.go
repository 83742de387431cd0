// Package lru has a map of bounded size: a new entry replaces the least recently used one.
package lru

import "container/list"

// Map keeps its most recently used entries. It is not safe for concurrent use.
type Map[K comparable, V any] struct {
	limit int
	index map[K]*list.Element
	order list.List // of *entry[K, V], most recently used first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New returns a map of at most limit entries, at least 1.
func New[K comparable, V any](limit int) *Map[K, V] {
	return &Map[K, V]{limit: limit, index: make(map[K]*list.Element)}
}

// Get returns k's value and counts as a use of it.
func (m *Map[K, V]) Get(k K) (v V, ok bool) {
	e, ok := m.index[k]
	if !ok {
		return v, false
	}
	m.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true // nothing else is in it
}

// Put sets k's value and counts as a use of it.
func (m *Map[K, V]) Put(k K, v V) {
	if e, ok := m.index[k]; ok {
		e.Value.(*entry[K, V]).value = v // as above
		m.order.MoveToFront(e)
		return
	}
	if len(m.index) >= m.limit {
		oldest := m.order.Back()
		delete(m.index, m.order.Remove(oldest).(*entry[K, V]).key) // as above
	}
	m.index[k] = m.order.PushFront(&entry[K, V]{key: k, value: v})
}

// Remove forgets k.
func (m *Map[K, V]) Remove(k K) {
	if e, ok := m.index[k]; ok {
		m.order.Remove(e)
		delete(m.index, k)
	}
}

// Len is how many entries there are.
func (m *Map[K, V]) Len() int { return len(m.index) }
