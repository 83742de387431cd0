package match

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Form makes matches from claimed tickets by the rules of a queue, and explains for each other ticket why it has none.
// Backfills are served first, those that have waited longest before others. No player is in two matches, or twice in
// one: of tickets that have a player in common the one that has waited longest is looked at. The matches have no
// ID yet. It is a pure function of its arguments. Errors: a *fence.ArgumentError for rules that cannot be kept;
// *DeniedErrors, joined, for groups of the Strategy that were refused, with the matches of the others.
func Form(q Queue, tickets []Candidate) ([]Match, []Unmatched, error) {
	q, err := q.checked()
	if err != nil {
		return nil, nil, err
	}
	return form(q, tickets)
}

func form(q Queue, tickets []Candidate) (matches []Match, unmatched []Unmatched, err error) {
	var keys []string
	var refused []error
	groups := make(map[string][]Candidate)
	tickets, twice := distinct(tickets)
	for _, t := range twice {
		unmatched = append(unmatched, Unmatched{t.ID, Why{Reason: Superseded}})
	}
	for _, t := range tickets {
		k := q.group(t.Ticket)
		if _, known := groups[k]; !known {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], t)
	}
	slices.Sort(keys)
	for _, k := range keys {
		made, left, bad := formAlike(q, groups[k])
		refused = append(refused, bad...)
		matches = append(matches, made...)
		unmatched = append(unmatched, explain(q, left, len(groups[k])-1)...)
	}
	return matches, unmatched, errors.Join(refused...)
}

// distinct parts tickets so that the first have no player in common. A store that keeps its promise gives no others.
func distinct(tickets []Candidate) (first, twice []Candidate) {
	seen, waited := make(map[string]bool, len(tickets)), slices.Clone(tickets)
	slices.SortStableFunc(waited, func(a, b Candidate) int { return cmp.Compare(b.Waited, a.Waited) })
	for _, t := range waited {
		if slices.ContainsFunc(t.Players, func(p Player) bool { return seen[p.ID] }) {
			twice = append(twice, t)
			continue
		}
		for _, p := range t.Players {
			seen[p.ID] = true
		}
		first = append(first, t)
	}
	return first, twice
}

// formAlike makes matches of tickets that agree on the attributes that matter.
func formAlike(q Queue, tickets []Candidate) (matches []Match, left []Candidate, refused []error) {
	sorted := slices.Clone(tickets)
	slices.SortFunc(sorted, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Rating, b.Rating), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.ID, b.ID))
	})
	var battles []Candidate
	sorted = slices.DeleteFunc(sorted, func(t Candidate) bool {
		if t.Backfill != nil {
			battles = append(battles, t)
		}
		return t.Backfill != nil
	})
	for _, i := range oldestFirst(battles) {
		m, rest := fill(q, battles[i], sorted)
		if len(m.Tickets) == 0 {
			left = append(left, battles[i])
			continue
		}
		matches, sorted = append(matches, m), rest
	}
	used := make([]bool, len(sorted))
	for _, group := range q.Strategy.Form(q, sorted) {
		m, err := assemble(q, sorted, group, used)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		matches = append(matches, m)
	}
	for i, t := range sorted {
		if !used[i] {
			left = append(left, t)
		}
	}
	return matches, left, refused
}

// assemble makes a match of a group, and marks its tickets as used. Errors: ErrLineup if it breaks the rules.
func assemble(q Queue, sorted []Candidate, group []int, used []bool) (Match, error) {
	line := newLineup(q)
	m := Match{Queue: q.Name}
	taken := make(map[int]bool, len(group))
	refuse := func(detail string) (Match, error) {
		var tickets []string
		for _, i := range group {
			if i >= 0 && i < len(sorted) {
				tickets = append(tickets, sorted[i].ID)
			}
		}
		return Match{}, &DeniedError{ErrLineup,
			fmt.Sprintf("queue %s: the group %v of tickets %v: %s", q.Name, group, tickets, detail)}
	}
	for _, i := range group {
		switch {
		case i < 0 || i >= len(sorted):
			return refuse(fmt.Sprintf("%d is none of the %d tickets", i, len(sorted)))
		case used[i] || taken[i]:
			return refuse(fmt.Sprintf("ticket %s is in a match already", sorted[i].ID))
		case line.repeats(sorted[i].Ticket):
			return refuse(fmt.Sprintf("ticket %s has a player who is in it already", sorted[i].ID))
		case !line.add(sorted[i].Ticket):
			return refuse(fmt.Sprintf("ticket %s does not fit on a team", sorted[i].ID))
		}
		taken[i] = true
		m.Tickets = append(m.Tickets, sorted[i].Ticket)
	}
	if !line.complete(q.Min) {
		return refuse("it has too few players, or teams of different sizes")
	}
	for i := range taken {
		used[i] = true
	}
	m.Spread = spread(m.Tickets)
	if q.Teams > 0 {
		for _, t := range line.teams {
			m.Teams = append(m.Teams, t.tickets)
		}
	}
	return m, nil
}

