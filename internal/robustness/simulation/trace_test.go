package simulation

import (
	"os"
	"path/filepath"
	"testing"

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
