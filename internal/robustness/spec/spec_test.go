package spec

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scene is a bound, and what is searched within it.
type scene struct {
	name string
	model
}

// scenes are searched whole by make test.
var scenes = []scene{
	{"restored authority", model{bound: budget{epochs: 3, batches: 1, restores: 1}}},
	{"restored, owner hash expires", model{bound: budget{epochs: 2, batches: 1, restores: 1, expiries: 1}}},
	{"failovers", model{bound: budget{epochs: 2, batches: 1, failovers: 2}}},
	{"twins", model{bound: budget{epochs: 1, batches: 1, failovers: 1, restores: 1, expiries: 1}}},
	{"watcher", model{watcher: true, bound: budget{epochs: 2, batches: 1, failovers: 1}}},
	{"restored, failover", model{bound: budget{epochs: 2, batches: 1, failovers: 1, restores: 1}}},
	{"all lost and restored", model{bound: budget{epochs: 3, batches: 1, restores: 1, losses: 1}}},
	{"late requests", model{bound: budget{epochs: 2, batches: 2, failovers: 1, late: 1, empties: 1}}},
	{"journal restored", model{journal: true, bound: budget{epochs: 2, batches: 1, failovers: 1, losses: 1,
		jrestores: 1}}},
	{"journal", model{journal: true, bound: budget{epochs: 2, batches: 1, failovers: 1, losses: 1, crashes: 1}}},
	{"claimant dies", model{journal: true, bound: budget{epochs: 3, batches: 1, failovers: 1, crashes: 1}}},
}

// wide are searched as far as memory for mostWide states goes.
var wide = []scene{
	{"three epochs", model{bound: budget{epochs: 3, batches: 2, failovers: 2, expiries: 1}}},
	{"late rebases", model{bound: budget{epochs: 3, batches: 1, restores: 1, expiries: 1, late: 1}}},
	{"two late requests", model{bound: budget{epochs: 2, batches: 2, failovers: 2, late: 2}}},
	{"restored twice", model{bound: budget{epochs: 3, batches: 1, failovers: 1, restores: 2, expiries: 1}}},
	{"watcher of three epochs", model{watcher: true, bound: budget{epochs: 3, batches: 1, failovers: 2, restores: 1}}},
	{"journal, three epochs", model{journal: true, bound: budget{epochs: 3, batches: 1, failovers: 1, losses: 1,
		crashes: 1, jrestores: 1}}},
}

// mostWide takes some 4 GB.
const mostWide = 8_000_000

// needed are the rules without which an invariant breaks, the scene that shows it, and the one that breaks first there.
var needed = []struct {
	rule          Rule
	scene, breaks string
}{
	{PositionCompared, "failovers", confirmedKept},
	{ChainCompared, "twins", confirmedKept},
	{ClaimInInstall, "restored authority", confirmedKept},
	{GrantConditional, "journal", oneServer},
	{InstallConfirmed, "twins", oneServer},
	{CopiesCounted, "failovers", confirmedKept},
	{FilesWritten, "late requests", confirmedKept},
	{LaterOwnerCounts, "restored authority", confirmedKept},
	{WhoWentOnCounts, "all lost and restored", confirmedKept},
	{RebaseNamesWhat, "all lost and restored", confirmedKept},
	{Reappends, "late requests", ownerKeeps},
	{Immutable, "late requests", oneBatch},
	{FloorOfEpochs, "watcher", watcherClimbs},
	{PrevCompared, "watcher", watcherFolds},
	{JournalFirst, "journal", throughKept},
	{JournalFenced, "journal", throughKept},
	{SealedBeforeRead, "journal", throughKept},
	{AppendFollows, "journal restored", confirmedKept},
}

// secondLines are rules whose absence the store's refusals make good: within the bounds no invariant needs them. They
// spare an owner a repair, or a tile the wait for an epoch that the store takes.
var secondLines = []Rule{EpochCompared, AbsentIsNotZero, MintedAbove, AsksFirst}

// raced says that the race detector is on. A search is one goroutine, and takes ten times as long with it.
var raced bool

func unraced(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("one goroutine searches; the tests without the race detector do")
	}
}

// inWide says that the wide scenes are searched too.
func inWide() bool { return os.Getenv("TILEFENCE_SPEC") == "wide" }

func TestProtocolKeepsItsInvariants(t *testing.T) {
	unraced(t)
	in, most := scenes, mostWide
	if inWide() {
		in = slices.Concat(scenes, wide)
	}
	total, began := 0, time.Now()
	for i, s := range in {
		began := time.Now()
		f := s.search(most)
		total += f.states
		how := "all"
		if !f.whole {
			how = "no more"
		}
		t.Logf("%-30s %8d states, %s that there are, %d steps deep, %v: %+v", s.name, f.states, how, f.depth,
			time.Since(began).Round(time.Millisecond), s.bound)
		for _, line := range f.trace {
			t.Log(line)
		}
		require.Empty(t, f.broken)
		require.True(t, f.whole || i >= len(scenes), "the bound is meant to be searched whole")
	}
	t.Logf("%d states in %v", total, time.Since(began).Round(time.Millisecond))
}

// TestEachRuleIsNeeded takes one rule after another out of the model. Each must show, or the search proves nothing
// about it.
func TestEachRuleIsNeeded(t *testing.T) {
	unraced(t)
	for _, n := range needed {
		t.Run(string(n.rule), func(t *testing.T) {
			s := scenes[slices.IndexFunc(scenes, func(s scene) bool { return s.name == n.scene })]
			s.without = n.rule
			f := s.search(mostWide)
			assert.Equal(t, n.breaks, f.broken)
			t.Logf("without it: %q breaks after %d steps (%s; %d states)", f.broken, len(f.trace), s.name, f.states)
			for _, line := range f.trace {
				t.Log(line)
			}
		})
	}
}

func TestSecondLines(t *testing.T) {
	unraced(t)
	in := scenes[:6]
	if inWide() {
		in = scenes
	}
	for _, r := range secondLines {
		states := 0
		for _, s := range in {
			s.without = r
			f := s.search(mostWide)
			assert.Empty(t, f.broken, "%s: it is needed after all: %s", r, f.trace)
			states += f.states
		}
		t.Logf("without %q no invariant breaks in %d states", r, states)
	}
}
