package simulation

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// caught runs a mutant until a seed shows it, at most most seeds, and says how many that took and by which
// checks.
func caught(t *testing.T, o Options, most int) (seed int, checks []string) {
	t.Helper()
	for n := range seeds(t, most) {
		r := simulate(t, uint64(n)+1, o)
		names := map[string]bool{}
		for _, v := range r.Violations {
			names[v.Check] = true
		}
		if len(names) > 0 {
			return n + 1, slices.Sorted(maps.Keys(names))
		}
	}
	t.Fatalf("mutant %q survived %d seeds", o.Mutant, most)
	return 0, nil
}

func TestMutantsExplore(t *testing.T) {
	for _, m := range []Mutant{NoEpochComparison, NoPositionCheck, NoChain, NoDigest, WaitSkipped, ExpiryIsEpochZero, ReleaseForgets} {
		t.Run(string(m), func(t *testing.T) {
			byCheck := map[string]int{}
			runs := 0
			for _, s := range seeds(t, 60) {
				r := simulate(t, s, Options{Mutant: m})
				names := map[string]bool{}
				for _, v := range r.Violations {
					names[v.Check] = true
				}
				for n := range names {
					byCheck[n]++
				}
				if len(names) > 0 {
					runs++
				}
			}
			var text []string
			for _, n := range slices.Sorted(maps.Keys(byCheck)) {
				text = append(text, n)
			}
			t.Log(runs, byCheck, strings.Join(text, ", "))
		})
	}
}