// fill takes the nearest tickets for a backfill, within the window of whichever has waited longer.
func fill(q Queue, battle Candidate, sorted []Candidate) (m Match, rest []Candidate) {
	near := make([]int, len(sorted))
	for i := range near {
		near[i] = i
	}
	distance := func(i int) int { return abs(sorted[i].Rating - battle.Rating) }
	slices.SortStableFunc(near, func(a, b int) int { return cmp.Compare(distance(a), distance(b)) })
	open, window, taken := battle.Backfill.Open, q.Strategy.Window(battle.Waited), make(map[int]bool)
	for _, i := range near {
		t := sorted[i]
		if len(t.Players) <= open && distance(i) <= max(window, q.Strategy.Window(t.Waited)) {
			open -= len(t.Players)
			taken[i] = true
			m.Tickets = append(m.Tickets, t.Ticket)
		}
	}
	if len(taken) == 0 {
		return Match{}, sorted
	}
	for i, t := range sorted {
		if !taken[i] {
			rest = append(rest, t)
		}
	}
	m.Queue, m.Tile = q.Name, battle.Backfill.Tile
	m.Tickets = append(m.Tickets, battle.Ticket)
	m.Spread = spread(m.Tickets)
	return m, rest
}

func spread(tickets []Ticket) int {
	low, high := tickets[0].Rating, tickets[0].Rating
	for _, t := range tickets {
		low, high = min(low, t.Rating), max(high, t.Rating)
	}
	return high - low
}

func abs(n int) int { return max(n, -n) }

// explain says why tickets that agree on attributes were left. others is how many each was compared with.
func explain(q Queue, left []Candidate, others int) []Unmatched {
	slices.SortStableFunc(left, func(a, b Candidate) int { return cmp.Compare(a.Rating, b.Rating) })
	unmatched := make([]Unmatched, len(left))
	for i, t := range left {
		why := Why{Window: q.Strategy.Window(t.Waited), Candidates: others}
		near := false
		for _, k := range []int{i - 1, i + 1} {
			if k < 0 || k >= len(left) {
				continue
			}
			if d := abs(left[k].Rating - t.Rating); !near || d < why.Nearest {
				why.Nearest, near = d, true
			}
		}
		switch {
		case others == 0:
			why.Reason = Alone
		case near && why.Nearest > why.Window:
			why.Reason = OutOfWindow
		default:
			why.Reason = TooFew
			if why.Roles = missing(q, left, i, why.Window); len(why.Roles) > 0 && t.Backfill == nil {
				why.Reason = RoleMissing
			}
		}
		unmatched[i] = Unmatched{t.ID, why}
	}
	return unmatched
}

// missing returns the roles that too few tickets around one play, in order.
func missing(q Queue, left []Candidate, at, window int) (roles []string) {
	if q.Roles == nil {
		return nil
	}
	have, flexible := make(map[string]int), 0
	for _, t := range left {
		if abs(t.Rating-left[at].Rating) > window {
			continue
		}
		for _, p := range t.Players {
			if p.Role == "" {
				flexible++
			}
			have[p.Role]++
		}
	}
	short := 0
	for role, n := range q.Roles {
		if lack := n*max(q.Teams, 1) - have[role]; lack > 0 {
			short += lack
			roles = append(roles, role)
		}
	}
	if short <= flexible {
		return nil
	}
	slices.Sort(roles)
	return roles
}
