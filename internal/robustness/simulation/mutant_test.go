package simulation

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mutants says of each mutant within how many seeds the checks must notice it, and which of them must.
var mutants = []struct {
	mutant Mutant
	most   int
	by     string
}{
	{NoEpochComparison, 3, "answers follow the table"},
	{NoPositionCheck, 5, "no fork"},
	{NoChain, 40, "no fork"}, // it takes two batches under one number
	{NoDigest, 3, "idempotent commits"},
	{WaitSkipped, 10, "confirmed is kept"},
	{ExpiryIsEpochZero, 10, "fails closed"},
	{ReleaseForgets, 10, "authority linearizable"},
}

// broken lists the checks that find something in a run.
func broken(r Result) []string {
	names := map[string]bool{}
	for _, v := range r.Violations {
		names[v.Check] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func TestMutantsAreCaught(t *testing.T) {
	for _, m := range mutants {
		t.Run(string(m.mutant), func(t *testing.T) {
			for seed := uint64(1); seed <= uint64(m.most); seed++ {
				require.Empty(t, simulate(t, seed, Options{}).Violations, "seed %d without the mutant", seed)
				found := broken(simulate(t, seed, Options{Mutant: m.mutant}))
				if slices.Contains(found, m.by) {
					t.Logf("caught after %d seeds by %q", seed, found)
					return
				}
			}
			assert.Fail(t, "the mutant survives", "%d seeds, wanted %q", m.most, m.by)
		})
	}
}
