package match_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/admission/match"
)

func candidate(id string, rating int, waited time.Duration, roles ...string) match.Candidate {
	c := match.Candidate{Ticket: match.Ticket{ID: id, Rating: rating}, Waited: waited}
	if len(roles) == 0 {
		roles = []string{""}
	}
	for i, r := range roles {
		c.Players = append(c.Players, match.Player{ID: fmt.Sprint(id, "-", i), Role: r})
	}
	return c
}

// TestWindowGrows has the figures that the package documentation gives.
func TestWindowGrows(t *testing.T) {
	for waited, want := range map[time.Duration]int{0: 50, 10 * time.Second: 150, 44 * time.Second: 490,
		45 * time.Second: 500, time.Hour: 500} {
		require.Equal(t, want, match.Window{}.Window(waited), waited)
	}
	require.Equal(t, 20, match.Window{Initial: 20, Growth: -1}.Window(time.Hour))
	require.Equal(t, 200, match.Batch{}.Window(0))
	require.Equal(t, 400, match.Batch{}.Window(10*time.Second))
}

// queues are rules of every kind.
var queues = []match.Queue{
	{Name: "q", Max: 2}, {Name: "q", Max: 8}, {Name: "q", Max: 8, Target: 4, Min: 2},
	{Name: "q", Max: 8, Teams: 2}, {Name: "q", Max: 10, Teams: 2, Min: 4, Target: 8},
	{Name: "q", Max: 12, Teams: 4, Min: 4},
	{Name: "q", Max: 6, Teams: 2, Roles: map[string]int{"tank": 1, "heal": 1, "hit": 1}},
	{Name: "q", Max: 3, Roles: map[string]int{"tank": 1, "hit": 2}}, {Name: "q", Max: 4, Same: []string{"map"}},
	{Name: "q", Max: 20, Min: 5},
}

func drawCandidates(t *rapid.T, q match.Queue) (all []match.Candidate) {
	roles := []string{""}
	for r := range q.Roles {
		roles = append(roles, r)
	}
	slices.Sort(roles)
	for i := range rapid.IntRange(0, 60).Draw(t, "tickets") {
		c := candidate(fmt.Sprint("t", i), rapid.IntRange(1000, 2500).Draw(t, "rating"),
			time.Duration(rapid.IntRange(0, 90).Draw(t, "waited"))*time.Second)
		c.Attributes = map[string]string{"map": rapid.SampledFrom([]string{"ice", "sand"}).Draw(t, "map")}
		if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
			c.Players, c.Backfill = nil, &match.Backfill{Tile: 7, Open: rapid.IntRange(1, 4).Draw(t, "open")}
			all = append(all, c)
			continue
		}
		size := 1
		if rapid.IntRange(0, 3).Draw(t, "party") == 0 {
			size = rapid.IntRange(1, q.Max/max(q.Teams, 1)).Draw(t, "size")
		}
		c.Players, size = nil, min(size, q.Max/max(q.Teams, 1))
		for p := range size {
			role := ""
			if size == 1 {
				role = rapid.SampledFrom(roles).Draw(t, "role")
			}
			c.Players = append(c.Players, match.Player{ID: fmt.Sprint(i, "-", p), Role: role})
		}
		all = append(all, c)
	}
	return all
}

// TestFormKeepsTheRules: whatever the tickets and the rules, each ticket is in one match or in none, and explained;
// each match keeps the sizes, teams, roles, attributes and windows.
func TestFormKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := rapid.SampledFrom(queues).Draw(t, "queue")
		q.Strategy = rapid.SampledFrom([]match.Strategy{match.Window{}, match.Batch{}}).Draw(t, "strategy")
		all := drawCandidates(t, q)
		before := fmt.Sprint(all)
		matches, unmatched, err := match.Form(q, all)
		require.NoError(t, err)
		require.Equal(t, before, fmt.Sprint(all), "it changes its arguments")
		by, seen := make(map[string]match.Candidate), make(map[string]bool)
		for _, c := range all {
			by[c.ID] = c
		}
		once := func(id string) {
			require.Contains(t, by, id)
			require.False(t, seen[id], "ticket %s twice", id)
			seen[id] = true
		}
		for _, u := range unmatched {
			once(u.Ticket)
			require.NotEqual(t, match.NotSeen, u.Why.Reason)
			require.NotEmpty(t, u.Why.String())
		}
		for _, m := range matches {
			for _, ticket := range m.Tickets {
				once(ticket.ID)
			}
			checkMatch(t, q, m, by)
		}
		require.Len(t, seen, len(all))
	})
}

