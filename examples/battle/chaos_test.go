package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestChaos breaks everything that needs no server, in several orders, and wants every view to converge, every
// tile to have recovered, and every card to have one outcome.
func TestChaos(t *testing.T) {
	t.Parallel()
	for _, seed := range []int{6, 7, 8} { // the first four faults of these are, together, of every kind
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := checkChaos(t, 12*time.Second, "-stack", "embedded", "-seed", fmt.Sprint(seed), "-chaos-every", "300ms")
			assert.GreaterOrEqual(t, r.Chaos.Faults, 3) // five or more where nothing else runs
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
	r := checkChaos(t, 25*time.Second, "-stack", "local", "-chaos-every", "300ms")
	servers := 0
	for _, f := range serverFaults() {
		if k := r.Chaos.Kinds[f.kind]; k != nil {
			servers += k.Count
		}
	}
	assert.GreaterOrEqual(t, servers, 2)
}

// checkChaos plays a battle under chaos and checks what must hold whatever was broken.
func checkChaos(t *testing.T, duration time.Duration, args ...string) report {
	var out bytes.Buffer
	errs := &screen{}
	args = append([]string{"-chaos", "-tiles", "4", "-clients", "24", "-tick", "100ms", "-duration",
		duration.String(), "-report", "json",
		"-listen", "127.0.0.1:0"}, args...)
	status := make(chan int, 1)
	go func() { status <- run(args, &out, errs) }()

	page := errs.find(t, `watch the battle:  (http://\S+/)`)
	broken := watch(t, page, func(s spectator.Status) bool { return s.Chaos != nil && s.Chaos.Fault != nil })
	assert.NotEmpty(t, broken.Chaos.Fault.Kind)
	assert.NotEmpty(t, broken.Chaos.Fault.Means)
	assert.NotEmpty(t, broken.Chaos.Systems)

	require.Equal(t, exitOK, <-status, "%v: %s", args, errs)
	var r report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), "%s", out.String())
	assert.True(t, r.Converged, r.Why)
	require.NotNil(t, r.Chaos)
	assert.Zero(t, r.Chaos.Unrecovered)
	require.NotNil(t, r.Lobby)
	assert.Empty(t, r.Lobby.Why)
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
	t.Logf("%v: %d faults: %s", args, r.Chaos.Faults, out.String())
	return r
}
