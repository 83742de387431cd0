package tilefence_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// TestSlowBodiesEnd: a stranger who begins requests and does not finish their bodies keeps no connections, wherever he
// sends them.
func TestSlowBodiesEnd(t *testing.T) {
	t.Parallel()
	const connections = 50
	b := embedded(t)
	server := tileServer(t, b, tilefence.TileServerConfig{})
	start(t, server)
	doors := [2]net.Listener{listen(t), listen(t)}
	gateway, err := tilefence.NewGatewayServer(doors[0].Addr().String(), b, anybody, free,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: doors[0]}})
	require.NoError(t, err)
	start(t, gateway)
	mayWatch := func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
	relay, err := tilefence.NewRelayServer(doors[1].Addr().String(), b, mayWatch, &tilefence.RelayServerConfig{
		Web: tilefence.Web{Listener: doors[1]}})
	require.NoError(t, err)
	start(t, relay)

	var ended errgroup.Group
	for _, to := range []string{server.Contact() + tilehttp.HandoverPath,
		doors[0].Addr().String() + "/", doors[1].Addr().String() + "/"} {
		address, path, _ := strings.Cut(to, "/")
		for range connections {
			c, err := net.Dial("tcp", address)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			_, err = fmt.Fprintf(c, "POST /%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
				"Content-Length: 200\r\n\r\n{", path, address)
			require.NoError(t, err)
			ended.Go(func() error {
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := io.Copy(io.Discard, c); err != nil {
					return fmt.Errorf("%s is open still: %w", to, err)
				}
				return nil
			})
		}
	}
	assert.NoError(t, ended.Wait())
}
