package tilefence_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/tile"
)

// TestServersLogTheirDecisions: two tile servers and a gateway of one process, one of which hands its tile over.
func TestServersLogTheirDecisions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions")
	log, err := tilefence.CreateDecisionLog(path)
	require.NoError(t, err)
	b := embedded(t)
	owner := tileServer(t, b, tilefence.TileServerConfig{DecisionLog: log})
	require.NoError(t, owner.Own(plaza))
	one := start(t, owner)
	await(t, owner, plaza)
	heir := tileServer(t, b, tilefence.TileServerConfig{DecisionLog: log})
	require.NoError(t, heir.Follow(plaza))
	two := start(t, heir)
	follows(t, heir, plaza)
	gateway, err := tilefence.NewGatewayServer("127.0.0.1:0", b, anybody, free,
		&tilefence.GatewayServerConfig{DecisionLog: log})
	require.NoError(t, err)
	_ = start(t, gateway)

	_, err = gateway.Gateway().Act(t.Context(), admission.Action{Tile: plaza, ID: "ring", Actor: "ann", Asset: "gold"})
	require.NoError(t, err)
	require.NoError(t, one.stop())
	await(t, heir, plaza)
	_, err = heir.Submit(t.Context(), tile.Intent{Tile: plaza, Actor: "ann"})
	require.NoError(t, err)
	require.NoError(t, two.stop())
	require.NoError(t, log.Close())
	require.Zero(t, log.Dropped())

	f, err := decision.Open(path)
	require.NoError(t, err)
	require.True(t, f.Closed)
	require.Len(t, f.Servers, 3)
	require.Equal(t, []string{owner.Contact(), heir.Contact()}, f.Servers[:2])
	require.True(t, strings.HasPrefix(f.Servers[2], "127.0.0.1:0#"), f.Servers[2])
	seen := map[int]map[decision.Kind]int{0: {}, 1: {}, 2: {}}
	count := func(e *decision.Event) { seen[e.Server][e.Kind]++ }
	require.NoError(t, f.Each(plaza, count))
	require.NoError(t, f.Each(0, count))
	require.NotZero(t, seen[0][decision.Claim])
	require.NotZero(t, seen[0][decision.Rebase])
	require.NotZero(t, seen[1][decision.Promote])
	for i := range 2 {
		require.NotZero(t, seen[i][decision.Commit])
		require.NotZero(t, seen[i][decision.Ended])
	}
	require.Equal(t, map[decision.Kind]int{decision.Began: 1, decision.Admitted: 1, decision.Settled: 1}, seen[2])
}
