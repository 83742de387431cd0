package tilefence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/tile"
)

// TestTilesThatDoNotExist: by default a number that is no cell of H3 is refused by every server that a client or an
// operator can name it to, and nothing is spent for it.
func TestTilesThatDoNotExist(t *testing.T) {
	const unknown = plaza + 1
	for name, tt := range map[string]struct {
		tiles   func(fence.TileID) error
		refused bool
	}{
		"no cell": {nil, true},
		"not of the game": {func(id fence.TileID) error {
			if id != plaza {
				return errors.New("the game has one tile")
			}
			return nil
		}, true},
		"another numbering": {anyTile, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := embedded(t)
			b.Tiles = tt.tiles
			spawned := func(context.Context, tilefence.SpawnRequest) error { return nil }
			server := tileServer(t, b, tilefence.TileServerConfig{Spawn: spawned})
			gate, view := listen(t), listen(t)
			gateway, err := tilefence.NewGatewayServer(gate.Addr().String(), b, anybody, free,
				&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: gate}, Spawn: true})
			require.NoError(t, err)
			mayWatch := func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
			relay, err := tilefence.NewRelayServer(view.Addr().String(), b, mayWatch,
				&tilefence.RelayServerConfig{Web: tilefence.Web{Listener: view}})
			require.NoError(t, err)

			judge := func(what string, err error) {
				t.Helper()
				if tt.refused {
					require.ErrorIs(t, err, fence.ErrInvalidArgument, what)
				} else {
					require.NoError(t, err, what)
				}
			}
			require.NoError(t, server.Own(plaza))
			judge("own", server.Own(unknown))
			judge("follow", server.Follow(unknown+1))
			for _, s := range []tilefence.Server{server, gateway, relay} {
				start(t, s)
			}
			await(t, server, plaza)

			ledger, err := admission.New(b.Ledger, nil)
			require.NoError(t, err)
			require.NoError(t, ledger.Credit(t.Context(), "ann", "coin", 10, "gift"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = gateway.Gateway().Act(ctx, admission.Action{ID: "a-1", Actor: "ann", Asset: "coin", Cost: 3,
				Tile: unknown})
			judge("act", err)
			account, err := ledger.Balance(t.Context(), "ann", "coin")
			require.NoError(t, err)
			_, err = ledger.Lookup(t.Context(), "a-1")
			if tt.refused {
				assert.EqualValues(t, 10, account.Balance, "nothing is spent")
				require.ErrorIs(t, err, admission.ErrUnknownAction, "and nothing recorded")
			} else {
				assert.EqualValues(t, 7, account.Balance)
			}
			_, err = server.Submit(ctx, tile.Intent{Tile: unknown})
			judge("submit", err)
			player, err := gatewayws.Dial(ctx, "ws://"+gate.Addr().String(), nil)
			require.NoError(t, err)
			_, err = player.Do(ctx, gatewayws.Request{Tile: unknown, Kind: admission.Move})
			assert.Equal(t, tt.refused, err != nil)
			require.NoError(t, player.Close())

			refused, synced := make(chan string, 8), make(chan string, 8)
			watcher, err := relayclient.Dial(ctx, "ws://"+view.Addr().String(), &relayclient.Config{
				Refused: func(r relayclient.Refusal) { refused <- r.Tile },
				Sync:    func(s relayclient.Sync) { synced <- s.Tile.String() },
			})
			require.NoError(t, err)
			require.NoError(t, watcher.Subscribe(ctx, unknown))
			answer := synced
			if tt.refused {
				answer = refused
			}
			select {
			case id := <-answer:
				assert.Equal(t, unknown.String(), id)
			case <-ctx.Done():
				t.Error("no answer of the relay")
			}
			require.NoError(t, watcher.Close())
		})
	}
}
