package spec

// verdict is what a node answers, as in the table of docs/wire.md.
type verdict uint8

const (
	ok verdict = iota
	stale
	noowner
	behind
	replay
	forked
)

// same reports whether two histories end at the same position.
func (m *model) same(a, b history) bool {
	if m.without == ChainCompared {
		return a.n == b.n && a.epoch() == b.epoch()
	}
	return a == b
}

// commit presents a batch to a node.
func (m *model) commit(n *node, r *request) verdict {
	epoch, owner := r.entry.epoch(), r.entry.owner()
	current := n.log.epoch()
	if !n.hash {
		if !r.install {
			return noowner
		}
		if m.without == AbsentIsNotZero {
			current = 0
		}
	}
	if r.rebase {
		return m.rebase(n, r)
	}
	next := r.prev.and(r.entry)
	twin := n.hash && epoch == current && owner != n.log.last().owner()
	if m.without == ClaimInInstall && r.entry.serial() == 0 && n.log.n == next.n && n.log.epoch() == epoch {
		return ok // the same batch, as far as it can see
	}
	switch {
	case epoch < current && m.without != EpochCompared:
		return stale
	case twin && m.without != ClaimInInstall:
		return forked
	case m.same(n.log, next):
		n.hash = true
		return ok
	case n.log.n < r.prev.n && m.without != PositionCompared:
		return behind
	case epoch > current && !r.install:
		return noowner
	case !m.same(n.log, r.prev) && m.without != PositionCompared:
		if n.log.epoch() < epoch {
			return replay
		}
		return forked
	case n.log.full():
		return behind // out of bounds; nothing is decided
	}
	n.log, n.hash = n.log.and(r.entry), true
	return ok
}

func (m *model) rebase(n *node, r *request) verdict {
	next := r.prev.and(r.entry)
	switch {
	case n.log == next:
	case r.entry.epoch() <= n.log.epoch() && m.without != EpochCompared:
		return stale
	case n.log != r.over && m.without != RebaseNamesWhat:
		return behind
	}
	n.log, n.hash = next, true
	return ok
}
