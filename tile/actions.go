package tile

import (
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// actionMemory remembers the outcomes of recent actions. It is part of the tile's state: built from the
// committed resolutions alone, so every owner remembers the same.
type actionMemory struct {
	keep     fence.Tick // forget outcomes older than this
	outcomes map[string]stream.Outcome
	order    []remembered // by tick
}

type remembered struct {
	tick    fence.Tick
	outcome stream.Outcome
	id      string
}

// add records the resolutions of a committed batch and forgets what is too old.
func (m *actionMemory) add(tick fence.Tick, resolutions []stream.Resolution) {
	for _, r := range resolutions {
		m.put(remembered{tick: tick, outcome: r.Outcome, id: r.ActionID})
	}
	m.expire(tick)
}

func (m *actionMemory) put(r remembered) {
	if _, again := m.outcomes[r.id]; again {
		return // the first outcome stands
	}
	if m.outcomes == nil {
		m.outcomes = map[string]stream.Outcome{}
	}
	m.outcomes[r.id] = r.outcome
	m.order = append(m.order, r)
}

func (m *actionMemory) expire(now fence.Tick) {
	n := 0
	for n < len(m.order) && m.order[n].tick+m.keep < now {
		delete(m.outcomes, m.order[n].id)
		n++
	}
	if n > 0 {
		m.order = append([]remembered(nil), m.order[n:]...)
	}
}

func (m *actionMemory) outcome(id string) (stream.Outcome, bool) {
	o, ok := m.outcomes[id]
	return o, ok
}

func (m *actionMemory) reset() { *m = actionMemory{keep: m.keep} }
