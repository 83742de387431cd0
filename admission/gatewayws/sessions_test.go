package gatewayws_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// doorman authenticates by a token that is the actor's name, and counts what it is asked.
type doorman struct {
	asked, entered atomic.Int64
	lifetime       atomic.Int64                          // of a session, nanoseconds; 0: for ever
	edit           func(*http.Request, session.Identity) // called before it answers
}

func (d *doorman) authenticate(r *http.Request) (session.Identity, error) {
	d.asked.Add(1)
	who := session.Identity{Actor: session.Token(r), Value: "token of " + session.Token(r)}
	if left := d.lifetime.Load(); left != 0 {
		who.Expires = time.Now().Add(time.Duration(left))
	}
	if d.edit != nil {
		d.edit(r, who)
	}
	return who, nil
}

func (d *doorman) enter(context.Context, session.Identity) error {
	d.entered.Add(1)
	return nil
}

func (d *doorman) serve(t testing.TB, g gatewayws.Admitter, cfg gatewayws.Config) (*gatewayws.Handler, string) {
	if cfg.Enter == nil {
		cfg.Enter = d.enter
	}
	h, err := gatewayws.New(g, d.authenticate, &cfg)
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(func() { assert.NoError(t, h.Drain(context.WithoutCancel(t.Context()))) })
	return h, "ws" + strings.TrimPrefix(server.URL, "http")
}

// try makes a handshake as a browser does, and returns the status of the answer.
func try(t testing.TB, url, actor, origin string) (*websocket.Conn, int) {
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	c, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{
		Subprotocols: []string{gatewayws.Subprotocol, session.TokenProtocol + actor}, HTTPHeader: header})
	require.NotNil(t, resp)
	if err != nil {
		return nil, resp.StatusCode
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c, resp.StatusCode
}

func join(t testing.TB, url, actor string) *websocket.Conn {
	c, status := try(t, url, actor, "")
	require.Equal(t, http.StatusSwitchingProtocols, status)
	return c
}

// ended is the status with which the server closes.
func ended(t testing.TB, c *websocket.Conn) int {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			return int(websocket.CloseStatus(err))
		}
	}
}

const moveHere = `{"id":"1","tile":"85283473fffffff","kind":"move"}`

// Three hundred requests that never become a WebSocket are not seen by the game, and leave nothing behind.
func TestAuthenticationComesLast(t *testing.T) {
	d := &doorman{}
	_, url := d.serve(t, &gateway{}, gatewayws.Config{})
	for range 300 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http"+url[2:], nil)
		require.NoError(t, err)
		r.Header.Set("Sec-WebSocket-Protocol", gatewayws.Subprotocol)
		r.Header.Set("Authorization", "Bearer ann")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUpgradeRequired, resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	_, status := try(t, url, "ann", "https://evil.test")
	require.Equal(t, http.StatusForbidden, status)
	require.Zero(t, d.asked.Load())
	require.Zero(t, d.entered.Load())
	c := join(t, url, "ann")
	require.JSONEq(t, `{"id":"1","outcome":"applied"}`, exchange(t, c, websocket.MessageText, moveHere))
	require.EqualValues(t, 1, d.asked.Load())
	require.EqualValues(t, 1, d.entered.Load())
}

// Of a player who may not enter, no intent is taken.
func TestWhoDoesNotEnterDoesNotPlay(t *testing.T) {
	var moved atomic.Int64
	d := &doorman{}
	_, url := d.serve(t, &gateway{move: func(context.Context, tile.Intent) (tile.Result, error) {
		moved.Add(1)
		return tile.Result{Outcome: stream.Applied}, nil
	}}, gatewayws.Config{Enter: func(ctx context.Context, who session.Identity) error {
		if who.Actor == "panic" {
			panic("a bug of the game")
		}
		if who.Actor == "late" {
			<-ctx.Done()
			return ctx.Err()
		}
		return errors.New("banned")
	}, Sessions: session.Limits{Timeout: 200 * time.Millisecond}})
	for actor, want := range map[string]websocket.StatusCode{"ann": websocket.StatusPolicyViolation,
		"panic": websocket.StatusPolicyViolation, "late": websocket.StatusTryAgainLater} {
		c := join(t, url, actor)
		_ = c.Write(t.Context(), websocket.MessageText, []byte(moveHere))
		require.EqualValues(t, want, ended(t, c), actor)
	}
	require.Zero(t, moved.Load())
}

