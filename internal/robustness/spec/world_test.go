package spec

import "fmt"

// step is a kind of action.
type step uint8

const (
	crash step = iota
	reroute
	look
	claim
	reads
	seals
	replays
	presents
	losesAnswer
	late
	serves
	startsOver
	forms
	journals
	abandons
	confirms
	arrives
	replicates
	failover
	rejoins
	expires
	restores
	empties
	losesAll
	journalRestored
	watches
)

var stepNames = [...]string{"crashes", "learns the master", "looks", "claims", "reads the journal", "seals the journal",
	"replays", "presents", "presents, and the answer is lost", "presents, and the request is late", "serves",
	"starts over", "forms a batch", "appends to the journal", "abandons its batch", "confirms", "late request arrives",
	"the replica follows", "failover", "the old master becomes a replica", "the owner hash expires",
	"the authority is restored", "the master comes back empty", "all of coordination is lost",
	"the journal is restored", "the watcher reads"}

var verdictNames = [...]string{"ok", "stale", "noowner", "behind", "replay", "forked"}

// action is one step, of a process or of the world.
type action struct {
	step step
	who  uint8
	with uint8
}

func (a action) String() string {
	switch {
	case a.step == presents:
		return fmt.Sprintf("%c presents: %s", 'P'+a.who, verdictNames[a.with])
	case a.step == arrives:
		return fmt.Sprintf("%c's %s", 'P'+a.who, stepNames[a.step])
	case a.step < replicates:
		return fmt.Sprintf("%c %s", 'P'+a.who, stepNames[a.step])
	case a.step == restores:
		return fmt.Sprintf("%s to row %d", stepNames[a.step], a.with)
	case a.step == watches:
		return fmt.Sprintf("%s node %d", stepNames[a.step], a.with)
	}
	return stepNames[a.step]
}

// steps are all that can happen next.
func (m *model) steps(s *state, emit func(action, state)) {
	for i := range s.procs {
		m.owners(s, uint8(i), emit)
		if r := &s.flight[i]; r.there {
			n := *s
			n.flight[i] = request{}
			m.commit(&n.nodes[r.to], r)
			emit(action{arrives, uint8(i), 0}, n)
		}
	}
	m.faults(s, emit)
	if m.watcher {
		m.watch(s, emit)
	}
}

func (m *model) faults(s *state, emit func(action, state)) {
	does := func(what step, with uint8, f func(n *state)) {
		n := *s
		f(&n)
		emit(action{what, 0, with}, n)
	}
	replica := 1 - s.master
	if !s.stray && s.nodes[0] != s.nodes[1] {
		does(replicates, 0, func(n *state) { n.nodes[replica] = n.nodes[n.master] })
	}
	if s.stray {
		does(rejoins, 0, func(n *state) { n.nodes[replica], n.stray = n.nodes[n.master], false })
	}
	if left := s.left.failovers; left > 0 {
		does(failover, 0, func(n *state) { n.master, n.stray, n.left.failovers = replica, true, left-1 })
	}
	if s.left.expiries > 0 && s.nodes[s.master].hash {
		does(expires, 0, func(n *state) { n.nodes[n.master].hash = false; n.left.expiries-- })
	}
	for k := range s.passed {
		if s.left.restores > 0 && s.past[k] != s.row {
			does(restores, k, func(n *state) { n.row = n.past[k]; n.left.restores--; n.past, n.passed = [4]grant{}, 0 })
		}
	}
	if m.without == FilesWritten && s.left.empties > 0 && !s.stray {
		does(empties, 0, func(n *state) { n.nodes = [2]node{}; n.left.empties-- })
	}
	if s.left.losses > 0 && s.nodes != [2]node{} {
		does(losesAll, 0, func(n *state) { n.nodes, n.confirmed = [2]node{}, history{}; n.left.losses-- })
	}
	if m.journal && s.left.jrestores > 0 && s.journal.n > 0 {
		// What is acknowledged until the owner has noticed is all in the coordination store, and promised by that.
		does(journalRestored, 0, func(n *state) {
			n.journal = n.journal.first(n.journal.n - 1)
			n.through = n.journal
			n.left.jrestores--
		})
	}
}

// watch lets the watcher read a node: the next batch if that follows what it holds, else all of it.
func (m *model) watch(s *state, emit func(action, state)) {
	for k := range s.nodes {
		from := s.nodes[k].log
		n := *s
		switch next := n.shown.n; {
		case from == n.shown, from.epoch() < s.floor && m.without != FloorOfEpochs:
			continue
		case from.n > next && (from.extends(n.shown) || m.without == PrevCompared):
			n.shown = n.shown.and(from.e[next])
		default:
			n.shown = from
		}
		n.floor = max(n.floor, n.shown.epoch())
		emit(action{watches, 0, uint8(k)}, n)
	}
}

// broken names the invariant that a step breaks, or is empty.
func (m *model) broken(before, s *state) string {
	master := s.nodes[s.master].log
	if !master.extends(s.confirmed) {
		return confirmedKept
	}
	for i := range s.procs {
		p := &s.procs[i]
		if p.phase != serving {
			continue
		}
		switch {
		case int(s.served[p.epoch]) != i+1 && (m.journal || s.left.losses == m.bound.losses):
			return oneServer
		case p.log.n < p.acked:
			return ownerKeeps
		case before.procs[i].phase != serving && m.journal && !p.log.extends(s.through):
			return throughKept
		}
	}
	a, b := s.nodes[0].log, s.nodes[1].log
	for k := range min(a.n, b.n) {
		if x, y := a.e[k], b.e[k]; x.epoch() == y.epoch() && x != y && x.serial() > 0 && y.serial() > 0 {
			return oneBatch
		}
	}
	if m.watcher && s.shown != before.shown {
		if s.shown.epoch() < before.floor {
			return watcherClimbs
		}
		if !s.nodes[0].log.extends(s.shown) && !s.nodes[1].log.extends(s.shown) {
			return watcherFolds
		}
	}
	return ""
}

// The invariants.
const (
	oneServer     = "an epoch has one server"
	oneBatch      = "one batch at a position"
	confirmedKept = "confirmed is kept"
	ownerKeeps    = "a living owner keeps what it acknowledged"
	watcherClimbs = "a watcher's epoch climbs"
	watcherFolds  = "a watcher folds one chain"
	throughKept   = "write-through is kept"
)
