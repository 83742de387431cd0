package tilefence_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

func always(context.Context, tilefence.SpawnRequest) error { return nil }

// Two servers get the first intents of the same tiles at once. The authority gives each tile to one of them; the
// other redirects to it, and there every intent is resolved.
func TestTwoServersRaceForATile(t *testing.T) {
	b := embedded(t)
	spawns := tilefence.TileServerConfig{Spawn: always}
	servers := []*tilefence.TileServer{tileServer(t, b, spawns), tileServer(t, b, spawns)}
	for _, s := range servers {
		start(t, s)
	}
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()

	const tiles, intents = 40, 3
	var redirects atomic.Int64
	var wg sync.WaitGroup
	for i := range tiles {
		id := plaza + fence.TileID(i)
		for _, s := range servers {
			for n := range intents {
				wg.Go(func() {
					in := tile.Intent{Tile: id, ActionID: fmt.Sprint(s.Contact(), n)}
					outcome, err := client.Forward(t.Context(), s.Contact(), in)
					if owner := redirectedTo(err); owner != "" {
						redirects.Add(1)
						assert.NotEqual(t, s.Contact(), owner)
						outcome, err = client.Forward(t.Context(), owner, in)
					}
					assert.NoError(t, err, "tile %s", id)
					assert.Equal(t, stream.Applied, outcome.Outcome)
				})
			}
		}
	}
	wg.Wait()
	for i := range tiles {
		id := plaza + fence.TileID(i)
		g, err := b.Authority.Lookup(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 1, g.Mints, "the loser left the tile alone")
		serving := 0
		for _, s := range servers {
			if state(s, id) == tile.Serving {
				serving++
				require.Equal(t, s.Contact(), g.Contact)
				require.NoError(t, s.Host().Processor(id).Inspect(t.Context(), func(r tile.Rules, _ fence.Position) {
					assert.EqualValues(t, 2*intents, r.(*bell).rings, "every intent was resolved, once")
				}))
			}
		}
		require.Equal(t, 1, serving, "tile %s", id)
	}
	assert.GreaterOrEqual(t, redirects.Load(), int64(tiles), "each tile has a loser")
}

// However many intents come for a tile at once, its begin is decided once.
func TestSpawnIsDecidedOnce(t *testing.T) {
	var decided atomic.Int64
	decide := func(context.Context, tilefence.SpawnRequest) error {
		decided.Add(1)
		time.Sleep(20 * time.Millisecond)
		return nil
	}
	s := tileServer(t, embedded(t), tilefence.TileServerConfig{Spawn: decide})
	start(t, s)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			outcome, err := s.Submit(t.Context(), tile.Intent{Tile: plaza})
			assert.NoError(t, err)
			assert.Equal(t, stream.Applied, outcome.Outcome)
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, decided.Load())
}

// A server says no when it is full, and the client may try again later; other errors and redirects of the
// hook reach it too.
func TestSpawnIsRefused(t *testing.T) {
	elsewhere := &tile.RedirectError{Tile: harbour, Epoch: 7, Contact: "10.0.0.9:7000"}
	decide := func(_ context.Context, r tilefence.SpawnRequest) error {
		switch {
		case r.Tile == harbour:
			return elsewhere
		case r.Tiles >= 1:
			return tilefence.ErrFull
		}
		return nil
	}
	s := tileServer(t, embedded(t), tilefence.TileServerConfig{Spawn: decide})
	start(t, s)
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Forward(t.Context(), s.Contact(), tile.Intent{Tile: plaza})
	require.NoError(t, err)
	_, err = client.Forward(t.Context(), s.Contact(), tile.Intent{Tile: plaza + 1})
	require.ErrorIs(t, err, tile.ErrOverloaded)
	_, err = s.Submit(t.Context(), tile.Intent{Tile: plaza + 1})
	require.ErrorIs(t, err, tilefence.ErrFull)
	_, err = client.Forward(t.Context(), s.Contact(), tile.Intent{Tile: harbour})
	require.Equal(t, elsewhere.Contact, redirectedTo(err))

	plain := tileServer(t, embedded(t), tilefence.TileServerConfig{})
	start(t, plain)
	_, err = plain.Submit(t.Context(), tile.Intent{Tile: plaza})
	require.ErrorIs(t, err, tile.ErrRedirect, "without the hook nothing is begun")
}

// The owner of a tile died long ago: the authority still names it, its owner hash has run out. A tile whose owner
// hash names a living owner, or whose store cannot be read, is not begun.
func TestSpawnOfAHeldTile(t *testing.T) {
	b := embedded(t)
	line := faultinject.New()
	s := tileServer(t, line.Process(b), tilefence.TileServerConfig{Spawn: always})
	start(t, s)
	_, err := b.Authority.Claim(t.Context(), fence.Claim{Tile: plaza, Contact: "10.0.0.9:7000", ID: fence.NewClaimID()})
	require.NoError(t, err)
	line.Set(faultinject.Cut)
	_, err = s.Submit(t.Context(), tile.Intent{Tile: plaza})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	_, begun := s.Host().TileStatus(plaza)
	require.False(t, begun)
	line.Set(faultinject.Flowing)
	outcome, err := s.Submit(t.Context(), tile.Intent{Tile: plaza})
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, outcome.Outcome)
	g, err := b.Authority.Lookup(t.Context(), plaza)
	require.NoError(t, err)
	assert.EqualValues(t, 2, g.Epoch)

	other := tileServer(t, b, tilefence.TileServerConfig{Spawn: always})
	start(t, other)
	_, err = other.Submit(t.Context(), tile.Intent{Tile: plaza})
	assert.Equal(t, s.Contact(), redirectedTo(err))
}

// A client's intent for a tile without an owner goes by way of the gateway to a tile server, which begins it.
func TestGatewaySendsIntentsOfUnownedTiles(t *testing.T) {
	b := embedded(t)
	for range 3 {
		start(t, tileServer(t, b, tilefence.TileServerConfig{Spawn: always}))
	}
	l := listen(t)
	gateway, err := tilefence.NewGatewayServer(l.Addr().String(), b, anybody, free,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: l}, Spawn: true})
	require.NoError(t, err)
	start(t, gateway)
	client, err := gatewayws.Dial(t.Context(), "ws://"+l.Addr().String()+"/", nil)
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	for i := range 20 {
		waittest.Until(t, func() bool { // a server that has joined may not listen yet
			answer, err := client.Do(t.Context(), gatewayws.Request{Tile: plaza + fence.TileID(i),
				Kind: admission.Move})
			return err == nil && answer.Outcome == stream.Applied
		}, time.Minute, 50*time.Millisecond)
	}
	contactHolders := map[string]int{}
	grants, err := b.Authority.List(t.Context(), 0, 100)
	require.NoError(t, err)
	for _, g := range grants {
		require.EqualValues(t, 1, g.Mints)
		contactHolders[g.Contact]++
	}
	assert.Len(t, contactHolders, 3, "the tiles spread over the servers: %v", contactHolders)
}

func anybody(*http.Request) (session.Identity, error) {
	return session.Identity{Actor: "ann"}, nil
}

func free(_ context.Context, a admission.Action) (admission.Action, error)           { return a, nil }
func everyTile(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
