package tilehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const here fence.TileID = 0x85283473fffffff

// serve returns the contact of a process that answers with f, and a client.
func serve(t testing.TB, f tilehttp.SubmitterFunc) (string, *tilehttp.Client) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, tilehttp.Handler(f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return server.Listener.Addr().String(), client
}

func TestOutcomesAndIntentsTravel(t *testing.T) {
	var got tile.Intent
	outcome := stream.Applied
	contact, client := serve(t, func(_ context.Context, in tile.Intent) (stream.Outcome, error) {
		got = in
		return outcome, nil
	})
	for ; outcome <= stream.Redirected; outcome++ {
		in := tile.Intent{Tile: here, ActionID: "é🂡\"<>&\u2028", Actor: strings.Repeat("\x01", 64),
			Body: bytes.Repeat([]byte{0, 255}, tile.MaxIntentBody/2)}
		o, err := client.Forward(t.Context(), contact, in)
		require.NoError(t, err)
		assert.Equal(t, outcome, o)
		assert.Equal(t, in, got)
	}
	outcome = stream.Fizzled
	in := tile.Intent{Tile: 1<<64 - 1}
	_, err := client.Forward(t.Context(), contact, in)
	require.NoError(t, err)
	assert.Equal(t, in, got)

	outcome = 0
	_, err = client.Forward(t.Context(), contact, in)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
}

func TestErrorsTravel(t *testing.T) {
	var answer error
	contact, client := serve(t, func(context.Context, tile.Intent) (stream.Outcome, error) {
		return stream.Applied, answer
	})
	in := tile.Intent{Tile: here, ActionID: "x"}
	for name, c := range map[string]struct {
		answer error
		want   error // equal, if not nil
		is     []error
	}{
		"redirect": {answer: &tile.RedirectError{Tile: here, Epoch: 7, Contact: "b:1"},
			want: &tile.RedirectError{Tile: here, Epoch: 7, Contact: "b:1"}},
		"wrapped redirect": {answer: fmt.Errorf("host: %w", &tile.RedirectError{Tile: here}),
			want: &tile.RedirectError{Tile: here}},
		"unresolved": {answer: &tile.UnresolvedError{Tile: here, Epoch: 8, Contact: "c:1"},
			want: &tile.UnresolvedError{Tile: here, Epoch: 8, Contact: "c:1"}},
		"both": {answer: errors.Join(&tile.RedirectError{Tile: here}, &tile.UnresolvedError{Tile: here}),
			want: &tile.UnresolvedError{Tile: here}},
		"overloaded": {answer: fmt.Errorf("host: %w", tile.ErrOverloaded), want: tile.ErrOverloaded},
		"argument": {answer: &fence.ArgumentError{Field: "body", Value: 3, Want: "less"},
			want: &fence.ArgumentError{Field: "body", Value: "3", Want: "less"}},
		"anything else": {answer: errors.New("disk on fire"),
			is: []error{tilehttp.ErrUnavailable, fence.ErrUnknownOutcome}},
		"store not asked": {answer: &fence.StoreError{Op: "x", Outcome: fence.ErrNotApplied,
			Err: errors.New("down")}, is: []error{tilehttp.ErrUnavailable, fence.ErrUnknownOutcome}},
		"refused by a store": {answer: &fence.RefusedError{Reason: fence.ErrStale},
			is: []error{tilehttp.ErrUnavailable, fence.ErrUnknownOutcome}},
	} {
		answer = c.answer
		_, err := client.Forward(t.Context(), contact, in)
		require.Error(t, err, name)
		if c.want != nil {
			assert.Equal(t, c.want, err, name)
		}
		for _, is := range c.is {
			require.ErrorIs(t, err, is, name)
		}
		if len(c.is) > 0 {
			require.NotErrorIs(t, err, fence.ErrNotApplied, name)
		}
	}
}

// validating submits nothing that is not in order, as tile.Host and tile.TileProcessor do.
func validating(t *testing.T) tilehttp.SubmitterFunc {
	return func(_ context.Context, in tile.Intent) (stream.Outcome, error) {
		if err := in.Validate(); err != nil {
			return 0, err
		}
		t.Errorf("submitted: %+v", in)
		return stream.Applied, nil
	}
}

