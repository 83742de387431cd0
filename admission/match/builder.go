package match

import (
	"cmp"
	"slices"
)

// builder gathers groups around seeds, from tickets sorted by rating. Tickets that were taken are skipped in
// constant time: the rest are a list.
type builder struct {
	q          Queue
	tickets    []Candidate
	windows    []int
	accepts    func(g *gathered, i int) bool // nil: any
	prev, next []int                         // -1 and len(tickets) end the list
	used       []bool
	twice      bool // a player has two of the tickets: only the one that has waited longest is in the list
}

func newBuilder(q Queue, tickets []Candidate) *builder {
	n := len(tickets)
	q.Target = cmp.Or(q.Target, q.Max)
	q.Min = cmp.Or(q.Min, q.Target)
	b := &builder{q: q, tickets: tickets, prev: make([]int, n), next: make([]int, n), used: make([]bool, n)}
	for i := range n {
		b.prev[i], b.next[i] = i-1, i+1
	}
	seen := make(map[string]bool, n)
	for _, i := range oldestFirst(tickets) {
		if slices.ContainsFunc(tickets[i].Players, func(p Player) bool { return seen[p.ID] }) {
			b.take([]int{i})
			b.twice = true
			continue
		}
		for _, p := range tickets[i].Players {
			seen[p.ID] = true
		}
	}
	return b
}

// take removes the tickets of a group from the list.
func (b *builder) take(group []int) {
	for _, i := range group {
		b.used[i] = true
		if b.prev[i] >= 0 {
			b.next[b.prev[i]] = b.next[i]
		}
		if b.next[i] < len(b.tickets) {
			b.prev[b.next[i]] = b.prev[i]
		}
	}
}

func (b *builder) free(group []int) bool {
	return !slices.ContainsFunc(group, func(i int) bool { return b.used[i] })
}

// gathered is a group in the making.
type gathered struct {
	b         *builder
	line      lineup
	members   []int
	low, high int // rating
	patient   bool
}

func (g *gathered) spreadWith(i int) int {
	r := g.b.tickets[i].Rating
	return max(g.high, r) - min(g.low, r)
}

func (g *gathered) add(i int) bool {
	t := g.b.tickets[i]
	if !g.line.add(t.Ticket) {
		return false
	}
	if len(g.members) == 0 {
		g.low, g.high = t.Rating, t.Rating
	}
	g.members = append(g.members, i)
	g.low, g.high = min(g.low, t.Rating), max(g.high, t.Rating)
	g.patient = g.patient || t.Waited >= g.b.q.Patience
	return true
}

// build gathers the nearest tickets that fit around a seed, or returns nil if they are too few. It looks at a bounded
// number of neighbours, so that its cost does not depend on how many wait.
func (b *builder) build(seed int) []int {
	if b.used[seed] {
		return nil
	}
	g := &gathered{b: b, line: newLineup(b.q)}
	if !g.add(seed) {
		return nil
	}
	smaller := 0 // members of the largest group so far that is enough for tickets past their patience
	left, right := b.prev[seed], b.next[seed]
	for looked := 0; looked < 8*b.q.Max+64; looked++ {
		if g.line.complete(b.q.Target) {
			return g.members
		}
		if g.patient && g.line.complete(b.q.Min) {
			smaller = len(g.members)
		}
		i := right
		switch {
		case left < 0 && right >= len(b.tickets):
			looked = 8*b.q.Max + 64
			continue
		case right >= len(b.tickets), left >= 0 && b.tickets[seed].Rating-b.tickets[left].Rating <=
			b.tickets[right].Rating-b.tickets[seed].Rating:
			i, left = left, b.prev[left]
		default:
			right = b.next[right]
		}
		if b.accepts == nil || b.accepts(g, i) {
			g.add(i)
		}
	}
	if g.line.complete(b.q.Target) {
		return g.members
	}
	if smaller == 0 {
		return nil
	}
	return g.members[:smaller]
}

// cheapest returns groups around every ticket that is left, cheapest first, of those whose spread their windows allow.
func (b *builder) cheapest() [][]int {
	type offer struct {
		group []int
		cost  float64
	}
	var offers []offer
	for i := range b.tickets {
		g := b.build(i)
		if g == nil {
			continue
		}
		low, high, windows := b.tickets[g[0]].Rating, b.tickets[g[0]].Rating, 0
		for _, m := range g {
			low, high = min(low, b.tickets[m].Rating), max(high, b.tickets[m].Rating)
			windows += b.windows[m]
		}
		if cost := float64(high-low) - 2*float64(windows)/float64(len(g)); cost <= 0 {
			offers = append(offers, offer{g, cost})
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(a.cost, b.cost) })
	groups := make([][]int, len(offers))
	for i, o := range offers {
		groups[i] = o.group
	}
	return groups
}

// lineup puts tickets on teams; a queue without teams has one.
type lineup struct {
	q       Queue
	teams   []team
	players int
	names   map[string]bool // of the players; nil for none
}

type team struct {
	tickets []string
	size    int
	rating  int
	roles   map[string]int
}

func newLineup(q Queue) lineup { return lineup{q: q, teams: make([]team, max(q.Teams, 1))} }

// add puts a ticket on the smallest team that has room for all of it, of two such on the one that is rated lower, or
// returns false. No lineup has a player twice.
func (l *lineup) add(t Ticket) bool {
	if l.repeats(t) {
		return false
	}
	best := -1
	for i := range l.teams {
		if !l.fits(&l.teams[i], t) {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(l.teams[i].size, l.teams[best].size),
			cmp.Compare(l.teams[i].rating, l.teams[best].rating)) < 0 {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	to := &l.teams[best]
	to.tickets = append(to.tickets, t.ID)
	to.size += len(t.Players)
	to.rating += len(t.Players) * t.Rating
	l.players += len(t.Players)
	if l.names == nil {
		l.names = make(map[string]bool, l.q.Max)
	}
	for _, p := range t.Players {
		l.names[p.ID] = true
		if p.Role != "" && l.q.Roles != nil {
			if to.roles == nil {
				to.roles = make(map[string]int)
			}
			to.roles[p.Role]++
		}
	}
	return true
}

// repeats reports whether a player of a ticket is in the lineup already.
func (l *lineup) repeats(t Ticket) bool {
	return slices.ContainsFunc(t.Players, func(p Player) bool { return l.names[p.ID] })
}

func (l *lineup) fits(to *team, t Ticket) bool {
	if to.size+len(t.Players) > l.q.Max/len(l.teams) {
		return false
	}
	if l.q.Roles == nil {
		return true
	}
	// Players of any role fill what the others leave: the roles of a team add up to its size.
	count := make(map[string]int, len(t.Players))
	for _, p := range t.Players {
		if count[p.Role]++; p.Role != "" && to.roles[p.Role]+count[p.Role] > l.q.Roles[p.Role] {
			return false
		}
	}
	return true
}

// complete reports whether there are enough players on teams of one size.
func (l *lineup) complete(enough int) bool {
	if l.players < enough {
		return false
	}
	return !slices.ContainsFunc(l.teams, func(t team) bool { return t.size != l.teams[0].size })
}
