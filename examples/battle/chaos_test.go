package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/statuspoller"
)

// TestChaos breaks everything that needs no server, in several orders, and wants every view to converge, every
// tile to have recovered, and every card to have one outcome.
func TestChaos(t *testing.T) {
	t.Parallel()
	for _, seed := range []int{3, 8, 22} { // the first five faults of these are, together, of every kind
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := checkChaos(t, 5, "-stack", "embedded", "-seed", fmt.Sprint(seed), "-chaos-every", "300ms",
				"-durability", "write-behind")
			if lost := r.Chaos.Kinds["coordination lost"]; lost == nil {
				assert.Zero(t, r.Servers["tile_heals_total/rebased"], "nothing else here can take a history away")
			} else {
				assert.Positive(t, r.Servers["tile_heals_total/rebased"])
			}
		})
	}
}

// TestChaosOnServers also breaks the servers.
func TestChaosOnServers(t *testing.T) {
	stacktest.RequireFullTest(t)
	t.Parallel()
	r := checkChaos(t, 7, "-stack", "local", "-world", "two", "-chaos-every", "300ms",
		"-durability", "write-behind") // so that ships outlive the loss of all coordination, whatever was under way
	assert.Positive(t, r.Servers["relay_shared_total"], "views are read by way of the Redis of the views")
	servers := 0
	for _, k := range []faultinject.Kind{faultinject.MasterPaused, faultinject.MasterKilled,
		faultinject.OwnerAndMasterKilled, faultinject.ReplicaPaused,
		faultinject.ReplicaKilled, faultinject.AuthorityPaused, faultinject.AuthorityKilled, faultinject.FanoutPaused,
		faultinject.ViewsKilled, faultinject.CoordinationLost, faultinject.FunctionsFlushed} {
		if r.Chaos.Kinds[k.Title] != nil {
			servers += r.Chaos.Kinds[k.Title].Count
		}
	}
	assert.Positive(t, servers)
}

// checkChaos plays a battle until so many things were broken and put right, and checks what must hold whatever it was.
func checkChaos(t *testing.T, faults int, args ...string) measure.Report {
	p := play(t, append([]string{"-chaos", "-tiles", "4", "-clients", "24", "-tick", "100ms"}, args...)...)
	broken := p.watch(t, func(s statuspoller.Status) bool { return s.Chaos != nil && s.Chaos.Fault != nil })
	assert.NotEmpty(t, broken.Chaos.Fault.Kind)
	assert.NotEmpty(t, broken.Chaos.Fault.Means)
	assert.NotEmpty(t, broken.Chaos.Systems)
	p.watch(t, func(s statuspoller.Status) bool {
		return s.Chaos.Faults > faults || s.Chaos.Faults == faults && s.Chaos.Fault.Over > 0
	})
	p.counts(t, "admission_settles_total")
	p.counts(t, "tile_crossings_total")
	r := p.end(t)
	require.NotNil(t, r.Chaos)
	assert.GreaterOrEqual(t, r.Chaos.Faults, faults)
	assert.True(t, r.Converged, r.Why)
	assert.Zero(t, r.Chaos.Unrecovered)
	require.NotNil(t, r.Census)
	assert.NoError(t, r.Census.Err())
	require.NotNil(t, r.Lobby)
	assert.Empty(t, r.Lobby.Why)
	if parted := r.Chaos.Kinds["owner cut off"]; parted != nil {
		assert.Positive(t, parted.Detection, "others have taken its tiles")
	}
	if dead := r.Chaos.Kinds["match worker killed"]; dead != nil {
		assert.EqualValues(t, dead.Count, r.Lobby.Killed)
	}
	assert.Zero(t, r.Ledger["unanswered"], "every card has an outcome")
	var answered int64
	for _, n := range r.Ledger {
		answered += n
	}
	assert.Equal(t, r.Cards, answered)
	assert.EqualValues(t, r.Cards, r.Audited)
	assert.Positive(t, r.Audited)
	t.Logf("%v: %d faults: %+v", args, r.Chaos.Faults, r)
	return r
}
