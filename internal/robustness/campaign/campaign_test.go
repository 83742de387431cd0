package campaign_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/robustness/campaign"
	"github.com/tilefence/tilefence/internal/seed"
)

func TestMain(m *testing.M) {
	campaign.RunWorker()
	if os.Getenv(devstack.EnvRequire) == "1" {
		campaign.EnterNamespace()
	}
	os.Exit(m.Run())
}

// TestSomeFaults breaks a system in a third of the ways there are, other ones each time, on servers that all runs
// share; make robustness breaks it in all. A finding is printed with the command that repeats its run, and its
// histories are kept.
func TestSomeFaults(t *testing.T) {
	stacktest.RequireFullTest(t)
	if testing.Short() {
		t.Skip("takes a minute")
	}
	var progress logWriter = t.Log
	rng := seed.Rand(t)
	faults := campaign.Faults()
	rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	summary, err := campaign.Run(t.Context(), campaign.Config{Seed: rng.Uint64(), Faults: faults[:len(faults)/3],
		Brief: true, ServeWithin: time.Minute, Progress: progress})
	require.NoError(t, err)
	require.Len(t, summary.Results, len(summary.Config.Faults))
	require.False(t, summary.Failed(), "%s", summary.Report())
	for _, r := range summary.Results {
		if r.Skipped != "" {
			t.Logf("not tried: %s: %s", r.Fault.Name, r.Skipped)
		}
	}
}

// logWriter writes lines to a test's log.
type logWriter func(...any)

func (w logWriter) Write(p []byte) (int, error) {
	w(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func TestFaultsAreFoundByTheirNames(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range campaign.Faults() {
		require.False(t, seen[f.Name], f.Name)
		seen[f.Name] = true
		require.NotEmpty(t, f.About)
		found, err := campaign.FindFault(f.Name)
		require.NoError(t, err)
		require.Equal(t, f.Name, found.Name)
	}
	_, err := campaign.FindFault("earthquake")
	require.ErrorContains(t, err, "owner-killed")
}
