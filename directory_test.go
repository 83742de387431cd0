package tilefence_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
)

// TestAPlayerIsFound: the directory has the tile where a player arrived, a client that connects again without a tile is
// led there, and a tile server reaches the player's sessions, to tell them something and to end them.
func TestAPlayerIsFound(t *testing.T) {
	b, store := embedded(t), directory.NewMemory()
	b.Directory = store
	one, two := hallServer(t, b, tilefence.TileServerConfig{}), hallServer(t, b, tilefence.TileServerConfig{})
	start(t, one)
	start(t, two)
	gate, view := listen(t), listen(t)
	gateway, err := tilefence.NewGatewayServer(gate.Addr().String(), b, anybody, free,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: gate}})
	require.NoError(t, err)
	start(t, gateway)
	var banned atomic.Bool
	mayWatch := func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
	watched, err := tilefence.NewRelayServer(view.Addr().String(), b, mayWatch, &tilefence.RelayServerConfig{
		Web: tilefence.Web{Listener: view},
		Relay: relay.Config{Authenticate: func(*http.Request) (session.Identity, error) {
			if banned.Load() {
				return session.Identity{}, errors.New("banned")
			}
			return session.Identity{Actor: "ann"}, nil
		}}})
	require.NoError(t, err)
	start(t, watched)
	require.NoError(t, one.Own(plaza))
	require.NoError(t, two.Own(harbour))
	await(t, one, plaza)
	await(t, two, harbour)

	told := make(chan string, 1)
	dial := func() *gatewayws.Client {
		c, err := gatewayws.Dial(t.Context(), "ws://"+gate.Addr().String(),
			&gatewayws.DialConfig{Told: func(m []byte) { told <- string(m) }})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	client := dial()
	says(t, one, plaza, "ann")
	says(t, one, plaza, "ann>"+harbour.String())
	waittest.Until(t, func() bool {
		r, err := store.Look(t.Context(), "ann")
		require.NoError(t, err)
		return r[0].Place.Tile == harbour && r[0].Place.Came.Epoch > 0
	}, 10*time.Second, 5*time.Millisecond, "the arrival is written")
	where, err := client.Where(t.Context())
	require.NoError(t, err)
	require.Equal(t, harbour, where)
	a, err := client.Do(t.Context(), gatewayws.Request{Kind: admission.Move, Body: []byte("eve")})
	require.NoError(t, err)
	require.Equal(t, gatewayws.Answer{Outcome: stream.Applied, Tile: harbour}, a)
	require.Contains(t, guests(t, two, harbour), "eve")

	n, err := one.Players().Tell(t.Context(), "ann", []byte("hail"))
	require.NoError(t, err)
	require.Equal(t, 1, n, "the gateway")
	require.Equal(t, "hail", <-told)
	watcher, err := relayclient.Dial(t.Context(), "ws://"+view.Addr().String(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = watcher.Close() })
	waittest.Until(t, func() bool {
		r, err := store.Look(t.Context(), "ann")
		require.NoError(t, err)
		return len(r[0].Holders) == 2
	}, 10*time.Second, 5*time.Millisecond)
	banned.Store(true)
	n, err = two.Players().End(t.Context(), "ann")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	<-client.Done()
	waittest.Until(t, func() bool {
		is, err := watched.Players().Connected(t.Context(), "ann")
		require.NoError(t, err)
		return !is && gateway.Players().Stats().Ended == 1
	}, 10*time.Second, 5*time.Millisecond)
	for _, s := range []tilefence.Healthy{one, two, gateway, watched} {
		require.Empty(t, s.Health())
	}
}