func checkMatch(t *rapid.T, q match.Queue, m match.Match, by map[string]match.Candidate) {
	low, high, window, patient, sum := 1<<30, -1<<30, 0, false, 0
	for _, ticket := range m.Tickets {
		c := by[ticket.ID]
		low, high = min(low, c.Rating), max(high, c.Rating)
		w := q.Strategy.Window(c.Waited)
		window, sum = max(window, w), sum+w
		patient = patient || c.Waited >= 15*time.Second
		if q.Same != nil {
			require.Equal(t, by[m.Tickets[0].ID].Attributes["map"], c.Attributes["map"])
		}
	}
	require.Equal(t, high-low, m.Spread)
	if m.Tile != 0 {
		battle := m.Tickets[len(m.Tickets)-1]
		require.LessOrEqual(t, m.Players(), battle.Backfill.Open)
		require.Positive(t, m.Players())
		return
	}
	switch q.Strategy.(type) {
	case match.Window:
		require.LessOrEqual(t, m.Spread, window, "outside the window of the one that chose")
	case match.Batch:
		require.LessOrEqual(t, m.Spread, 2*sum/len(m.Tickets)+1)
	}
	target, least := q.Target, q.Min
	if target == 0 {
		target = q.Max
	}
	if least == 0 || !patient {
		least = target
	}
	require.LessOrEqual(t, m.Players(), q.Max)
	require.GreaterOrEqual(t, m.Players(), least)
	checkTeams(t, q, m)
}

func checkTeams(t *rapid.T, q match.Queue, m match.Match) {
	byID, teams := make(map[string]match.Ticket), m.Teams
	for _, ticket := range m.Tickets {
		byID[ticket.ID] = ticket
	}
	if q.Teams == 0 {
		require.Nil(t, m.Teams)
		teams = [][]string{nil}
		for id := range byID {
			teams[0] = append(teams[0], id)
		}
	} else {
		require.Len(t, m.Teams, q.Teams)
	}
	on := 0
	for _, team := range teams {
		size, roles := 0, map[string]int{}
		for _, id := range team {
			on++
			size += len(byID[id].Players)
			for _, p := range byID[id].Players {
				roles[p.Role]++
			}
		}
		require.Equal(t, m.Players()/len(teams), size, "teams of different sizes")
		for role, n := range roles {
			if role != "" {
				require.LessOrEqual(t, n, q.Roles[role])
			}
		}
	}
	require.Equal(t, len(m.Tickets), on)
}

// TestBatchIsNoWorseThanPairing: if everybody is matched, the sum of the spreads is that of sorting and pairing, which
// is the least there is.
func TestBatchIsNoWorseThanPairing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ratings := rapid.SliceOfN(rapid.IntRange(1000, 1300), 2, 80).Draw(t, "ratings")
		ratings = ratings[:len(ratings)/2*2]
		var all []match.Candidate
		for i, r := range ratings {
			all = append(all, candidate(fmt.Sprint("t", i), r, time.Second))
		}
		matches, unmatched, err := match.Form(match.Queue{Name: "q", Max: 2, Strategy: match.Batch{}}, all)
		require.NoError(t, err)
		require.Empty(t, unmatched)
		slices.Sort(ratings)
		want, got := 0, 0
		for i := 0; i < len(ratings); i += 2 {
			want += ratings[i+1] - ratings[i]
		}
		for _, m := range matches {
			got += m.Spread
		}
		require.Equal(t, want, got)
	})
}

// TestTargetSize: least spread makes groups of the target, not pairs.
func TestTargetSize(t *testing.T) {
	var all []match.Candidate
	for i := range 40 {
		all = append(all, candidate(fmt.Sprint("t", i), 1500+i, 0))
	}
	for _, s := range []match.Strategy{match.Window{}, match.Batch{}} {
		for _, size := range []int{2, 3, 4, 5, 8, 10, 20} {
			matches, unmatched, err := match.Form(match.Queue{Name: "q", Max: size, Min: 2, Strategy: s}, all)
			require.NoError(t, err)
			require.Len(t, matches, 40/size, "%T %d", s, size)
			require.Len(t, unmatched, 40%size)
		}
	}
}

// TestPatience: a group smaller than the target is accepted by those who have waited, and not before.
func TestPatience(t *testing.T) {
	for _, s := range []match.Strategy{match.Window{}, match.Batch{}} {
		q := match.Queue{Name: "q", Max: 8, Min: 2, Strategy: s, Patience: 5 * time.Second}
		matches, unmatched, err := match.Form(q, []match.Candidate{candidate("a", 1500, 4*time.Second),
			candidate("b", 1500, 0), candidate("c", 1500, 0)})
		require.NoError(t, err)
		require.Empty(t, matches)
		require.Equal(t, match.TooFew, unmatched[0].Why.Reason)
		matches, _, err = match.Form(q, []match.Candidate{candidate("a", 1500, 5*time.Second), candidate("b", 1500, 0),
			candidate("c", 1500, 0)})
		require.NoError(t, err)
		require.Len(t, matches, 1)
		require.Len(t, matches[0].Tickets, 3)
	}
}

