// Package seed gives randomised tests numbers to draw from, and says how to draw from them again.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Of returns the seed of a test: the environment variable TILEFENCE_SEED, or a random number. It logs the command that
// repeats the run.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed, given := number(t, "TILEFENCE_SEED")
	if !given {
		seed = rand.Uint64()
	}
	t.Logf("rerun: TILEFENCE_SEED=%d go test -run '^%s$'", seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
	return seed
}

// Rand returns a source of random numbers seeded with Of.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Of(t), 0))
}

// Many returns n seeds, of which the test names the one that fails: the environment variable TILEFENCE_SEED alone, or
// as many as TILEFENCE_SEEDS says; a tenth of n in a short test.
func Many(t testing.TB, n int) []uint64 {
	t.Helper()
	if seed, given := number(t, "TILEFENCE_SEED"); given {
		return []uint64{seed}
	}
	if more, given := number(t, "TILEFENCE_SEEDS"); given {
		n = int(more)
	} else if testing.Short() {
		n = 1 + n/10
	}
	t.Logf("a failure names its seed; rerun: TILEFENCE_SEED=<seed> go test -run '^%s$'; "+
		"TILEFENCE_SEEDS=<n> for more than %d", t.Name(), n)
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = rand.Uint64()
	}
	return seeds
}

// number reads an environment variable.
func number(t testing.TB, name string) (n uint64, given bool) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}
