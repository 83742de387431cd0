package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
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

// spells counts how often each spell was cast. An intent is a spell's name.
type spells struct{ Cast map[string]int }

func (s *spells) Restore(snapshot []byte) error {
	s.Cast = map[string]int{}
	if snapshot == nil {
		return nil
	}
	return json.Unmarshal(snapshot, &s.Cast)
}

func (s *spells) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for _, in := range intents {
		if in.ActionID == "" { // a spell that costs a card must have come through Act
			outcomes = append(outcomes, stream.Rejected)
			continue
		}
		events = append(events, in.Body)
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func (s *spells) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		s.Cast[string(e)]++
	}
	return nil
}

func (s *spells) Snapshot() ([]byte, error) { return json.Marshal(s.Cast) }

// host is a process that runs the tile.
type host struct {
	processor *tile.TileProcessor
	contact   string
	ended     chan error
}

func startHost(t *testing.T, ctx context.Context, seams tile.Seams) *host {
	t.Helper()
	h := &host{ended: make(chan error, 1)}
	mux := http.NewServeMux()
	submit := func(ctx context.Context, in tile.Intent) (tile.Result, error) { return h.processor.Submit(ctx, in) }
	intents, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(submit), nil)
	require.NoError(t, err)
	mux.Handle(tilehttp.Path, intents)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	h.contact = server.Listener.Addr().String()
	h.processor, err = tile.New(here, h.contact, seams, &spells{},
		&tile.Config{TickInterval: 5 * time.Millisecond, TakeOver: true})
	require.NoError(t, err)
	go func() { h.ended <- h.processor.Run(ctx) }()
	waittest.Until(t, func() bool {
		return h.processor.Status().State == tile.Serving
	}, 10*time.Second, time.Millisecond)
	return h
}

func (h *host) cast(t *testing.T) map[string]int {
	t.Helper()
	got := map[string]int{}
	require.NoError(t, h.processor.Inspect(t.Context(), func(r tile.Rules, _ fence.Position) {
		for name, n := range r.(*spells).Cast {
			got[name] = n
		}
	}))
	return got
}

// TestWithRealTiles puts the parts together: gateway, ledger, router and HTTP in front of two processes
// that take a tile from each other.
func TestWithRealTiles(t *testing.T) {
	coordination := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: coordination, Log: memstream.New(coordination)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

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
	gate, err := admission.NewGateway(ledger, router, client, admission.ClientPrices,
		&admission.GatewayConfig{Unlimited: true})
	require.NoError(t, err)
	require.NoError(t, ledger.Credit(ctx, "ann", "card", 10, "deck"))

	first := startHost(t, ctx, seams)
	act := func(id, spell string) admission.Artifact {
		t.Helper()
		a := play(id)
		a.Body = []byte(spell)
		art, err := gate.Act(t.Context(), a)
		require.NoError(t, err)
		return art
	}
	assert.Equal(t, stream.Applied, act("1", "fire").Outcome)
	outcome, err := gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann", Body: []byte("fire")})
	require.NoError(t, err)
	assert.Equal(t, stream.Rejected, outcome.Outcome, "no free spells through Move")

	second := startHost(t, ctx, seams)
	var superseded *tile.SupersededError
	require.ErrorAs(t, <-first.ended, &superseded)
	assert.Equal(t, stream.Applied, act("2", "ice").Outcome,
		"the router still names the first process, which redirects")
	assert.Equal(t, uint64(1), gate.Stats().Resubmits)
	assert.Equal(t, stream.Applied, act("3", "ice").Outcome)
	assert.Equal(t, uint64(1), gate.Stats().Redirects, "learned")

	// An answer that was lost long ago, on the first process: its successor remembers the action.
	outcome, err = client.Forward(t.Context(), second.contact,
		tile.Intent{Tile: here, ActionID: "1", Actor: "ann", Body: []byte("fire")})
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, outcome.Outcome)
	assert.Equal(t, map[string]int{"fire": 1, "ice": 2}, second.cast(t))

	cancel()
	require.NoError(t, <-second.ended)
	_, err = gate.Act(t.Context(), play("4"))
	require.ErrorIs(t, err, admission.ErrPending)
	require.True(t, errors.Is(err, route.ErrNoRoute) || errors.Is(err, tile.ErrRedirect), err)
	account, err := ledger.Balance(t.Context(), "ann", "card")
	require.NoError(t, err)
	assert.Equal(t, admission.Amount(6), account.Balance)
}
