// Package fairshare says who holds most of a pool, so that a full pool takes from the heaviest instead of refusing
// those that hold little. Its callers decide what a place is and how one is taken away.
package fairshare

import "slices"

// Pool counts items by their holders. Every call takes constant time, but for the items of one holder. The zero Pool is
// ready to use. It is not safe for concurrent use.
type Pool[T comparable] struct {
	holders map[string]*holder[T]
	ranks   []map[*holder[T]]struct{} // holders by the number of their items; the last one is not empty
}

type holder[T comparable] struct {
	name  string
	items []T // oldest first
}

// Held is how many items a holder has.
func (p *Pool[T]) Held(name string) int {
	if h := p.holders[name]; h != nil {
		return len(h.items)
	}
	return 0
}

// Items are those of a holder, oldest first. They must not be changed, and are valid until the next call of Add or
// Remove.
func (p *Pool[T]) Items(name string) []T {
	if h := p.holders[name]; h != nil {
		return h.items
	}
	return nil
}

// Holders is how many hold something.
func (p *Pool[T]) Holders() int { return len(p.holders) }

// Add gives a holder an item.
func (p *Pool[T]) Add(name string, item T) {
	h := p.holders[name]
	if h == nil {
		h = &holder[T]{name: name}
		if p.holders == nil {
			p.holders = map[string]*holder[T]{}
		}
		p.holders[name] = h
	}
	p.unrank(h)
	h.items = append(h.items, item)
	p.rank(h)
}

// Remove takes an item from its holder; one that the holder does not have is no error.
func (p *Pool[T]) Remove(name string, item T) {
	h := p.holders[name]
	if h == nil {
		return
	}
	i := slices.Index(h.items, item)
	if i < 0 {
		return
	}
	p.unrank(h)
	h.items = slices.Delete(h.items, i, i+1)
	if len(h.items) == 0 {
		delete(p.holders, name)
	} else {
		p.rank(h)
	}
	for len(p.ranks) > 0 && len(p.ranks[len(p.ranks)-1]) == 0 {
		p.ranks = p.ranks[:len(p.ranks)-1]
	}
}

// Heaviest is one of the holders that have most items, and these, oldest first. They must not be changed, and are valid
// until the next call of Add or Remove. An empty pool has none.
func (p *Pool[T]) Heaviest() (name string, items []T) {
	if len(p.ranks) == 0 {
		return "", nil
	}
	for h := range p.ranks[len(p.ranks)-1] {
		return h.name, h.items
	}
	return "", nil
}

func (p *Pool[T]) unrank(h *holder[T]) {
	if n := len(h.items); n > 0 {
		delete(p.ranks[n], h)
	}
}

func (p *Pool[T]) rank(h *holder[T]) {
	n := len(h.items)
	for len(p.ranks) <= n {
		p.ranks = append(p.ranks, nil)
	}
	if p.ranks[n] == nil {
		p.ranks[n] = map[*holder[T]]struct{}{}
	}
	p.ranks[n][h] = struct{}{}
}
