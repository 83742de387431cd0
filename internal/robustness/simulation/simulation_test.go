package simulation

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// seeds gives the seeds to run: the one in TILEFENCE_SEED, or the first n (TILEFENCE_SEEDS overrides n).
func seeds(t *testing.T, n int) []uint64 {
	t.Helper()
	if text := os.Getenv("TILEFENCE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	if text := os.Getenv("TILEFENCE_SEEDS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(i) + 1
	}
	return list
}

// simulate runs one seed in a bubble.
func simulate(t *testing.T, seed uint64, o Options) (r Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { r = Run(seed, o) })
	return r
}

func TestProtocolKeepsItsPromises(t *testing.T) {
	began := time.Now()
	var total Stats
	total.Faults = map[string]int{}
	runs := 0
	for _, seed := range seeds(t, 100) {
		r := simulate(t, seed, Options{})
		runs++
		total.Actions += r.Stats.Actions
		total.Rebases += r.Stats.Rebases
		total.Reappended += r.Stats.Reappended
		total.Claimants += r.Stats.Claimants
		for name, n := range r.Stats.Faults {
			total.Faults[name] += n
		}
		for _, v := range r.Violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		if t.Failed() && os.Getenv("KEEP") == "" {
			t.Fatalf("rerun: TILEFENCE_SEED=%d go test -run '^%s$' ./internal/robustness/simulation", seed, t.Name())
		}
	}
	t.Logf("%d runs in %s: %+v", runs, time.Since(began), total)
}
