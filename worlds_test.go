package tilefence_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

func newClock(fence.TileID) (tile.Rules, error) { return new(clock), nil }

// silent is a listener that fails the test if it is served.
type silent struct {
	net.Listener
	t *testing.T
}

func (s *silent) Accept() (net.Conn, error) {
	s.t.Error("served before the worlds were compared")
	return s.Listener.Accept()
}

// TestAnotherWorldTakesNoTile: a process of another deployment that is given the coordination store is refused before
// it claims anything, and a relay and a gateway before they serve.
func TestAnotherWorldTakesNoTile(t *testing.T) {
	t.Parallel()
	b, l := embedded(t), listen(t)
	s, err := tilefence.NewTileServer(l.Addr().String(), b, newClock, &tilefence.TileServerConfig{
		Web: tilefence.Web{Listener: l}})
	require.NoError(t, err)
	require.NoError(t, s.Own(plaza))
	start(t, s)
	await(t, s, plaza)

	strange, l2 := b, listen(t)
	strange.Authority = memfence.NewAuthority()
	other, err := tilefence.NewTileServer(l2.Addr().String(), strange, newClock, &tilefence.TileServerConfig{
		Web: tilefence.Web{Listener: l2}})
	require.NoError(t, err)
	require.NoError(t, other.Own(plaza))
	require.ErrorIs(t, other.Run(t.Context()), fence.ErrWorld)
	_, err = strange.Authority.Lookup(t.Context(), plaza)
	require.ErrorIs(t, err, fence.ErrNeverOwned)
	for _, serve := range []func(*silent) (tilefence.Server, error){
		func(l *silent) (tilefence.Server, error) {
			return tilefence.NewRelayServer(l.Addr().String(), strange,
				func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil },
				&tilefence.RelayServerConfig{Web: tilefence.Web{Listener: l}})
		},
		func(l *silent) (tilefence.Server, error) {
			return tilefence.NewGatewayServer(l.Addr().String(), strange,
				func(*http.Request) (session.Identity, error) { return session.Identity{}, nil },
				func(_ context.Context, a admission.Action) (admission.Action, error) { return a, nil },
				&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: l}})
		},
	} {
		l := &silent{Listener: listen(t), t: t}
		s, err := serve(l)
		require.NoError(t, err)
		require.ErrorIs(t, s.Run(t.Context()), fence.ErrWorld, "%T", s)
	}
	o, err := b.Store.Owner(t.Context(), plaza)
	require.NoError(t, err)
	require.Equal(t, l.Addr().String(), o.Contact)
}

// TestEachTileIsCompared: of two tiles one is bridged and copied, and Health names the other.
func TestEachTileIsCompared(t *testing.T) {
	t.Parallel()
	const yard fence.TileID = 0x85283087fffffff
	b, l := embedded(t), listen(t)
	s, err := tilefence.NewTileServer(l.Addr().String(), b, newClock, &tilefence.TileServerConfig{
		Web: tilefence.Web{Listener: l}})
	require.NoError(t, err)
	s.SetPatience(time.Second)
	require.NoError(t, s.Own(plaza, yard))
	start(t, s)
	await(t, s, plaza)
	await(t, s, yard)
	mark := func(ids ...fence.TileID) {
		for _, id := range ids {
			for _, c := range []stream.Consumer{stream.BridgeAcked, stream.Checkpointed} {
				_ = stream.MarkOne(t.Context(), b.Log, stream.MarkWrite{Tile: id, Consumer: c}) // or resync
			}
		}
	}
	named := func(id fence.TileID) (planes int) {
		for _, p := range s.Health() {
			if (p.Plane == "delivery" || p.Plane == "checkpoints") && p.Tile == id {
				planes++
			}
		}
		return planes
	}
	waittest.Until(t, func() bool { mark(plaza); return named(yard) == 2 }, 20*time.Second, 100*time.Millisecond)
	require.Zero(t, named(plaza))
	// A mark that stays, but is not written any more, is that of a consumer that has gone.
	waittest.Until(t, func() bool { mark(yard); return named(plaza) == 2 && named(yard) == 0 }, 20*time.Second,
		100*time.Millisecond)
}