// TestWhatIsNotInOrderIsRefused: the client passes an intent on, and the process that runs the tile refuses it. A name
// that JSON cannot carry arrives as another one, which is refused too.
func TestWhatIsNotInOrderIsRefused(t *testing.T) {
	contact, client := serve(t, validating(t))
	for _, in := range []tile.Intent{
		{}, {Tile: 1, ActionID: "\xff"}, {Tile: 1, Actor: "a\xc3"}, {Tile: 1, ActionID: "\ufffd"},
		{Tile: 1, Body: make([]byte, tile.MaxIntentBody+1)},
		{Tile: 1, Body: make([]byte, 2*tilehttp.MaxRequest)}, {Tile: 1, Actor: strings.Repeat("x", 65)},
	} {
		_, err := client.Forward(t.Context(), contact, in)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
}

func TestUnreachable(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	in := tile.Intent{Tile: here, ActionID: "x"}
	for _, contact := range []string{closed.Addr().String(), "not a contact", ""} {
		_, err = client.Forward(t.Context(), contact, in)
		var unavailable *tilehttp.UnavailableError
		require.ErrorAs(t, err, &unavailable, contact)
		require.ErrorIs(t, err, tilehttp.ErrUnavailable)
	}
	_, err = client.Forward(t.Context(), closed.Addr().String(), in)
	require.ErrorIs(t, err, fence.ErrNotApplied)

	// A process that dies with the request in its hands.
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	_, err = client.Forward(t.Context(), server.Listener.Addr().String(), in)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	require.NotErrorIs(t, err, fence.ErrNotApplied)
}

func TestTimeoutIsUnknown(t *testing.T) {
	entered := make(chan struct{})
	contact, client := serve(t, func(ctx context.Context, _ tile.Intent) (stream.Outcome, error) {
		close(entered)
		<-ctx.Done() // the handler learns that the client has left
		return 0, context.Cause(ctx)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := client.Forward(ctx, contact, tile.Intent{Tile: here})
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	require.ErrorIs(t, err, context.Canceled)
}

func TestForeignAnswers(t *testing.T) {
	var status int
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	for _, c := range []struct {
		status int
		body   string
	}{
		{200, ""}, {200, "<html>"}, {200, "{}"}, {200, `{"v":2,"outcome":"applied"}`}, {200, `{"v":1,"outcome":"won"}`},
		{200, `{"v":1,"outcome":"applied","error":{"code":"redirect"}}`}, {421, `{"v":1,"error":{"code":"gone"}}`},
		{307, ""}, {502, "bad gateway"}, {200, strings.Repeat(" ", 70000)}, {429, `{"v":1}`},
		{421, `{"v":1,"error":{"code":"redirect","epoch":-1}}`},
	} {
		status, body = c.status, c.body
		_, err := client.Forward(t.Context(), server.Listener.Addr().String(), tile.Intent{Tile: here})
		require.ErrorIs(t, err, fence.ErrUnknownOutcome, "%+v", c)
		require.NotErrorIs(t, err, tile.ErrRedirect)
	}
}

func post(t testing.TB, h http.Handler, body string) (int, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, tilehttp.Path, strings.NewReader(body)))
	var reply map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply), w.Body.String())
	return w.Code, reply
}

func TestHandlerRefusesWhatItCannotRead(t *testing.T) {
	h := tilehttp.Handler(validating(t))
	for _, body := range []string{
		"", "null", "[]", "1", "{", `{"v":1}`, `{"v":2,"tile":"1"}`, `{"tile":"1"}`,
		`{"v":1,"tile":"0"}`, `{"v":1,"tile":"01"}`, `{"v":1,"tile":"A"}`,
		`{"v":1,"tile":1}`, `{"v":1,"tile":"1"}{}`, `{"v":1,"tile":"1"} x`, `{"v":1,"tile":"1","body":"%"}`,
		`{"v":1,"tile":"1","action":"` + "\xff" + `"}`, `{"v":1,"tile":"1","action":"\ud800"}`,
		`{"v":1,"tile":"1","actor":"\ufffd"}`,
		`{"v":1,"tile":"1","actor":"` + strings.Repeat("a", 65) + `"}`,
		`{"v":1,"tile":"1","body":"` + strings.Repeat("A", 5600) + `"}`,
		`{"v":1,"tile":"1"` + strings.Repeat(" ", tilehttp.MaxRequest) + `}`,
	} {
		status, reply := post(t, h, body)
		assert.Equal(t, http.StatusBadRequest, status, body)
		assert.Equal(t, "invalid", reply["error"].(map[string]any)["code"], body)
		assert.NotEmpty(t, reply["error"].(map[string]any)["want"], "what to send instead")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tilehttp.Path, nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

// TestUnknownFieldsAreIgnored: a newer release may send them while an upgrade rolls, in both directions.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	var got tile.Intent
	h := tilehttp.Handler(tilehttp.SubmitterFunc(func(_ context.Context, in tile.Intent) (stream.Outcome, error) {
		got = in
		return stream.Applied, nil
	}))
	status, reply := post(t, h, `{"v":1,"tile":"85283473fffffff","new":{"deep":[1,{"er":null}]},"action":"0b54"}`)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "applied", reply["outcome"])
	assert.Equal(t, tile.Intent{Tile: here, ActionID: "0b54"}, got)

	for answer, want := range map[string]error{
		`{"v":1,"outcome":"applied","new":1}`:                          nil,
		`{"v":1,"new":[],"error":{"code":"overloaded","newer":"yes"}}`: tile.ErrOverloaded,
	} {
		client, err := tilehttp.NewClient(&tilehttp.Config{Transport: oneReply(answer)})
		require.NoError(t, err)
		_, err = client.Forward(t.Context(), "x:1", tile.Intent{Tile: here})
		require.ErrorIs(t, err, want)
	}
}

