package admission

import "container/list"

// lru is a map that keeps its most recently used entries. It is not safe for concurrent use.
type lru[K comparable, V any] struct {
	limit int
	index map[K]*list.Element
	order list.List // of *lruEntry[K, V], most recently used first
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](limit int) *lru[K, V] {
	return &lru[K, V]{limit: limit, index: make(map[K]*list.Element)}
}

func (l *lru[K, V]) get(k K) (v V, ok bool) {
	e, ok := l.index[k]
	if !ok {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).value, true // nothing else is in it
}

func (l *lru[K, V]) put(k K, v V) {
	if e, ok := l.index[k]; ok {
		e.Value.(*lruEntry[K, V]).value = v // as above
		l.order.MoveToFront(e)
		return
	}
	if len(l.index) >= l.limit {
		oldest := l.order.Back()
		delete(l.index, l.order.Remove(oldest).(*lruEntry[K, V]).key) // as above
	}
	l.index[k] = l.order.PushFront(&lruEntry[K, V]{key: k, value: v})
}

func (l *lru[K, V]) remove(k K) {
	if e, ok := l.index[k]; ok {
		l.order.Remove(e)
		delete(l.index, k)
	}
}