func TestAuthenticationHasADeadline(t *testing.T) {
	d := &doorman{edit: func(r *http.Request, who session.Identity) {
		if who.Actor == "slow" {
			<-r.Context().Done()
		}
	}}
	_, url := d.serve(t, &gateway{},
		gatewayws.Config{MaxClients: 1, Sessions: session.Limits{Timeout: 50 * time.Millisecond}})
	_, status := try(t, url, "slow", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	join(t, url, "ann") // its place is free again
}

// The game's functions behind the gateway see who the player is.
func TestIntentsCarryTheIdentity(t *testing.T) {
	var seen atomic.Value
	d := &doorman{}
	_, url := d.serve(t, &gateway{act: func(ctx context.Context, _ admission.Action) (admission.Artifact, error) {
		who, _ := session.FromContext(ctx)
		seen.Store(who)
		return admission.Artifact{AdmissionID: "6f0c", Outcome: stream.Applied}, nil
	}}, gatewayws.Config{})
	exchange(t, join(t, url, "ann"), websocket.MessageText, `{"id":"1","tile":"1","kind":"act","action":"a"}`)
	require.Equal(t, session.Identity{Actor: "ann", Value: "token of ann"}, seen.Load())
}

func TestSessionsEnd(t *testing.T) {
	d := &doorman{}
	var moved atomic.Int64
	h, url := d.serve(t, &gateway{move: func(context.Context, tile.Intent) (tile.Result, error) {
		moved.Add(1)
		return tile.Result{Outcome: stream.Applied}, nil
	}}, gatewayws.Config{})
	ann, again, bob := join(t, url, "ann"), join(t, url, "ann"), join(t, url, "bob")
	for _, c := range []*websocket.Conn{ann, again, bob} {
		exchange(t, c, websocket.MessageText, moveHere)
	}
	require.Equal(t, 0, h.EndActor("zoe"))
	require.Equal(t, 2, h.EndActor("ann"))
	// A client that does not mind the close frame is not listened to.
	for range 20 {
		_ = ann.Write(t.Context(), websocket.MessageText, []byte(moveHere))
	}
	require.Equal(t, gatewayws.CloseEnded, ended(t, ann))
	require.Equal(t, gatewayws.CloseEnded, ended(t, again))
	exchange(t, bob, websocket.MessageText, moveHere)
	require.EqualValues(t, 4, moved.Load())
	require.Equal(t, 0, h.EndTile(fence.TileID(1)))
	require.Equal(t, 1, h.EndTile(here))
	require.Equal(t, gatewayws.CloseEnded, ended(t, bob))
	join(t, url, "ann")
}

// A handshake that the game agreed to before it ended the actor's sessions does not slip in after it.
func TestNobodySlipsInWhileSessionsEnd(t *testing.T) {
	var h *gatewayws.Handler
	d := &doorman{}
	var banned atomic.Bool
	h, err := gatewayws.New(&gateway{}, func(r *http.Request) (session.Identity, error) {
		who, err := d.authenticate(r)
		if banned.Swap(true) {
			return who, errors.New("banned")
		}
		h.EndActor(who.Actor) // between the game's decision and ours
		return who, err
	}, nil)
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	defer func() { assert.NoError(t, h.Drain(t.Context())) }()
	c := join(t, "ws"+strings.TrimPrefix(server.URL, "http"), "ann")
	require.Equal(t, gatewayws.CloseEnded, ended(t, c))
	require.EqualValues(t, 2, d.asked.Load())
}

func TestSessionsExpireAndAreRefreshed(t *testing.T) {
	d := &doorman{}
	d.lifetime.Store(int64(time.Hour))
	_, url := d.serve(t, &gateway{}, gatewayws.Config{})
	c := join(t, url, "ann")
	_, b, err := c.Read(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `^\{"id":"","session":\{"expires_in":3[56]\d{5}\}\}$`, string(b))
	refused := `"error":{"code":"refused","message":"the token was not accepted","retryable":false}}`
	require.JSONEq(t, `{"id":"1",`+refused,
		exchange(t, c, websocket.MessageText, `{"id":"1","kind":"refresh","token":"bob"}`), "another actor")
	require.JSONEq(t, `{"id":"2",`+refused, exchange(t, c, websocket.MessageText, `{"id":"2","kind":"refresh"}`))
	d.lifetime.Store(int64(50 * time.Millisecond))
	require.Contains(t, exchange(t, c, websocket.MessageText, `{"id":"3","kind":"refresh","token":"ann"}`), `"session"`)
	require.Equal(t, gatewayws.CloseExpired, ended(t, c))
}

// After its session is over, a client that goes on is not listened to, whatever timers do.
func TestNoIntentAfterTheSessionIsOver(t *testing.T) {
	var late atomic.Int64
	d := &doorman{}
	d.lifetime.Store(int64(300 * time.Millisecond))
	_, url := d.serve(t, &gateway{move: func(ctx context.Context, _ tile.Intent) (tile.Result, error) {
		if who, _ := session.FromContext(ctx); who.Expired(time.Now().Add(-time.Second)) {
			late.Add(1)
		}
		return tile.Result{Outcome: stream.Applied}, nil
	}}, gatewayws.Config{})
	c := join(t, url, "ann")
	go func() {
		for c.Write(context.Background(), websocket.MessageText, []byte(moveHere)) == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	require.Equal(t, gatewayws.CloseExpired, ended(t, c))
	require.Zero(t, late.Load())
}

// A Go client with tokens renews its session by itself, again and again, on one connection.
func TestClientRenewsItsSession(t *testing.T) {
	given := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given <- session.Token(r)
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{gatewayws.Subprotocol}})
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		_ = c.Write(r.Context(), websocket.MessageText, []byte(`{"id":"","session":{"expires_in":20}}`))
		for {
			var f struct{ ID, Kind, Token string }
			if wsjson.Read(r.Context(), c, &f) != nil {
				return
			}
			given <- f.Kind + " " + f.Token
			_ = c.Write(r.Context(), websocket.MessageText, []byte(`{"id":"`+f.ID+`","session":{"expires_in":20}}`))
		}
	}))
	defer server.Close()
	var tokens atomic.Int64
	c, err := gatewayws.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), &gatewayws.DialConfig{
		Token: func(context.Context) (string, error) { return strconv.FormatInt(tokens.Add(1), 10), nil }})
	require.NoError(t, err)
	for _, want := range []string{"1", "refresh 2", "refresh 3", "refresh 4"} {
		require.Equal(t, want, <-given)
	}
	require.NoError(t, c.Close())
}

// A token that the server does not take leaves the session as it is.
func TestRefreshByHand(t *testing.T) {
	d := &doorman{}
	_, url := d.serve(t, &gateway{}, gatewayws.Config{})
	c := dial(t, url, &gatewayws.DialConfig{Token: func(context.Context) (string, error) { return "ann", nil }})
	require.NoError(t, c.Refresh(t.Context(), "ann"))
	require.ErrorIs(t, c.Refresh(t.Context(), "bob"), admission.ErrDeclined)
	_, err := c.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move})
	require.NoError(t, err)
}

func TestNamesAreTheTiles(t *testing.T) {
	require.Equal(t, tile.MaxName, session.MaxActor)
}
