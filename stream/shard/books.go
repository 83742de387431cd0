package shard

import (
	"slices"
	"time"
)

// state is where a Member stands with a shard:
//
//	granted  the lease is held, Handler.Gained is due
//	serving  Gained was called
//	losing   Handler.Lost is due or running; the lease may be held or not
//	done     Lost has returned, or Gained was never called; the lease is to be released
//
//	granted -> serving -> losing -> done -> (forgotten, when the book has it no more)
//	granted -> done, if it is to be given back before Gained was called
//
// A shard whose lease is gone goes from serving to losing, and is forgotten from any other state, and from
// losing when Lost has returned. If it was granted anew meanwhile, the next reply says so.
type state uint8

const (
	granted state = iota + 1
	serving
	losing
	done
)

// held is one shard of a Member.
type held struct {
	token Token
	state state
	lease bool // the book says it is ours under this token
}

// books is what a Member knows of its shards.
type books struct {
	shards   map[int]*held
	draining bool      // no shard is to be worked on any more
	calling  time.Time // since when the Handler has not returned; zero if it is not called
}

// take enters a reply.
func (b *books) take(reply *Reply) {
	for _, g := range reply.Held {
		g.GiveBack = g.GiveBack || b.draining
		h := b.shards[g.Shard]
		switch {
		case h == nil:
			b.shards[g.Shard] = fresh(g)
		case h.lease && h.token == g.Token:
			if g.GiveBack {
				h.giveBack()
			}
		case h.state == granted || h.state == done:
			b.shards[g.Shard] = fresh(g)
		default:
			h.gone()
		}
	}
	for s := range b.shards {
		if _, has := reply.Find(s); !has {
			b.gone(s)
		}
	}
}

func fresh(g Grant) *held {
	h := &held{token: g.Token, lease: true, state: granted}
	if g.GiveBack {
		h.state = done
	}
	return h
}

// giveBack begins to lose a shard whose lease is held.
func (h *held) giveBack() {
	switch h.state {
	case granted:
		h.state = done
	case serving:
		h.state = losing
	}
}

// gone says that the lease is not ours any more.
func (h *held) gone() {
	h.lease = false
	if h.state == serving {
		h.state = losing
	}
}

func (b *books) gone(s int) {
	h := b.shards[s]
	h.gone()
	if h.state != losing {
		delete(b.shards, s)
	}
}

// standDown gives up everything without the store.
func (b *books) standDown() {
	for s := range b.shards {
		b.gone(s)
	}
}

// drain begins to give everything back.
func (b *books) drain() {
	b.draining = true
	for _, h := range b.shards {
		h.giveBack()
	}
}

// lost enters the return of Handler.Lost.
func (b *books) lost(s int) {
	if h := b.shards[s]; h.lease {
		h.state = done
	} else {
		delete(b.shards, s)
	}
}

// request fills in what is held and what is released. If the Handler is stuck, what it should have ceased to
// work on is released as well, and returned.
func (b *books) request(r *Request, stuck bool) (late []int) {
	for s, h := range b.shards {
		switch {
		case !h.lease:
		case h.state == done:
			r.Release = append(r.Release, s)
		case h.state == losing && stuck:
			r.Release = append(r.Release, s)
			late = append(late, s)
		default:
			r.Held = append(r.Held, Lease{s, h.token})
		}
	}
	slices.Sort(r.Release)
	slices.SortFunc(r.Held, func(a, b Lease) int { return a.Shard - b.Shard })
	return late
}

// next is the shard with the lowest number among those in the state.
func (b *books) next(want state) (shard int, h *held, ok bool) {
	for s, candidate := range b.shards {
		if candidate.state == want && (!ok || s < shard) {
			shard, h, ok = s, candidate, true
		}
	}
	return shard, h, ok
}
