package tilefence_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
)

// TestARefusedClientIsToldWhy: that there is no token, that it has expired, or that it is not valid, and no more; a Go
// client by its error, a browser's page, which is not shown the answer to a handshake, by the close.
func TestARefusedClientIsToldWhy(t *testing.T) {
	b := embedded(t)
	keys, others := session.Keys{make([]byte, 32)}, session.Keys{[]byte("another key, which is as long as it")}
	signed := func(k session.Keys, expires time.Time) string {
		token, err := k.Sign(session.Identity{Actor: "ann", Expires: expires})
		require.NoError(t, err)
		return token
	}
	later := time.Now().Add(time.Hour)
	l := listen(t)
	watchers, err := tilefence.NewRelayServer(l.Addr().String(), b,
		everyTile, &tilefence.RelayServerConfig{
			Web: tilefence.Web{Listener: l}, Relay: relay.Config{Authenticate: keys.Authenticate}})
	require.NoError(t, err)
	start(t, watchers)
	g := listen(t)
	players, err := tilefence.NewGatewayServer(g.Addr().String(), b, keys.Authenticate, free,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: g}})
	require.NoError(t, err)
	start(t, players)
	view, intent := "ws://"+l.Addr().String()+"/", "ws://"+g.Addr().String()+"/"

	const expired, invalid = "the token has expired", "the token is not valid"
	challenge := func(why string) string { return `Bearer error="invalid_token", error_description="` + why + `"` }
	for _, c := range []struct {
		name, token, why, challenge string
		close                       websocket.StatusCode
	}{
		{"none", "", "there is no token", "Bearer", websocket.StatusPolicyViolation},
		{"expired", signed(keys, time.Now().Add(-time.Minute)), expired, challenge(expired), relaypb.CloseExpired},
		{"of another key", signed(others, later), invalid, challenge(invalid), websocket.StatusPolicyViolation},
		{"malformed", "tf1.nonsense", invalid, challenge(invalid), websocket.StatusPolicyViolation},
	} {
		c.why = "not authenticated: " + c.why
		t.Run(c.name, func(t *testing.T) {
			header := session.WithToken(nil, c.token)
			_, err := relayclient.Dial(t.Context(), view, &relayclient.Config{Header: header})
			require.ErrorContains(t, err, c.why)
			require.ErrorContains(t, err, "401")
			_, err = gatewayws.Dial(t.Context(), intent, &gatewayws.DialConfig{Header: header})
			require.ErrorContains(t, err, c.why)
			require.ErrorContains(t, err, "401")
			for url, protocol := range map[string]string{view: relaypb.SubprotocolJSON, intent: gatewayws.Subprotocol} {
				offers := []string{protocol}
				if c.token != "" {
					offers = append(offers, session.TokenProtocol+c.token)
				}
				_, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: offers})
				require.Error(t, err)
				assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
				assert.Equal(t, c.challenge, resp.Header.Get("Www-Authenticate"))
				page, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: offers,
					HTTPHeader: http.Header{"Origin": {"http" + url[2:len(url)-1]}}})
				require.NoError(t, err)
				_ = page.Write(t.Context(), websocket.MessageText, []byte("{}")) // as a client begins with its tiles
				_, _, err = page.Read(t.Context())
				var closed websocket.CloseError
				require.ErrorAs(t, err, &closed)
				assert.Equal(t, websocket.CloseError{Code: c.close, Reason: c.why}, closed)
			}
		})
	}
	_, resp, err := websocket.Dial(t.Context(), view, &websocket.DialOptions{
		Subprotocols: []string{relaypb.Subprotocol}, HTTPHeader: http.Header{"Origin": {"https://elsewhere.test"}}})
	require.Error(t, err)
	assert.Equal(t, http.StatusForbidden, resp.StatusCode, "no other page is upgraded")
}
