package spec

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What crosses a border. The steps are those of the tiles' own code: package transfer is what an owner acts by.

// crossingScene is what may happen, and what that is called.
type crossingScene struct {
	name string
	crossing
}

// crossings are searched by make test: in each state every entity is in one place, and from each a run without
// faults ends with all of them in a tile, none under way, and no refusal remembered.
var crossings = []crossingScene{
	{"there and back, an owner dies", crossing{tiles: 2, entities: "x", crossings: 2, deaths: 1}},
	{"there and back, with the master", crossing{tiles: 2, entities: "x", crossings: 2, tails: 1}},
	{"two entities", crossing{tiles: 2, entities: "xy", crossings: 2}},
	{"two entities, an owner dies", crossing{tiles: 2, entities: "xy", crossings: 2, deaths: 1}},
	{"two ways", crossing{tiles: 2, entities: "x/y", crossings: 2, tails: 1}},
	{"two deaths", crossing{tiles: 2, entities: "x", crossings: 1, deaths: 1, tails: 1}},
	{"three tiles", crossing{tiles: 3, entities: "x", crossings: 2, tails: 1}},
	{"window of one", crossing{tiles: 2, entities: "xy", crossings: 2, window: true, tails: 1}},
	{"coins", crossing{tiles: 2, entities: "xy", crossings: 1, gifts: 1, tails: 1}},
	{"rules that fail", crossing{tiles: 2, entities: "x", crossings: 1, deaths: 1, failures: 1}},
	{"collection", crossing{tiles: 2, entities: "x", crossings: 2, sleeps: 2}},
	{"journals, a tile's copies are lost", crossing{tiles: 2, entities: "x", journals: "jj", crossings: 2, losses: 1}},
	{"journals, all is lost", crossing{tiles: 2, entities: "x", journals: "jj", crossings: 2, all: 1}},
	{"journals, coins", crossing{tiles: 2, entities: "xy", journals: "jj", crossings: 1, gifts: 1, losses: 1}},
	{"journals, three tiles", crossing{tiles: 3, entities: "x", journals: "jjj", crossings: 2, all: 1}},
	{"unlike tiles, refused", crossing{tiles: 2, entities: "x", journals: "j-", crossings: 1, losses: 1, deaths: 1}},
	{"unlike tiles, allowed", crossing{tiles: 2, entities: "x", journals: "j-", mixed: true, crossings: 2, tails: 1}},
}

// wideCrossings are searched by make spec too.
var wideCrossings = []crossingScene{
	{"three crossings", crossing{tiles: 2, entities: "x", crossings: 3, deaths: 1, tails: 1, wire: 2}},
	{"three entities", crossing{tiles: 2, entities: "xyz", crossings: 3, wire: 2}},
	{"three tiles, two entities", crossing{tiles: 3, entities: "x/y", crossings: 3, tails: 1}},
	{"journals, three tiles, twice", crossing{tiles: 3, entities: "x", journals: "jjj", crossings: 3, losses: 2}},
	{"journals, a loss and all", crossing{tiles: 2, entities: "xy", journals: "jj", crossings: 2, gifts: 1, losses: 1,
		all: 1}},
	{"rules that fail, two entities", crossing{tiles: 2, entities: "xy", crossings: 3, tails: 1, failures: 2}},
	{"collection, two entities", crossing{tiles: 2, entities: "x/y", crossings: 3, sleeps: 3, deaths: 1}},
}

// mostSailed is how many states of each a search visits, in make test and by make spec. The latter take some 3 GB.
const mostSailed, mostSailedWide = 8_000, 1_000_000

func TestEachEntityIsInOnePlace(t *testing.T) {
	unraced(t)
	in, most := crossings, mostSailed
	if inWide() {
		in, most = slices.Concat(crossings, wideCrossings), mostSailedWide
	}
	total, began := 0, time.Now()
	for _, s := range in {
		f := s.sail("", most)
		total += f.states
		assert.Empty(t, f.wrong, s.name)
		t.Logf("%-42s %8d states, all that there are: %v", s.name, f.states, f.whole)
	}
	t.Logf("%d states in %v", total, time.Since(began).Round(time.Millisecond))
}

// TestEachRuleOfABorderIsNeeded takes one rule after another out. Each must show, by a state that is wrong or that does
// not come to rest.
func TestEachRuleOfABorderIsNeeded(t *testing.T) {
	unraced(t)
	two := crossing{tiles: 2, entities: "xy", crossings: 2, tails: 1, wire: 2}
	sleeps := crossing{tiles: 2, entities: "x", crossings: 2, sleeps: 2}
	fails := crossing{tiles: 2, entities: "x", crossings: 1, deaths: 1, failures: 1}
	journals := crossing{tiles: 2, entities: "x", journals: "jj", crossings: 2, losses: 1}
	for _, n := range []struct {
		rule  Rule
		in    crossing
		shows string
	}{
		{PresentsStable, two, "in 2 places"},
		{AnswersStable, two, "in 0 places"},
		{JournalSpoken, journals, "in 2 places"},
		{DecidedOnce, two, "in 2 places"},
		{FollowsMark, two, "in 0 places"},
		{RefusalsKept, two, "in 0 places"},
		{DecidedFirst, two, "in 0 places"},
		{ParkedKept, fails, "in 0 places"},
		{RetakenLeaves, fails, "places"},
		{MarksKept, sleeps, "in 2 places"},
		{AwakeUnderWay, sleeps, "under way still"},
		{BordersAlike, crossing{tiles: 2, entities: "x", journals: "j-", crossings: 1, losses: 1}, "in 0 places"},
		{NotCalledBack, crossing{tiles: 2, entities: "x", crossings: 1}, "in 2 places"},
	} {
		t.Run(string(n.rule), func(t *testing.T) {
			f := n.in.sail(n.rule, 40*mostSailed)
			assert.Contains(t, f.wrong, n.shows, "%d states", f.states)
			t.Logf("without it, after %d states: %s", f.states, f.wrong)
		})
	}
}

// TestWhatIsNotPromised: tiles without a journal go on from checkpoints of different ages when coordination is lost,
// and so does each of two of different kinds.
func TestWhatIsNotPromised(t *testing.T) {
	unraced(t)
	for name, s := range map[string]crossing{
		"one tile's coordination is lost": {tiles: 2, entities: "x", crossings: 1, losses: 1},
		"all of coordination is lost":     {tiles: 2, entities: "x", crossings: 1, all: 1},
		"unlike tiles, allowed": {tiles: 2, entities: "x", journals: "j-", mixed: true, crossings: 1,
			losses: 1},
		"unlike tiles, allowed, the other way": {tiles: 2, entities: "/x", journals: "j-", mixed: true, crossings: 1,
			losses: 1},
	} {
		f := s.sail("", 40*mostSailed)
		assert.NotEmpty(t, f.wrong, "%s: is it promised after all?", name)
		t.Logf("%s, after %d states: %s", name, f.states, f.wrong)
	}
}