// TestAgeCounts: with three tickets for one pair the one who waits is not left out for ever, although the others are
// nearer to each other.
func TestAgeCounts(t *testing.T) {
	for _, s := range []match.Strategy{match.Window{}, match.Batch{}} {
		var matched []string
		for waited := 0; waited < 60 && !slices.Contains(matched, "old"); waited++ {
			matches, _, err := match.Form(match.Queue{Name: "q", Max: 2, Strategy: s}, []match.Candidate{
				candidate("old", 1900, time.Duration(waited)*time.Second), candidate("a", 1510, 10*time.Second),
				candidate("b", 1500, 10*time.Second)})
			require.NoError(t, err)
			matched = nil
			for _, m := range matches {
				matched = append(matched, m.Tickets[0].ID, m.Tickets[1].ID)
			}
		}
		require.Contains(t, matched, "old", "%T", s)
	}
}

// TestNobodyStarves plays a queue for five minutes of its own time: players of all ratings come, and a few far from all
// others. Everybody is matched within a bounded wait.
func TestNobodyStarves(t *testing.T) {
	for _, s := range []match.Strategy{match.Window{}, match.Batch{}} {
		random := rand.New(rand.NewPCG(3, 4))
		var waiting []match.Candidate
		longest, n := time.Duration(0), 0
		for second := range 300 {
			for range 4 {
				rating := int(1500 + 200*random.NormFloat64())
				if second < 200 && random.IntN(50) == 0 {
					rating = 2400
				}
				n++
				waiting = append(waiting, candidate(fmt.Sprint("t", n), rating, 0))
			}
			matches, _, err := match.Form(match.Queue{Name: "q", Max: 2, Strategy: s}, waiting)
			require.NoError(t, err)
			gone := make(map[string]bool)
			for _, m := range matches {
				for _, ticket := range m.Tickets {
					gone[ticket.ID] = true
				}
			}
			waiting = slices.DeleteFunc(waiting, func(c match.Candidate) bool { return gone[c.ID] })
			for i := range waiting {
				waiting[i].Waited += time.Second
				longest = max(longest, waiting[i].Waited)
			}
		}
		t.Logf("%T: of %d players %d wait at the end, the longest wait was %v", s, n, len(waiting), longest)
		require.Less(t, longest, 75*time.Second)
	}
}

// TestWhy: each reason.
func TestWhy(t *testing.T) {
	why := func(q match.Queue, id string, all ...match.Candidate) match.Why {
		t.Helper()
		_, unmatched, err := match.Form(q, all)
		require.NoError(t, err)
		for _, u := range unmatched {
			if u.Ticket == id {
				return u.Why
			}
		}
		t.Fatalf("%s was matched", id)
		return match.Why{}
	}
	pair := match.Queue{Name: "q", Max: 2}
	require.Equal(t, match.Why{Reason: match.Alone, Window: 50}, why(pair, "a", candidate("a", 1, 0)))
	require.Equal(t, match.Why{Reason: match.OutOfWindow, Window: 60, Candidates: 1, Nearest: 99},
		why(pair, "a", candidate("a", 1, time.Second), candidate("b", 100, 0)))
	require.Equal(t, match.TooFew,
		why(match.Queue{Name: "q", Max: 3}, "a", candidate("a", 1, 0), candidate("b", 2, 0)).Reason)
	roles := match.Queue{Name: "q", Max: 2, Roles: map[string]int{"tank": 1, "heal": 1}}
	got := why(roles, "a", candidate("a", 1, 0, "tank"), candidate("b", 2, 0, "tank"))
	require.Equal(t, match.RoleMissing, got.Reason)
	require.Equal(t, []string{"heal"}, got.Roles)
	require.Contains(t, got.String(), "heal")
	apart := match.Queue{Name: "q", Max: 2, Same: []string{"map"}}
	b := candidate("b", 1, 0)
	b.Attributes = map[string]string{"map": "ice"}
	require.Equal(t, match.Alone, why(apart, "a", candidate("a", 1, 0), b).Reason)
}

// TestBackfill: a running battle gets the nearest players it has room for, before others are matched.
func TestBackfill(t *testing.T) {
	battle := match.Candidate{Ticket: match.Ticket{ID: "battle", Rating: 1500,
		Backfill: &match.Backfill{Tile: 9, Open: 3}}}
	matches, unmatched, err := match.Form(match.Queue{Name: "q", Max: 8}, []match.Candidate{battle,
		candidate("a", 1510, 0), candidate("pair", 1490, 0, "", ""), candidate("far", 1600, 0),
		candidate("b", 1520, 0)})
	require.NoError(t, err)
	require.Len(t, matches, 1)
	require.EqualValues(t, 9, matches[0].Tile)
	require.Equal(t, 3, matches[0].Players())
	require.Len(t, unmatched, 2)
}

func BenchmarkForm(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	var all []match.Candidate
	for i := range 500 {
		all = append(all, candidate(fmt.Sprint("t", i), int(1500+300*random.NormFloat64()), 0))
	}
	for _, s := range []match.Strategy{match.Window{}, match.Batch{}} {
		for _, q := range []match.Queue{{Name: "q", Max: 2}, {Name: "q", Max: 8, Teams: 2}} {
			q.Strategy = s
			b.Run(fmt.Sprintf("%T/%d", s, q.Max), func(b *testing.B) {
				for b.Loop() {
					_, _, _ = match.Form(q, all)
				}
			})
		}
	}
}
