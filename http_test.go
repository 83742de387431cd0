package tilefence_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// With TLS a process without a certificate of the deployment's own authority neither talks to a tile server nor poses
// as one, and players' connections are encrypted.
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

// TestServersThatBelieveEverybodySaySo: without keys each tile server and gateway warns when it starts, with keys none.
func TestServersThatBelieveEverybodySaySo(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]tilehttp.Keys{"open": nil, "keyed": {[]byte(strings.Repeat("k", 32))}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded(t)
			b.Keys = keys
			log, text := logged()
			start(t, tileServer(t, b, tilefence.TileServerConfig{Logger: log}))
			door := listen(t)
			gateway, err := tilefence.NewGatewayServer(door.Addr().String(), b, anybody, free,
				&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: door}, Logger: log})
			require.NoError(t, err)
			start(t, gateway)
			waittest.Until(t, func() bool {
				return text.count("tile server listens") == 1 && text.count("gateway listens") == 1
			}, 20*time.Second, 5*time.Millisecond)
			for _, server := range []string{"tile server", "gateway"} {
				said := text.count(`level=WARN msg="` + server + " has no keys: every process")
				assert.Equal(t, keys == nil, said == 1, "%s: %d times", server, said)
			}
		})
	}
}

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
