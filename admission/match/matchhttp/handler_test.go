package matchhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/matchhttp"
	"github.com/tilefence/tilefence/admission/match/memmatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/session"
)

var keys = session.Keys{[]byte("thirty-two bytes, known to all..")}

func token(actor string, expires time.Time) string {
	t, err := keys.Sign(session.Identity{Actor: actor, Expires: expires})
	if err != nil {
		panic(err)
	}
	return t
}

func Example() {
	lobby, err := match.NewLobby(memmatch.New(), match.Queue{Name: "ranked-eu", Max: 2})
	if err != nil {
		panic(err)
	}
	handler, err := matchhttp.New(lobby, "ranked-eu", keys.Authenticate, nil)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/lobby/", http.StripPrefix("/lobby", handler))

	r := httptest.NewRequest(http.MethodPut, "/lobby/tickets/a3f1", strings.NewReader(`{"rating":1500}`))
	r.Header = session.WithToken(r.Header, token("ann", time.Now().Add(time.Hour)))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	var t matchhttp.Ticket
	fmt.Println(w.Code, json.NewDecoder(w.Body).Decode(&t), t.ID, t.State)
	// Output: 200 <nil> a3f1 waiting
}

// serve starts a handler of a queue of pairs, with an hour's token for each player.
func serve(t *testing.T, cfg *matchhttp.Config) (url string, send func(method, path, token, body string) int) {
	lobby, err := match.NewLobby(memmatch.New(), match.Queue{Name: "q", Max: 4, Teams: 2})
	require.NoError(t, err)
	h, err := matchhttp.New(lobby, "q", keys.Authenticate, cfg)
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL, func(method, path, token, body string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/tickets/"+path, strings.NewReader(body))
		require.NoError(t, err)
		if token != "" {
			r.Header = session.WithToken(r.Header, token)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
}

// TestRequests: each request has one answer, and a ticket is there for its players alone.
func TestRequests(t *testing.T) {
	later := time.Now().Add(time.Hour)
	ann, bob, eve := token("ann", later), token("bob", later), token("eve", later)
	left := ""
	_, send := serve(t, &matchhttp.Config{Friend: keys.Verify,
		Rate: func(_ context.Context, k *match.Ticket) error {
			if k.Rating > 5000 {
				return &fence.ArgumentError{Field: "rating", Value: k.Rating, Want: "at most 5000"}
			}
			return nil
		},
		Leave: func(_ context.Context, s match.Status) error {
			left = s.Ticket.ID
			return &match.DeniedError{Err: match.ErrLapsed, What: "ticket " + s.Ticket.ID}
		}})
	for _, c := range []struct {
		method, path, token, body string
		want                      int
	}{
		{"PUT", "a", "", `{"rating":1500}`, http.StatusUnauthorized},
		{"PUT", "a", "ann", `{"rating":1500}`, http.StatusUnauthorized},
		{"PUT", "a", token("ann", time.Now().Add(-time.Second)), `{"rating":1500}`, http.StatusUnauthorized},
		{"PUT", "a", ann, ``, http.StatusBadRequest},
		{"PUT", "a", ann, strings.Repeat(" ", 17<<10) + `{}`, http.StatusBadRequest},
		{"PUT", "a", ann, `{"rating":5001}`, http.StatusBadRequest},
		{"PUT", "a%20b", ann, `{"rating":1500}`, http.StatusBadRequest},
		{"PUT", "a", ann, `{"rating":1500,"friends":["bob"]}`, http.StatusUnauthorized},
		{"PUT", "a", ann, fmt.Sprintf(`{"rating":1500,"friends":[%q]}`, bob), http.StatusOK},
		{"PUT", "a", ann, fmt.Sprintf(`{"rating":1500,"friends":[%q]}`, bob), http.StatusOK}, // repeated
		{"PUT", "b", bob, `{"rating":1500}`, http.StatusConflict},                            // has an open ticket
		{"PUT", "a", eve, `{"rating":1500}`, http.StatusConflict},                            // another's ID
		{"GET", "a", bob, ``, http.StatusOK},
		{"GET", "a", eve, ``, http.StatusNotFound},
		{"GET", "b", eve, ``, http.StatusNotFound},
		{"DELETE", "a", eve, ``, http.StatusNotFound},
		{"POST", "a/leave", eve, ``, http.StatusNotFound},
		{"POST", "a/leave", ann, ``, http.StatusGone},
		{"POST", "a", ann, ``, http.StatusMethodNotAllowed},
		{"DELETE", "a", bob, ``, http.StatusOK},
		{"PUT", "a", ann, `{"rating":1500}`, http.StatusConflict}, // a new try takes a new ID
	} {
		assert.Equal(t, c.want, send(c.method, c.path, c.token, c.body), "%s %s %.40s", c.method, c.path, c.body)
	}
	assert.Equal(t, "a", left)
}

// TestOptions: without Friend there are no parties, without Leave there is no such route, and New says what it lacks.
func TestOptions(t *testing.T) {
	ann := token("ann", time.Now().Add(time.Hour))
	_, send := serve(t, nil)
	assert.Equal(t, http.StatusBadRequest, send("PUT", "a", ann, fmt.Sprintf(`{"friends":[%q]}`, ann)))
	assert.Equal(t, http.StatusOK, send("PUT", "a", ann, `{"rating":9000}`))
	assert.Equal(t, http.StatusNotFound, send("POST", "a/leave", ann, ``))
	lobby, err := match.NewLobby(memmatch.New(), match.Queue{Name: "q", Max: 2})
	require.NoError(t, err)
	for _, bad := range []func() error{
		func() error { _, err := matchhttp.New(nil, "q", keys.Authenticate, nil); return err },
		func() error { _, err := matchhttp.New(lobby, "", keys.Authenticate, nil); return err },
		func() error { _, err := matchhttp.New(lobby, "q", nil, nil); return err },
	} {
		require.ErrorIs(t, bad(), fence.ErrInvalidArgument)
	}
	w := httptest.NewRecorder()
	matchhttp.Refuse(w, errors.New("the store is away"))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
}

// TestFollow: a WebSocket shows the ticket and each change, and closes after the last, or when the player's token ends.
func TestFollow(t *testing.T) {
	url, send := serve(t, nil)
	dial := func(token string) *websocket.Conn {
		//nolint:bodyclose // the library says that there is no need
		c, _, err := websocket.Dial(t.Context(), url+"/tickets/a", &websocket.DialOptions{
			Subprotocols: []string{matchhttp.Protocol}, HTTPHeader: session.WithToken(nil, token)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.CloseNow() })
		return c
	}
	read := func(c *websocket.Conn) (k matchhttp.Ticket, err error) {
		err = wsjson.Read(t.Context(), c, &k)
		return k, err
	}
	ann := token("ann", time.Now().Add(time.Hour))
	require.Equal(t, http.StatusOK, send("PUT", "a", ann, `{"rating":1500}`))
	brief, long := dial(token("ann", time.Now().Add(time.Second))), dial(ann)
	assert.Equal(t, matchhttp.Protocol, long.Subprotocol())
	for _, c := range []*websocket.Conn{brief, long} {
		k, err := read(c)
		require.NoError(t, err)
		assert.Equal(t, "waiting", k.State)
	}
	_, err := read(brief)
	assert.EqualValues(t, 4003, websocket.CloseStatus(err), "%v", err)
	require.Equal(t, http.StatusOK, send("DELETE", "a", ann, ``))
	k, err := read(long)
	require.NoError(t, err)
	assert.Equal(t, "cancelled", k.State)
	_, err = read(long)
	assert.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err), "%v", err)
}
