package admission_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// TestStaleGossipIsHarmless: whatever the table says, intents arrive within one resubmission, and the
// router says which source was wrong.
func TestStaleGossipIsHarmless(t *testing.T) {
	r := newRig(t, nil)
	table := new(route.Table)
	router, err := route.NewRouter(table, r.world, nil)
	require.NoError(t, err)
	gate, err := admission.NewGateway(r.ledger, router, r.world, admission.ClientPrices,
		&admission.GatewayConfig{Unlimited: true})
	require.NoError(t, err)
	moves := func(times int) {
		t.Helper()
		for range times {
			outcome, err := gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
			require.NoError(t, err)
			require.Equal(t, stream.Applied, outcome)
		}
	}
	table.Learn(route.Entry{Tile: here, Epoch: 1, Contact: "a"})
	moves(2)
	r.world.move("b", true) // epoch 2, named by the redirect
	moves(2)
	table.Learn(route.Entry{Tile: here, Epoch: 2, Contact: "b"})
	moves(2)
	r.world.move("c", false) // epoch 3, which the store knows
	moves(2)
	assert.Equal(t, route.Stats{
		Gossip: route.SourceStats{Answers: 6, Stale: 2}, Redirect: route.SourceStats{Answers: 2},
		Store:      route.SourceStats{Answers: 2},
		StoreReads: 1,
	}, router.Stats())
	assert.Equal(t, uint64(2), gate.Stats().Redirects)
	assert.Equal(t, uint64(2), gate.Stats().Resubmits)
}
