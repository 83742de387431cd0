package tilefence_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// With TLS nobody talks to a tile server, or poses as one, who has no certificate of the deployment's own authority,
// and players' connections are encrypted.
func TestTLS(t *testing.T) {
	const id fence.TileID = 0x85283473fffffff
	ours, theirs := authority(t), authority(t)
	b := embedded(t)
	b.TLS = ours.Mutual()
	server := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, server.Own(id))
	start(t, server)
	gate := listen(t)
	gateway, err := tilefence.NewGatewayServer(gate.Addr().String(), b, anybody, free,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: gate}, TLS: ours.Server()})
	require.NoError(t, err)
	start(t, gateway)
	await(t, server, id)

	_, err = gatewayws.Dial(t.Context(), "ws://"+gate.Addr().String(), nil)
	require.Error(t, err, "not encrypted")
	web := func(c *tls.Config) *gatewayws.DialConfig {
		transport := &http.Transport{TLSClientConfig: c}
		t.Cleanup(transport.CloseIdleConnections)
		return &gatewayws.DialConfig{HTTPClient: &http.Client{Transport: transport}}
	}
	_, err = gatewayws.Dial(t.Context(), "wss://"+gate.Addr().String(), web(theirs.Client()))
	require.ErrorContains(t, err, "certificate")
	player, err := gatewayws.Dial(t.Context(), "wss://"+gate.Addr().String(), web(ours.Client()))
	require.NoError(t, err)
	answer, err := player.Do(t.Context(), gatewayws.Request{Tile: id, Kind: admission.Move})
	require.NoError(t, err, "through the gateway's own connection to the tile server")
	require.Equal(t, stream.Applied, answer.Outcome)
	require.NoError(t, player.Close())

	for name, attacker := range map[string]*tls.Config{
		"plain": nil, "without a certificate": ours.Client(), "with a foreign certificate": {
			Certificates: theirs.Mutual().Certificates, RootCAs: ours.Client().RootCAs, MinVersion: tls.VersionTLS13}} {
		client, err := tilehttp.NewClient(&tilehttp.Config{TLS: attacker})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = client.Forward(ctx, server.Contact(), tile.Intent{Tile: id, ActionID: "free"})
		cancel()
		require.ErrorIs(t, err, fence.ErrNotApplied, name)
		client.Close()
	}
}

// TestFailedHandshakesAreSampled: what strangers at the port of a server cause is not a line each.
func TestFailedHandshakesAreSampled(t *testing.T) {
	b := embedded(t)
	b.TLS = authority(t).Mutual()
	log, written := logged()
	server := tileServer(t, b, tilefence.TileServerConfig{Logger: log})
	s := start(t, server)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			c, err := net.Dial("tcp", server.Contact())
			if assert.NoError(t, err) {
				_, _ = c.Write([]byte("this is no handshake\r\n\r\n"))
				_, _ = io.Copy(io.Discard, c) // until the server closes it
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.stop())
	n := written.count(`msg="an HTTP connection failed"`)
	assert.NotZero(t, n)
	assert.Less(t, n, 100) // ten in ten seconds
}

func authority(t *testing.T) *certs.Authority {
	a, err := certs.New()
	require.NoError(t, err)
	return a
}
