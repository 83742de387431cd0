package simulation

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

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

// TestSeedsRepeat runs seeds twice and compares what each client asked, and what it was answered, claim IDs
// aside. Clients that one event wakes at the same nanosecond go on in any order, and now and then that matters;
// so a few seeds may differ.
func TestSeedsRepeat(t *testing.T) {
	different := 0
	list := seeds(t, 10)
	for _, seed := range list {
		if !assert.ObjectsAreEqual(outline(t, simulate(t, seed, Options{})), outline(t, simulate(t, seed, Options{}))) {
			t.Logf("seed %d differs", seed)
			different++
		}
	}
	assert.LessOrEqual(t, different, len(list)/3)
}

// outline is each client's operations by kind, without what must differ.
func outline(t *testing.T, r Result) map[string][]string {
	t.Helper()
	lines := map[string][]string{}
	for _, o := range r.History.Operations {
		rec := o.Record
		rec.At, rec.Op, rec.Result = 0, 0, &o.Result
		if rec.Claim != nil {
			rec.Claim.ID = ""
		}
		if rec.Row != nil {
			rec.Row.ID = ""
		}
		rec.Result.Err = "" // names the claim
		if rec.Result.Grant != nil {
			rec.Result.Grant.ID = ""
		}
		line, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		key := rec.Client + " " + string(rec.Kind)
		lines[key] = append(lines[key], string(line))
	}
	return lines
}
