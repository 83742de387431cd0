//go:build unix

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

// TestTravellersSurviveTheLossOfCoordination: tiles with journals lose every copy of what coordination holds, and their
// owners with it, while travellers cross.
func TestTravellersSurviveTheLossOfCoordination(t *testing.T) {
	stacktest.RequireFullTest(t)
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	var faults []*campaign.Fault
	for _, name := range []string{"coordination-lost", "many-owners-killed"} {
		f, err := campaign.FindFault(name)
		require.NoError(t, err)
		faults = append(faults, f)
	}
	var progress logWriter = t.Log
	summary, err := campaign.Run(t.Context(), campaign.Config{Seed: seed.Rand(t).Uint64(), Faults: faults, Brief: true,
		Unbroken: 15 * time.Second, Travellers: 300, Durable: true, ServeWithin: time.Minute, Progress: progress})
	require.NoError(t, err)
	require.False(t, summary.Failed(), "%s", summary.Report())
	census := summary.Results[0].Census
	require.Equal(t, 300, census.Born)
	require.Positive(t, census.Faults["coordination-lost"])
	require.Greater(t, census.Crossings, 100)
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
