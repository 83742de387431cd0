package socket

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// headers returns those of a handshake, changed; a value without text takes the header away.
func headers(change ...string) http.Header {
	h := http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {"other, p"}}
	for i := 0; i < len(change); i += 2 {
		if change[i+1] == "" {
			h.Del(change[i])
		} else {
			h.Set(change[i], change[i+1])
		}
	}
	return h
}

// ask sends a request with headers to a handler, and returns the response without what a server adds.
func ask(t *testing.T, method string, h http.Header, handler http.HandlerFunc) (status int, answer http.Header) {
	t.Helper()
	s := httptest.NewServer(handler)
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	r, err := http.NewRequest(method, "http://play.test/", http.NoBody)
	require.NoError(t, err)
	r.Header = h
	require.NoError(t, r.Write(conn))
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	require.NoError(t, err)
	defer resp.Body.Close()
	for _, name := range []string{"Date", "Content-Length", "Content-Type", "X-Content-Type-Options"} {
		resp.Header.Del(name)
	}
	return resp.StatusCode, resp.Header
}

// TestHandshakes: what a handshake is, which origins may make it and what is agreed on are what a library of long
// standing says.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	origins := []string{"*.example.com", "https://shop.example.org"}
	ours := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Before", "kept")
		c, err := Accept(w, r, Offer{Subprotocol: "p", Origins: origins, Deflate: true}, 100, nil,
			func() error { return nil })
		if err == nil {
			_ = c.Close()
		}
	}
	theirs := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Before", "kept")
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"p"}, OriginPatterns: origins,
			CompressionMode: websocket.CompressionNoContextTakeover})
		if err == nil {
			_ = c.CloseNow()
		}
	}
	const deflate = "permessage-deflate"
	for _, c := range []struct {
		change []string
		status int
	}{
		{nil, 101},
		{[]string{"Connection", "UPGRADE"}, 101}, {[]string{"Connection", "close"}, 426},
		{[]string{"Connection", ""}, 426},
		{[]string{"Upgrade", "h2c, WebSocket"}, 101}, {[]string{"Upgrade", "h2c"}, 426}, {[]string{"Upgrade", ""}, 426},
		{[]string{"Sec-WebSocket-Version", "8"}, 400}, {[]string{"Sec-WebSocket-Version", ""}, 400},
		{[]string{"Sec-WebSocket-Key", ""}, 400}, {[]string{"Sec-WebSocket-Key", "c2hvcnQ="}, 400},
		{[]string{"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZSE="}, 400},
		{[]string{"Sec-WebSocket-Key", "!GhlIHNhbXBsZSBub25jZQ=="}, 400},
		{[]string{"Sec-WebSocket-Key", strings.Repeat("A", 1000)}, 400},
		{[]string{"Origin", "http://PLAY.test"}, 101}, {[]string{"Origin", "https://a.Example.com"}, 101},
		{[]string{"Origin", "https://shop.example.org"}, 101}, {[]string{"Origin", "http://shop.example.org"}, 403},
		{[]string{"Origin", "https://example.com"}, 403}, {[]string{"Origin", "null"}, 403},
		{[]string{"Origin", "https://evil.test/.example.com"}, 403}, {[]string{"Origin", "::"}, 403},
		{[]string{"Sec-WebSocket-Extensions", deflate}, 101},
		{[]string{"Sec-WebSocket-Extensions", "x-other, " + deflate + "; client_max_window_bits"}, 101},
		{[]string{"Sec-WebSocket-Extensions", deflate + "; server_max_window_bits=10, " + deflate}, 101},
		{[]string{"Sec-WebSocket-Extensions", deflate + "; server_max_window_bits=15"}, 101},
		{[]string{"Sec-WebSocket-Extensions", deflate + "; server_no_context_takeover"}, 101},
		{[]string{"Sec-WebSocket-Extensions", deflate + ";client_max_window_bits=9 ;client_no_context_takeover"}, 101},
		{[]string{"Sec-WebSocket-Extensions", deflate + "; unheard_of"}, 101},
		{[]string{"Sec-WebSocket-Extensions", "x-" + deflate}, 101},
	} {
		status, answer := ask(t, http.MethodGet, headers(c.change...), ours)
		wantStatus, want := ask(t, http.MethodGet, headers(c.change...), theirs)
		require.Equal(t, c.status, status, "%q", c.change)
		require.Equal(t, wantStatus, status, "%q", c.change)
		require.Equal(t, want, answer, "%q", c.change)
	}
	status, _ := ask(t, http.MethodPost, headers(), ours)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	twice := headers()
	twice.Add("Sec-Websocket-Key", twice.Get("Sec-Websocket-Key"))
	status, _ = ask(t, http.MethodGet, twice, ours)
	require.Equal(t, http.StatusBadRequest, status)
}

// TestWhoDecidesOverAHandshake: whoever lets clients in is asked of handshakes only, and answers for itself.
func TestWhoDecidesOverAHandshake(t *testing.T) {
	t.Parallel()
	asked := 0
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, err := Accept(w, r, Offer{}, 100, nil, func() error {
			asked++
			return errors.New("no")
		})
		if err.Error() == "no" {
			w.WriteHeader(http.StatusTeapot)
		}
	}
	status, _ := ask(t, http.MethodGet, headers("Origin", "https://evil.test"), handler)
	require.Equal(t, http.StatusForbidden, status)
	require.Zero(t, asked)
	status, answer := ask(t, http.MethodGet, headers(), handler)
	require.Equal(t, http.StatusTeapot, status)
	require.Equal(t, 1, asked)
	require.Empty(t, answer, "nothing of a handshake")

	w := httptest.NewRecorder() // whose connection cannot be had
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header = headers()
	_, err := Accept(w, r, Offer{}, 100, nil, func() error { return nil })
	require.ErrorIs(t, err, http.ErrNotSupported)
	require.Equal(t, http.StatusNotImplemented, w.Code)
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"wss://play.example.com/play":                       "wss://play.example.com/play",
		"wss://ann:secret@play.example.com/play?t=secret#s": "wss://play.example.com/play?…",
		"://secret":        "(not a URL)",
		"wss://h:\x7f/":    "(not a URL)",
		"mailto:secret":    "(not a URL)",
		"wss://h/#secret":  "wss://h/",
		"wss://secret@h/x": "wss://h/x",
	} {
		assert.Equal(t, want, Redact(raw), raw)
	}
}

func TestDialErrorKeepsTheCause(t *testing.T) {
	cause := errors.New("connection refused")
	err := fmt.Errorf("dial: %w", &url.Error{Op: "Get", URL: "https://h/?t=secret", Err: cause})
	assert.ErrorIs(t, DialError(err, nil), cause)
	assert.NotContains(t, DialError(err, nil).Error(), "secret")
	assert.Equal(t, cause, DialError(cause, nil))
}
