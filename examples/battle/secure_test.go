package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// A battle with -secure plays to its end, and what an attacker tries at its ports is refused.
func TestSecureBattle(t *testing.T) {
	t.Parallel()
	t.Run("plays", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		errs := &screen{}
		status := run(t.Context(), []string{"-secure", "-stack", "embedded", "-clients", "14", "-lobby", "4",
			"-pilots", "0", "-listen", "127.0.0.1:0", "-duration", "8s"}, &out, errs)
		require.Zero(t, status, "%s", errs)
		assert.Contains(t, errs.String(), "watch the battle:  https://")
	})
	t.Run("plays on servers", func(t *testing.T) {
		stacktest.RequireFullTest(t)
		t.Parallel()
		var out bytes.Buffer
		errs := &screen{}
		status := run(t.Context(), []string{"-secure", "-stack", "local", "-clients", "14", "-lobby", "4",
			"-pilots", "1", "-listen", "127.0.0.1:0", "-duration", "10s"}, &out, errs)
		require.Zero(t, status, "%s", errs)
		assert.Contains(t, out.String(), "Battle on local")
	})
	t.Run("attacked", func(t *testing.T) {
		t.Parallel()
		d := deploy(t, "-secure", "-tiles", "2", "-hosts", "2", "-tick", "100ms", "-lobby", "4")
		plain := func(address string) string { return strings.Replace(address, "wss://", "ws://", 1) }
		web := d.secure.Player()
		stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: d.secure.Certificates().Client().RootCAs, MinVersion: tls.VersionTLS13}}}
		t.Cleanup(stranger.CloseIdleConnections)

		_, err := relayclient.Dial(t.Context(), plain(d.view), nil)
		require.Error(t, err, "not encrypted")
		_, err = gatewayws.Dial(t.Context(), plain(d.intents), nil)
		require.Error(t, err, "not encrypted")
		_, err = relayclient.Dial(t.Context(), d.view, nil)
		require.ErrorContains(t, err, "certificate", "a client without the authority refuses every certificate")
		_, err = gatewayws.Dial(t.Context(), d.intents+"?actor=bot0001", &gatewayws.DialConfig{HTTPClient: web})
		require.ErrorContains(t, err, "401")

		for _, door := range []string{d.view, d.intents} {
			base := strings.Replace(door, "wss://", "https://", 1)
			base = base[:strings.LastIndex(base, "/")]
			for _, path := range []string{"/", "/metrics", "/readyz", "/api/status", "/inspect/tiles"} {
				assert.Equal(t, http.StatusNotFound, fetched(t, stranger, base+path), base+path)
			}
		}
		for _, contact := range d.poller.Contacts {
			_, err := stranger.Get("https://" + contact + "/state?tile=" + d.world[0].String())
			require.Error(t, err, "a tile host wants a certificate")
		}
		given := make(chan relayclient.Sync, 10)
		c, err := relayclient.Dial(t.Context(), d.view, &relayclient.Config{HTTPClient: web,
			Sync: func(s relayclient.Sync) { given <- s }})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Subscribe(t.Context(), d.world[0]))
		select {
		case s := <-given:
			assert.Empty(t, s.Owner.Contact, "addresses of tile hosts are not for players")
		case <-time.After(time.Minute):
			t.Error("no state came")
		}
	})
}

// TestSecureProcesses: actors that are processes of their own use the certificates of a directory for all that they say
// to each other, to the servers and to players; an actor with another's certificates plays no part.
func TestSecureProcesses(t *testing.T) {
	stacktest.RequireFullTest(t)
	t.Parallel()
	authority, err := certs.New()
	require.NoError(t, err)
	others, err := certs.New()
	require.NoError(t, err)
	dir, othersDir := t.TempDir(), t.TempDir()
	_, err = authority.Write(dir)
	require.NoError(t, err)
	_, err = others.Write(othersDir)
	require.NoError(t, err)
	stack := stacktest.Start(t, devstack.Config{Certificates: authority})
	start := processes(t, "-redis", strings.Join(stack.CoordAddrs, ","),
		"-fanout", strings.Join(stack.FanoutAddrs, ","), "-postgres", stack.PostgresURL, "-dynamodb", stack.DynamoURL,
		"-tiles", "2", "-tick", "100ms", "-v", "-secure", "-secret", "known to all the actors")
	with := []string{"-certificates", dir, "-listen", "127.0.0.1:0"}

	_, hostScreen := start(append([]string{"tile", "-gossip", "127.0.0.1:0"}, with...)...)
	seed := hostScreen.find(t, `gossip: listening.*addr=(\S+)`)
	contact := hostScreen.find(t, `tile host at (\S+):`)
	start(append([]string{"bridge"}, with...)...)
	_, relayScreen := start(append([]string{"relay", "-hosts-at", contact}, with...)...)
	_, gatewayScreen := start(append([]string{"gateway", "-gossip", "127.0.0.1:0", "-gossip-seeds", seed}, with...)...)
	view := relayScreen.find(t, `relay at (wss://\S+)`)
	intents := gatewayScreen.find(t, `gateway at (wss://\S+)`)
	play := []string{"bots", "-clients", "8", "-duration", "8s", "-relay", view, "-gateway", intents, "-report", "json"}
	bots, botScreen := start(append(play, with...)...)
	stranger, strangerScreen := start(append(play, "-certificates", othersDir)...)
	require.NoError(t, bots.Wait(), "the bots did not converge: %s", botScreen)
	assert.Contains(t, botScreen.String(), `"converged": true`)
	require.Error(t, stranger.Wait())
	assert.Contains(t, strangerScreen.String(), "certificate")

	client := func(c *tls.Config) *http.Client {
		made := &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
		t.Cleanup(made.CloseIdleConnections)
		return made
	}
	player, actor := client(authority.Client()), client(authority.Mutual())
	for _, s := range []*screen{relayScreen, gatewayScreen} {
		control := s.find(t, `control at (https://\S+)/`)
		well(t, player, control)
		assert.Equal(t, http.StatusOK, fetched(t, player, control+"/metrics"))
	}
	for _, door := range []string{view, intents} {
		base := strings.Replace(door[:strings.LastIndex(door, "/")], "wss:", "https:", 1)
		for _, path := range []string{"/", "/metrics", "/readyz", "/api/status"} {
			assert.Equal(t, http.StatusNotFound, fetched(t, player, base+path), base+path)
		}
		_, err := client(nil).Get(base)
		require.ErrorContains(t, err, "certificate")
	}
	well(t, actor, "https://"+contact)
	_, err = player.Get("https://" + contact + "/readyz")
	require.Error(t, err, "a tile host wants a certificate")
	_, err = gatewayws.Dial(t.Context(), intents+"?actor=bot0001", &gatewayws.DialConfig{HTTPClient: player})
	require.ErrorContains(t, err, "401")
}

// well waits until a process says that it is well. On a busy machine a lease may be late for a moment.
func well(t *testing.T, c *http.Client, base string) {
	t.Helper()
	waittest.Until(t, func() bool { return fetched(t, c, base+"/readyz") == http.StatusOK }, time.Minute,
		50*time.Millisecond)
}

// fetched is the status of a GET.
func fetched(t *testing.T, client *http.Client, address string) int {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := client.Do(r)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, response.Body)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}
