package admission_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// stranger is a process that is no owner and answers intents. It counts the actions that it was given.
func stranger(t *testing.T, answer tilehttp.SubmitterFunc) (contact string, actions *atomic.Int64) {
	t.Helper()
	actions = new(atomic.Int64)
	count := func(ctx context.Context, in tile.Intent) (tile.Result, error) {
		if in.ActionID != "" {
			actions.Add(1)
		}
		return answer(ctx, in)
	}
	h, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(count), nil)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), actions
}

// TestARumourMovesNoMoney: gossip names a stranger as the owner, at an epoch that no authority has minted. Whatever he
// would answer, the action is paid once and applied once, by the owner.
func TestARumourMovesNoMoney(t *testing.T) {
	coordination := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: coordination, Log: memstream.New(coordination)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	owner := startHost(t, ctx, seams)
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()

	for name, answer := range map[string]tilehttp.SubmitterFunc{
		"takes it and does nothing": func(context.Context, tile.Intent) (tile.Result, error) {
			return tile.Result{Outcome: stream.Applied}, nil
		},
		"has it applied, and names another": func(ctx context.Context, in tile.Intent) (tile.Result, error) {
			_, _ = client.Forward(ctx, owner.contact, in)
			return tile.Result{}, &tile.RedirectError{Tile: in.Tile, Epoch: 1 << 50, Contact: "127.0.0.1:1"}
		},
		"has it applied, and calls it malformed": func(ctx context.Context, in tile.Intent) (tile.Result, error) {
			_, _ = client.Forward(ctx, owner.contact, in)
			return tile.Result{}, &fence.ArgumentError{Field: "body", Want: "another one"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			contact, actions := stranger(t, answer)
			store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			ledger, err := admission.New(store, nil)
			require.NoError(t, err)
			table := new(route.Table)
			router, err := route.NewRouter(table, coordination, nil)
			require.NoError(t, err)
			gate, err := admission.NewGateway(ledger, router, client, admission.ClientPrices, nil)
			require.NoError(t, err)
			require.NoError(t, ledger.Credit(ctx, "ann", "card", 10, "deck"))
			require.Len(t, table.Learn(route.Entry{Tile: here, Epoch: 1 << 50, Contact: contact}), 1)

			before := owner.cast(t)[name]
			a := play(admission.NewActionID())
			a.Body = []byte(name)
			for range 3 {
				art, err := gate.Act(t.Context(), a)
				require.NoError(t, err)
				assert.Equal(t, stream.Applied, art.Outcome)
				assert.False(t, art.Refunded)
			}
			assert.Zero(t, actions.Load(), "the stranger was given the action")
			assert.Equal(t, before+1, owner.cast(t)[name])
			balance, err := ledger.Balance(t.Context(), "ann", "card")
			require.NoError(t, err)
			assert.EqualValues(t, 10-int(a.Cost), balance.Balance)
			assert.EqualValues(t, 1, router.Stats().StoreReads, "the rumour is looked into once")
		})
	}
}

// TestAnUnnamedProcessEndsNoAction: a tile has no owner, and the process that is to begin it does not, but answers.
// Nothing is settled by its word; the owner that comes later does that.
func TestAnUnnamedProcessEndsNoAction(t *testing.T) {
	for name, answer := range map[string]tilehttp.SubmitterFunc{
		"applied": func(context.Context, tile.Intent) (tile.Result, error) {
			return tile.Result{Outcome: stream.Applied}, nil
		},
		"rejected": func(context.Context, tile.Intent) (tile.Result, error) {
			return tile.Result{}, &fence.ArgumentError{Field: "body", Want: "another one"}
		},
		"moved": func(_ context.Context, in tile.Intent) (tile.Result, error) {
			return tile.Result{}, &tile.RedirectError{Tile: in.Tile, Epoch: 7, Contact: "127.0.0.1:1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			coordination := memfence.New()
			contact, actions := stranger(t, answer)
			store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			ledger, err := admission.New(store, nil)
			require.NoError(t, err)
			router, err := route.NewRouter(new(route.Table), coordination, nil)
			require.NoError(t, err)
			client, err := tilehttp.NewClient(nil)
			require.NoError(t, err)
			defer client.Close()
			gate, err := admission.NewGateway(ledger, router, client, admission.ClientPrices, &admission.GatewayConfig{
				Spawn: func(context.Context, fence.TileID) (string, error) { return contact, nil }})
			require.NoError(t, err)
			require.NoError(t, ledger.Credit(t.Context(), "ann", "card", 10, "deck"))
			a := play(admission.NewActionID())
			_, err = gate.Act(t.Context(), a)
			require.ErrorIs(t, err, admission.ErrPending)
			assert.EqualValues(t, 1, actions.Load())
			art, err := ledger.Lookup(t.Context(), a.ID)
			require.NoError(t, err)
			assert.True(t, art.Open(), "%+v", art)

			ctx, cancel := context.WithCancel(t.Context())
			seams := tile.Seams{Authority: memfence.NewAuthority(), Store: coordination,
				Log: memstream.New(coordination)}
			owner := startHost(t, ctx, seams)
			waittest.Until(t, func() bool {
				art, err = gate.Act(t.Context(), a)
				return err == nil || !errors.Is(err, admission.ErrPending)
			}, 10*time.Second, 10*time.Millisecond)
			require.NoError(t, err)
			assert.Equal(t, stream.Applied, art.Outcome)
			assert.Equal(t, map[string]int{string(a.Body): 1}, owner.cast(t))
			cancel()
			<-owner.ended
		})
	}
}

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
			require.Equal(t, stream.Applied, outcome.Outcome)
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
