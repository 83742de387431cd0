package simulation

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// raced says that the race detector is on, under which Go's scheduler is random.
var raced bool

// trace is a run's history as JSON lines.
func trace(t *testing.T, r *Result) (lines []string) {
	t.Helper()
	for _, rec := range r.History.Records {
		line, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	return lines
}

// TestEqualSeedsGiveEqualTraces: byte for byte, so that a seed that fails can be looked into. The digest that it logs
// is the same in every process of a build.
func TestEqualSeedsGiveEqualTraces(t *testing.T) {
	if repeats == nil || raced {
		t.Skip("only what package seeded builds repeats a run, without the race detector: make simulation")
	}
	list, digest := seeds(t, 25), sha256.New()
	for _, seed := range list {
		o := Options{Restores: seed%2 == 0, Loses: seed%4 == 0, Watched: seed%3 != 0, Paid: seed%3 != 1}
		one, two := simulate(t, seed, o), simulate(t, seed, o)
		if !same(t, seed, trace(t, &one), trace(t, &two)) {
			t.Errorf("seed %d gives different runs", seed)
		}
		for _, line := range trace(t, &one) {
			_, _ = digest.Write([]byte(line)) // never fails
		}
	}
	t.Logf("%d seeds twice, SHA-256 of the records: %x", len(list), digest.Sum(nil))
}

// same compares two traces, and logs where they differ.
func same(t *testing.T, seed uint64, one, two []string) bool {
	if slices.Equal(one, two) {
		return true
	}
	i := 0
	for i < min(len(one), len(two)) && one[i] == two[i] {
		i++
	}
	t.Logf("seed %d: record %d of %d and %d differs:\n%s", seed, i, len(one), len(two),
		strings.Join(slices.Concat(one[i:min(i+1, len(one))], two[i:min(i+1, len(two))]), "\n"))
	return false
}

// keep writes a run's history, as JSON lines, to the directory in TILEFENCE_HISTORY, if that is set.
func keep(t *testing.T, r *Result) {
	t.Helper()
	dir := os.Getenv("TILEFENCE_HISTORY")
	if dir == "" {
		return
	}
	path := filepath.Join(dir, "history.jsonl")
	_ = os.Remove(path) // of the run before
	file, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range r.History.Records {
		if err := file.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("history: %s", path)
}
