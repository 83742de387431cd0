package tilehttp_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

func keys(names ...string) (all tilehttp.Keys) {
	for _, name := range names {
		all = append(all, []byte(name+": sixteen bytes"))
	}
	return all
}

// guarded serves intents and hand-overs with keys, and counts what gets through.
func guarded(t testing.TB, k tilehttp.Keys) (contact string, through *atomic.Int64) {
	t.Helper()
	through = new(atomic.Int64)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	contact = l.Addr().String()
	cfg := tilehttp.HandlerConfig{Keys: k, Contact: contact}.With(tilehttp.Tuning{WriteTimeout: time.Second})
	h, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(func(context.Context, tile.Intent) (tile.Result, error) {
		through.Add(1)
		return tile.Result{Outcome: stream.Applied}, nil
	}), cfg)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, h)
	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(accepterFunc(func(context.Context, tile.Handover) error {
		through.Add(1)
		return nil
	}), cfg))
	server := httptest.NewUnstartedServer(mux)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return contact, through
}

// TestKeys: processes that have a key in common can talk, whichever each of them presents; no others can.
func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		client, server tilehttp.Keys
		ok             bool
	}{
		"the same":             {keys("a"), keys("a"), true},
		"the new one is added": {keys("a"), keys("a", "b"), true},
		"both have both":       {keys("a", "b"), keys("b", "a"), true},
		"the old one has gone": {keys("b"), keys("b", "a"), true},
		"another":              {keys("a"), keys("b"), false},
		"the client has none":  {nil, keys("a"), false},
		"the server has none":  {keys("a"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			contact, through := guarded(t, c.server)
			client := newClient(t, &tilehttp.Config{Keys: c.client})
			outcome, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here})
			handed := client.Handover(t.Context(), given(contact))
			if c.ok {
				require.NoError(t, err)
				require.NoError(t, handed)
				assert.Equal(t, stream.Applied, outcome.Outcome)
				assert.EqualValues(t, 2, through.Load())
				return
			}
			require.ErrorIs(t, err, fence.ErrNotApplied)
			require.ErrorIs(t, handed, tilehttp.ErrUnavailable)
			if c.server != nil { // else it does take a hand-over, and the giver does not believe that
				require.ErrorIs(t, handed, fence.ErrNotApplied)
				assert.Zero(t, through.Load())
			}
		})
	}
	_, err := tilehttp.NewClient(&tilehttp.Config{Keys: tilehttp.Keys{[]byte("short")}})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = tilehttp.NewHandler(validating(t), &tilehttp.HandlerConfig{Keys: tilehttp.Keys{[]byte("short")}})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// TestPassingOnIsNoticed: a process without a key, which took a place in the routes, passes everything on to a tile
// server that has one. What it could change on the way it is not given.
func TestPassingOnIsNoticed(t *testing.T) {
	contact, through := guarded(t, keys("a"))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // of a test
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := new(net.Dialer).DialContext(context.Background(), "tcp", contact)
			if err != nil {
				_ = from.Close()
				return
			}
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
		}
	}()
	client := newClient(t, &tilehttp.Config{Keys: keys("a")})
	_, err = client.Forward(t.Context(), l.Addr().String(), tile.Intent{Tile: here})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	err = client.Handover(t.Context(), given(l.Addr().String()))
	require.ErrorIs(t, err, fence.ErrNotApplied)
	assert.Zero(t, through.Load())
}

// TestStrangers: who talks the protocol but proves nothing gets nothing through, nor does a page of another site, with
// or without keys.
func TestStrangers(t *testing.T) {
	contact, through := guarded(t, keys("a"))
	for _, first := range []string{`{"v":1,"proof":"00"}`, `{"v":1,"proof":""}`, `{"v":1,"intents":[]}`, "x",
		`{"v":1,"intents":[{"id":1,"tile":"85283473fffffff"}]}`} {
		//nolint:bodyclose // the package says not to
		conn, _, err := websocket.Dial(t.Context(), "http://"+contact+tilehttp.Path, &websocket.DialOptions{
			Subprotocols: []string{tilehttp.Subprotocol},
			HTTPHeader:   http.Header{"Tilefence-Contact": {contact}, "Tilefence-Challenge": {"00"}}})
		require.NoError(t, err)
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(first)))
		_, _, err = conn.Read(t.Context())
		assert.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))
		_ = conn.CloseNow()
	}
	assert.Equal(t, http.StatusUnauthorized,
		sent(t, contact, tilehttp.HandoverPath, goldenHandover, "application/json", ""))
	assert.Zero(t, through.Load())

	open, through := guarded(t, nil)
	post := func(kind, origin string) int {
		return sent(t, open, tilehttp.HandoverPath, goldenHandover, kind, origin)
	}
	assert.Equal(t, http.StatusUnsupportedMediaType, post("text/plain", ""))
	assert.Equal(t, http.StatusForbidden, post("application/json", "https://evil.example"))
	assert.Zero(t, through.Load())
	assert.Equal(t, http.StatusOK, post("application/json; charset=utf-8", ""))
}

