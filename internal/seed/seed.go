// Package seed gives randomised tests a number to draw from, and says how to draw from it again.
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
	seed := rand.Uint64()
	if text := os.Getenv("TILEFENCE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TILEFENCE_SEED: %v", err)
		}
	}
	t.Logf("rerun: TILEFENCE_SEED=%d go test -run '^%s$'", seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
	return seed
}

// Rand returns a source of random numbers seeded with Of.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Of(t), 0))
}