// TestGolden pins the format.
func TestGolden(t *testing.T) {
	var answer error
	h := tilehttp.Handler(tilehttp.SubmitterFunc(func(_ context.Context, in tile.Intent) (stream.Outcome, error) {
		assert.Equal(t, tile.Intent{Tile: here, ActionID: "0b54", Actor: "ann", Body: []byte("fire")}, in)
		return stream.Applied, answer
	}))
	for want, err := range map[string]error{
		`200 {"v":1,"outcome":"applied"}`: nil,
		`421 {"v":1,"error":{"code":"redirect","message":"tile 85283473fffffff: tile is owned elsewhere: ` +
			`epoch 7 at b:1","tile":"85283473fffffff","epoch":7,"contact":"b:1"}}`: &tile.RedirectError{
			Tile: here, Epoch: 7, Contact: "b:1"},
		`429 {"v":1,"error":{"code":"overloaded","message":"tile is overloaded"}}`: tile.ErrOverloaded,
	} {
		answer = err
		w := httptest.NewRecorder()
		body := `{"v":1,"tile":"85283473fffffff","action":"0b54","actor":"ann","body":"ZmlyZQ=="}`
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, tilehttp.Path, strings.NewReader(body)))
		if err != nil && w.Code == http.StatusMisdirectedRequest {
			assert.JSONEq(t, want[4:], w.Body.String())
			continue
		}
		assert.Equal(t, want, fmt.Sprint(w.Code, " ", w.Body.String()))
	}
}

func TestManyAtOnceReuseConnections(t *testing.T) {
	var connections, served atomic.Int64
	mux := http.NewServeMux()
	release := make(chan struct{})
	submit := func(context.Context, tile.Intent) (stream.Outcome, error) {
		served.Add(1)
		<-release // the tick
		return stream.Applied, nil
	}
	mux.Handle(tilehttp.Path, tilehttp.Handler(tilehttp.SubmitterFunc(submit)))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	const n = 200
	for round := range 3 {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				o, err := client.Forward(t.Context(), server.Listener.Addr().String(), tile.Intent{Tile: here})
				assert.NoError(t, err)
				assert.Equal(t, stream.Applied, o)
			})
		}
		require.Eventually(t, func() bool { return served.Load() == int64(n*(round+1)) }, 10*time.Second,
			time.Millisecond)
		for range n {
			release <- struct{}{}
		}
		wg.Wait()
	}
	assert.LessOrEqual(t, connections.Load(), int64(n+n/4), "connections are kept for the next tick")
}

func TestClientArguments(t *testing.T) {
	for _, cfg := range []tilehttp.Config{{MaxIdlePerContact: -1}, {IdleTimeout: -1}, {DialTimeout: -1}} {
		_, err := tilehttp.NewClient(&cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	no := errors.New("no such contact")
	client, err := tilehttp.NewClient(&tilehttp.Config{URL: func(string) (string, error) { return "", no },
		Transport: http.DefaultTransport})
	require.NoError(t, err)
	client.Close()
	_, err = client.Forward(t.Context(), "x", tile.Intent{Tile: here})
	require.ErrorIs(t, err, no)
	require.ErrorIs(t, err, fence.ErrNotApplied)
}

func FuzzHandler(f *testing.F) {
	f.Add([]byte(`{"v":1,"tile":"85283473fffffff","action":"0b54","actor":"ann","body":"ZmlyZQ=="}`))
	f.Add([]byte(`{"v":1,"tile":"1","action":"\ud800"}`))
	f.Add([]byte("\xff{}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got *tile.Intent
		h := tilehttp.Handler(tilehttp.SubmitterFunc(func(_ context.Context, in tile.Intent) (stream.Outcome, error) {
			got = &in
			return stream.Fizzled, nil
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, tilehttp.Path, bytes.NewReader(body)))
		if got == nil {
			require.Equal(t, http.StatusBadRequest, w.Code)
			return
		}
		require.Equal(t, http.StatusOK, w.Code)
		require.True(t, utf8.ValidString(got.ActionID+got.Actor))
	})
}

type oneReply []byte

func (b oneReply) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(b)), Request: r,
		Header: http.Header{}}, nil
}

func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"v":1,"outcome":"applied"}`))
	f.Add([]byte(`{"v":1,"error":{"code":"redirect","tile":"85283473fffffff","epoch":7,"contact":"b:1"}}`))
	f.Add([]byte(`{"v":1,"error":{"code":"invalid","field":"x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, err := tilehttp.NewClient(&tilehttp.Config{Transport: oneReply(b)})
		require.NoError(t, err)
		o, err := client.Forward(t.Context(), "x:1", tile.Intent{Tile: here})
		require.NotEqual(t, err == nil, !o.Valid())
		if err != nil {
			var r *tile.RedirectError
			if errors.As(err, &r) {
				require.Equal(t, here, r.Tile)
			}
		}
	})
}
