package tilehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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

// handler serves intents to s.
func handler(t testing.TB, s tilehttp.Submitter) *tilehttp.Handler {
	t.Helper()
	h, err := tilehttp.NewHandler(s, nil)
	require.NoError(t, err)
	return h
}

// serve returns the contact of a process that answers with f, and a client.
func serve(t testing.TB, f tilehttp.SubmitterFunc) (string, *tilehttp.Client) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, handler(t, f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), newClient(t, nil)
}

// request is a POST as a program sends it.
func request[B string | []byte](path string, body B) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// newClient returns a client that the test closes before its servers.
func newClient(t testing.TB, cfg *tilehttp.Config) *tilehttp.Client {
	t.Helper()
	client, err := tilehttp.NewClient(cfg)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func TestOutcomesAndIntentsTravel(t *testing.T) {
	var got tile.Intent
	outcome := stream.Applied
	contact, client := serve(t, func(_ context.Context, in tile.Intent) (tile.Result, error) {
		got = in
		return tile.Result{Outcome: outcome}, nil
	})
	for ; outcome <= stream.Redirected; outcome++ {
		in := tile.Intent{Tile: here, ActionID: "é🂡\"<>&\u2028", Actor: strings.Repeat("\x01", 64),
			Body: bytes.Repeat([]byte{0, 255}, tile.MaxIntentBody/2)}
		o, err := client.Forward(t.Context(), contact, in)
		require.NoError(t, err)
		assert.Equal(t, outcome, o.Outcome)
		assert.Equal(t, in, got)
	}
	outcome = stream.Fizzled
	in := tile.Intent{Tile: 1<<64 - 1, MoveID: "é<1>"}
	_, err := client.Forward(t.Context(), contact, in)
	require.NoError(t, err)
	assert.Equal(t, in, got)

	outcome = 0
	_, err = client.Forward(t.Context(), contact, in)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
}

func TestAnOutcomeSaysWhereTheActorWent(t *testing.T) {
	want := tile.Result{Outcome: stream.Applied, Crossing: tile.Crossing{Entity: "argo", To: here + 1}}
	contact, client := serve(t, func(context.Context, tile.Intent) (tile.Result, error) { return want, nil })
	got, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here, Actor: "ann"})
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestErrorsTravel(t *testing.T) {
	var answer error
	contact, client := serve(t, func(context.Context, tile.Intent) (tile.Result, error) {
		return tile.Result{Outcome: stream.Applied}, answer
	})
	went := tile.Crossing{Entity: "argo \"2\"", To: here + 1}
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
		"crossed": {answer: fmt.Errorf("host: %w", &tile.CrossedError{Tile: here, Crossing: went}),
			want: &tile.CrossedError{Tile: here, Crossing: went}},
		"overloaded": {answer: fmt.Errorf("host: %w", tile.ErrOverloaded), want: tile.ErrOverloaded},
		"quarantined": {answer: &tile.QuarantinedError{Tile: here, Quarantine: fence.Quarantine{By: "b:1"}},
			want: &tile.QuarantinedError{Tile: here}},
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

// validating submits nothing that is not in order, as tilehost.Host and tile.TileProcessor do.
func validating(t *testing.T) tilehttp.SubmitterFunc {
	return func(_ context.Context, in tile.Intent) (tile.Result, error) {
		if err := in.Validate(); err != nil {
			return tile.Result{}, err
		}
		t.Errorf("submitted: %+v", in)
		return tile.Result{Outcome: stream.Applied}, nil
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
	client := newClient(t, nil)
	in := tile.Intent{Tile: here, ActionID: "x"}
	for _, contact := range []string{closed.Addr().String(), "not a contact", ""} {
		_, err = client.Forward(t.Context(), contact, in)
		var unavailable *tilehttp.UnavailableError
		require.ErrorAs(t, err, &unavailable, contact)
		require.ErrorIs(t, err, tilehttp.ErrUnavailable)
	}
	_, err = client.Forward(t.Context(), closed.Addr().String(), in)
	require.ErrorIs(t, err, fence.ErrNotApplied)

	// A process that dies in the handshake has been sent nothing.
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	_, err = client.Forward(t.Context(), server.Listener.Addr().String(), in)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.NotErrorIs(t, err, fence.ErrUnknownOutcome)
}

func TestTimeoutIsUnknown(t *testing.T) {
	entered := make(chan struct{})
	contact, client := serve(t, func(ctx context.Context, _ tile.Intent) (tile.Result, error) {
		close(entered)
		<-ctx.Done() // the handler learns that the client has left
		return tile.Result{}, context.Cause(ctx)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := client.Forward(ctx, contact, tile.Intent{Tile: here})
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	require.ErrorIs(t, err, context.Canceled)
}

func post(t testing.TB, h http.Handler, body string) (int, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(tilehttp.Path, body))
	var reply map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply), w.Body.String())
	return w.Code, reply
}

func TestHandlerTakesConnectionsAlone(t *testing.T) {
	h := handler(t, validating(t))
	for method, want := range map[string]int{http.MethodPost: http.StatusMethodNotAllowed,
		http.MethodPut: http.StatusMethodNotAllowed, http.MethodGet: http.StatusUpgradeRequired} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, tilehttp.Path, http.NoBody))
		assert.Equal(t, want, w.Code, method)
	}
}

func TestClientArguments(t *testing.T) {
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	_, err = client.Forward(t.Context(), "x", tile.Intent{Tile: here})
	require.ErrorContains(t, err, "the contact cannot be called")
	require.ErrorIs(t, err, fence.ErrNotApplied)
	for range 2 {
		client.Close()
		_, err = client.Forward(t.Context(), "x", tile.Intent{Tile: here})
		require.ErrorIs(t, err, fence.ErrNotApplied)
	}

	_, err = tilehttp.NewHandler(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
