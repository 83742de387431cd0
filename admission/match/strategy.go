package match

import (
	"cmp"
	"slices"
	"time"
)

// Strategy forms groups from claimed tickets. It is a pure function: it keeps no state, and does no I/O.
// Window and Batch are the ones given; a game may bring its own.
type Strategy interface {
	// Window is how far from a ticket's rating (+-) it accepts others after a wait. It is what Why reports.
	Window(waited time.Duration) int
	// Form returns groups of indexes into tickets, in the order in which their tickets are put on teams. The tickets
	// are sorted by rating, agree on Queue.Same, have no player in common, and contain no backfill. A group that does
	// not fit the queue's sizes, teams or roles, or that has a ticket of an earlier group, is refused with a
	// ErrLineup, which a Worker reports to Hooks.Failed, and its tickets wait.
	Form(q Queue, tickets []Candidate) [][]int
}

// Window is the strategy for ranked queues: tickets that have waited longest choose first, and take the nearest others
// such that the whole group spreads no more than the window of the one that chose. Newcomers do not choose: if they had
// to accept the other's distance too, a ticket far from all others would wait for ever while those match each
// other at once. A window is +-Initial at once, Growth more each second, and at most +-Most: by default +-50 at 0 s,
// +-150 at 10 s, +-500 from 45 s on. Zero fields mean these defaults; a negative Growth means none.
type Window struct{ Initial, Growth, Most int }

// Window implements Strategy.
func (w Window) Window(waited time.Duration) int {
	most := cmp.Or(w.Most, 500)
	return min(grown(cmp.Or(w.Initial, 50), cmp.Or(w.Growth, 10), waited), most)
}

// Form implements Strategy.
func (w Window) Form(q Queue, tickets []Candidate) [][]int {
	windows := make([]int, len(tickets))
	for i, t := range tickets {
		windows[i] = w.Window(t.Waited)
	}
	b := newBuilder(q, tickets)
	b.accepts = func(g *gathered, i int) bool { return g.spreadWith(i) <= windows[g.members[0]] }
	b.windows = windows
	var groups [][]int
	for _, seed := range oldestFirst(tickets) {
		if g := b.build(seed); g != nil {
			b.take(g)
			groups = append(groups, g)
		}
	}
	return groups
}

// Batch is the strategy for throughput: of all ways to cut the sorted tickets into groups it takes one with the least
// spread, where to leave a ticket out costs more the longer it has waited. Groups have Queue.Target players, so that
// least spread does not mean pairs. A group is made only if its spread is at most the sum of the least and the
// greatest window of its tickets, halved and doubled: twice their mean. A ticket's window is Initial, and Growth more
// each second, without end: by default +-200 at 0 s, +-400 after 10 s.
// Zero fields mean these defaults; a negative Growth means none.
type Batch struct{ Initial, Growth int }

// Window implements Strategy.
func (s Batch) Window(waited time.Duration) int {
	return grown(cmp.Or(s.Initial, 200), cmp.Or(s.Growth, 20), waited)
}

// Form implements Strategy.
func (s Batch) Form(q Queue, tickets []Candidate) [][]int {
	windows, solo := make([]int, len(tickets)), q.Roles == nil
	for i, t := range tickets {
		windows[i] = s.Window(t.Waited)
		solo = solo && len(t.Players) == 1
	}
	b := newBuilder(q, tickets)
	b.windows = windows
	var groups [][]int
	take := func(g []int) {
		b.take(g)
		groups = append(groups, g)
	}
	if solo && !b.twice {
		for _, g := range cut(tickets, windows, b.q.Target) {
			take(g)
		}
	}
	// Parties and roles, and groups smaller than the target for those that have lost patience.
	for range 8 {
		found := b.cheapest()
		for _, g := range found {
			if b.free(g) {
				take(g)
			}
		}
		if len(found) == 0 {
			break
		}
	}
	return groups
}

// cut divides sorted tickets of one player each into runs of size and single ones that are left out, at the
// least cost in all: the spread of each run, and for each ticket left out its share of what a run may spread.
func cut(tickets []Candidate, windows []int, size int) (groups [][]int) {
	cost := make([]float64, len(tickets)+1) // of the first i tickets
	run := make([]bool, len(tickets)+1)     // the i-th ends a run
	for i := 1; i <= len(tickets); i++ {
		cost[i] = cost[i-1] + 2*float64(windows[i-1])/float64(size)
		if i < size {
			continue
		}
		spread := float64(tickets[i-1].Rating - tickets[i-size].Rating)
		if with := cost[i-size] + spread; with <= cost[i] {
			cost[i], run[i] = with, true
		}
	}
	for i := len(tickets); i > 0; {
		if !run[i] {
			i--
			continue
		}
		g := make([]int, size)
		for k := range g {
			g[k] = i - size + k
		}
		groups = append(groups, g)
		i -= size
	}
	return groups
}

func grown(initial, growth int, waited time.Duration) int {
	n := float64(initial) + float64(max(growth, 0))*waited.Seconds()
	return int(min(n, 2*MaxRating))
}

// oldestFirst returns the tickets' indexes by how long they have waited.
func oldestFirst(tickets []Candidate) []int {
	order := make([]int, len(tickets))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tickets[b].Waited, tickets[a].Waited) })
	return order
}
