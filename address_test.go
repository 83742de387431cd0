package tilefence_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/session"
)

// TestAddressesAreChecked: each server refuses, when it is made, an address at which it could not be reached.
func TestAddressesAreChecked(t *testing.T) {
	b := embedded(t)
	player := func(*http.Request) (session.Identity, error) { return session.Identity{Actor: "ann"}, nil }
	price := func(_ context.Context, a admission.Action) (admission.Action, error) { return a, nil }
	watch := func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
	makers := map[string]func(addr string) error{
		"contact": func(a string) error { _, err := tilefence.NewTileServer(a, b, newBell, nil); return err },
		"gateway": func(a string) error { _, err := tilefence.NewGatewayServer(a, b, player, price, nil); return err },
		"relay":   func(a string) error { _, err := tilefence.NewRelayServer(a, b, watch, nil); return err },
	}
	for name, of := range makers {
		for _, bad := range []string{"", "10.0.0.7", "http://10.0.0.7:7000", "10.0.0.7:7000/view", "10.0.0.7:", ":http",
			"10.0.0.7:70000", "10.0.0.7 :7000"} {
			err := of(bad)
			require.ErrorIs(t, err, fence.ErrInvalidArgument, "%s %q", name, bad)
			require.ErrorContains(t, err, bad)
		}
		for _, open := range []string{":7000", "10.0.0.7:0", "0.0.0.0:7000", "[::]:7000"} {
			require.Equal(t, name == "contact", of(open) != nil, "%s %q", name, open)
		}
		require.NoError(t, of("tiles-1.example.com:7000"))
		require.NoError(t, of("[fd00::7]:7001"))
	}
}
