package spec

import (
	"fmt"
	"strings"
)

// found is what a search came to.
type found struct {
	states, depth int
	whole         bool   // there is no state beyond those
	broken        string // an invariant; empty: none
	trace         []string
}

// search visits every state, those of fewer steps first, until an invariant breaks or most states were seen.
func (m *model) search(most int) (f found) {
	first := state{left: m.bound}
	seen := map[state]uint32{first: 0}
	states, from, by := []state{first}, []uint32{0}, []action{{}}
	end := 1 // of the present depth
	for at := 0; at < len(states); at++ {
		if at == end {
			f.depth++
			end = len(states)
		}
		s := states[at]
		m.steps(&s, func(a action, n state) {
			if f.broken != "" {
				return
			}
			if _, known := seen[n]; known {
				return
			}
			seen[n] = uint32(len(states))
			states, from, by = append(states, n), append(from, uint32(at)), append(by, a)
			f.broken = m.broken(&s, &n)
		})
		if f.states = len(states); f.broken != "" {
			f.trace = trace(states, from, by)
			return f
		}
		if len(states) >= most {
			return f
		}
	}
	f.whole = true
	return f
}

// trace is the way to the last state.
func trace(states []state, from []uint32, by []action) (lines []string) {
	var way []int
	for at := len(states) - 1; at > 0; at = int(from[at]) {
		way = append(way, at)
	}
	for i := len(way) - 1; i >= 0; i-- {
		s := &states[way[i]]
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%-45s row %d:%c  nodes %v %v master %d  P %v  Q %v",
			by[way[i]], s.row.epoch, 'P'+s.row.holder, s.nodes[0].log, s.nodes[1].log, s.master, s.procs[0].log,
			s.procs[1].log)))
	}
	return lines
}