// TestABadCertificateIsNotApplied: an expired or foreign certificate leaves nothing for an operator to decide.
func TestABadCertificateIsNotApplied(t *testing.T) {
	through := new(atomic.Int64)
	h, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(func(context.Context, tile.Intent) (tile.Result, error) {
		through.Add(1)
		return tile.Result{Outcome: stream.Applied}, nil
	}), nil)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it says that its certificate was refused
	server.StartTLS()
	t.Cleanup(server.Close)
	client := newClient(t, &tilehttp.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
	_, err = client.Forward(t.Context(), server.Listener.Addr().String(), tile.Intent{Tile: here})
	require.ErrorContains(t, err, "certificate")
	require.ErrorIs(t, err, fence.ErrNotApplied)
	err = client.Handover(t.Context(), given(server.Listener.Addr().String()))
	require.ErrorContains(t, err, "certificate")
	require.ErrorIs(t, err, fence.ErrNotApplied)
	assert.Zero(t, through.Load())
}

// sent is the status of a POST.
func sent(t *testing.T, contact, path, body, kind, origin string) int {
	t.Helper()
	r := request(path, body)
	r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", contact
	r.Header.Set("Content-Type", kind)
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// TestAnOldHandoverIsRefused: what was seen on the network is of no use later.
func TestAnOldHandoverIsRefused(t *testing.T) {
	contact, through := guarded(t, keys("a"))
	var seen *http.Request
	client := newClient(t, tilehttp.Config{Keys: keys("a")}.With(tilehttp.Tuning{
		Transport: recorder(func(r *http.Request) { seen = r })}))
	require.Error(t, client.Handover(t.Context(), given(contact)))
	for _, c := range []struct {
		change func(h http.Header)
		status int
	}{
		{func(http.Header) {}, http.StatusOK},
		{func(h http.Header) { h.Set("Tilefence-Proof", "1"+h.Get("Tilefence-Proof")) }, http.StatusUnauthorized},
		{func(h http.Header) { h.Set("Tilefence-Contact", "127.0.0.1:1") }, http.StatusUnauthorized},
		{func(h http.Header) { h.Del("Tilefence-Proof") }, http.StatusUnauthorized},
	} {
		r := seen.Clone(t.Context())
		body, err := seen.GetBody()
		require.NoError(t, err)
		r.Body = body
		c.change(r.Header)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, c.status, resp.StatusCode)
	}
	assert.EqualValues(t, 1, through.Load())
}

// TestAHandoverExpires: a proof is good for five minutes, by the receiver's clock.
func TestAHandoverExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		through := 0
		h := tilehttp.HandoverHandler(accepterFunc(func(context.Context, tile.Handover) error {
			through++
			return nil
		}), &tilehttp.HandlerConfig{Keys: keys("a")})
		var seen *http.Request
		client := newClient(t, tilehttp.Config{Keys: keys("a")}.With(tilehttp.Tuning{
			Transport: recorder(func(r *http.Request) { seen = r })}))
		require.Error(t, client.Handover(t.Context(), given("b:7000")))
		for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusUnauthorized} {
			again := seen.Clone(t.Context())
			again.Body, _ = seen.GetBody()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, again)
			assert.Equal(t, want, w.Code)
			time.Sleep(3 * time.Minute)
		}
		assert.Equal(t, 2, through)
		client.Close()
	})
}

// recorder is a transport that sends nothing.
type recorder func(r *http.Request)

func (f recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return nil, io.ErrUnexpectedEOF
}
