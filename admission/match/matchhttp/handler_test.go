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
		func() error {
			_, err := matchhttp.New(lobby, "q", keys.Authenticate, &matchhttp.Config{MaxClients: -1})
			return err
		},
		func() error {
			_, err := matchhttp.New(lobby, "q", keys.Authenticate,
				&matchhttp.Config{Sessions: session.Limits{PerActor: -1}})
			return err
		},
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

// follow opens the WebSocket of a ticket.
func follow(t *testing.T, url, ticket, token string, header http.Header) (*websocket.Conn, error) {
	//nolint:bodyclose // the library says that there is no need
	c, _, err := websocket.Dial(t.Context(), url+"/tickets/"+ticket, &websocket.DialOptions{
		Subprotocols: []string{matchhttp.Protocol}, HTTPHeader: session.WithToken(header, token)})
	if err == nil {
		t.Cleanup(func() { _ = c.CloseNow() })
	}
	return c, err
}

// TestBounds: a player, and all of them, have so many connections; a player with one alone has it when others have
// many; and the authentication has a deadline.
func TestBounds(t *testing.T) {
	url, send := serve(t, &matchhttp.Config{MaxClients: 2})
	ann, bob := token("ann", time.Now().Add(time.Hour)), token("bob", time.Now().Add(time.Hour))
	require.Equal(t, http.StatusOK, send("PUT", "a", ann, `{}`))
	require.Equal(t, http.StatusOK, send("PUT", "b", bob, `{}`))
	var held []*websocket.Conn
	for range 2 {
		c, err := follow(t, url, "a", ann, nil)
		require.NoError(t, err)
		require.NoError(t, wsjson.Read(t.Context(), c, new(matchhttp.Ticket)))
		held = append(held, c)
	}
	c, err := follow(t, url, "b", bob, nil)
	require.NoError(t, err, "ann has two")
	require.NoError(t, wsjson.Read(t.Context(), c, new(matchhttp.Ticket)))
	err = wsjson.Read(t.Context(), held[1], new(matchhttp.Ticket))
	assert.Equal(t, websocket.StatusTryAgainLater, websocket.CloseStatus(err), "%v", err)
	_, err = follow(t, url, "a", ann, nil)
	require.ErrorContains(t, err, "503")
	assert.Equal(t, http.StatusServiceUnavailable, send("GET", "a", ann, ``))

	url, send = serve(t, &matchhttp.Config{Sessions: session.Limits{PerActor: 1}})
	require.Equal(t, http.StatusOK, send("PUT", "a", ann, `{}`))
	_, err = follow(t, url, "a", ann, nil)
	require.NoError(t, err)
	_, err = follow(t, url, "a", ann, nil)
	require.ErrorContains(t, err, "429")

	lobby, err := match.NewLobby(memmatch.New(), match.Queue{Name: "q", Max: 2})
	require.NoError(t, err)
	slow, err := matchhttp.New(lobby, "q", func(r *http.Request) (session.Identity, error) {
		<-r.Context().Done()
		return session.Identity{Actor: "ann"}, nil
	}, &matchhttp.Config{Sessions: session.Limits{Timeout: time.Millisecond}})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	slow.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/tickets/a", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
}

// TestWhatABrowserIsTold: a page learns why it may not follow, by the status of a close frame; and which ticket is
// open.
func TestWhatABrowserIsTold(t *testing.T) {
	url, send := serve(t, nil)
	ann := token("ann", time.Now().Add(time.Hour))
	require.Equal(t, http.StatusOK, send("PUT", "a", ann, `{}`))
	page := http.Header{"Origin": {url}}
	for token, want := range map[string]websocket.StatusCode{"bad": websocket.StatusPolicyViolation,
		token("ann", time.Now().Add(-time.Hour)): 4003} {
		c, err := follow(t, url, "a", token, page)
		require.NoError(t, err)
		_, _, err = c.Read(t.Context())
		assert.Equal(t, want, websocket.CloseStatus(err), "%v", err)
	}
	_, err := follow(t, url, "a", ann, http.Header{"Origin": {"https://elsewhere.example.com"}})
	require.ErrorContains(t, err, "403")

	w := httptest.NewRecorder()
	matchhttp.Refuse(w, &match.OpenError{Player: "ann", Ticket: "a:b"})
	assert.Equal(t, http.StatusConflict, w.Code)
	assert.Equal(t, "./a:b", w.Header().Get("Location"))
}

// TestEnter: a player takes the seats of the ticket that her token names, and no other player does; who cancels gives
// them back.
func TestEnter(t *testing.T) {
	const tile fence.TileID = 0x85283473fffffff
	store, queue := memmatch.New(), match.Queue{Name: "q", Max: 2}
	lobby, err := match.NewLobby(store, queue)
	require.NoError(t, err)
	seats, err := match.NewSeatAllocator(store, "eu", 0)
	require.NoError(t, err)
	worker, err := match.NewWorker(store, seats, []match.Queue{queue}, nil)
	require.NoError(t, err)
	go func() { _ = worker.Run(t.Context()) }()
	_, err = store.Offer(t.Context(), "eu", match.Offer{Tile: tile, Epoch: 1, Contact: "x", Seats: 2}, time.Hour)
	require.NoError(t, err)
	h, err := matchhttp.New(lobby, "q", keys.Authenticate, &matchhttp.Config{Leave: seats.Leave,
		Token: func(actor, ticket string) (string, error) {
			return keys.Sign(session.Identity{Actor: actor, Expires: time.Now().Add(time.Minute), Value: ticket})
		}})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	send := func(method, ticket, actor string) (k matchhttp.Ticket, status int) {
		r := httptest.NewRequest(method, "/tickets/"+ticket, strings.NewReader(`{"rating":1}`))
		r.Header = session.WithToken(nil, token(actor, time.Now().Add(time.Hour)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &k))
		}
		return k, w.Code
	}
	enter := matchhttp.Enter(lobby, "q", seats)
	_, code := send("PUT", "a", "ann")
	require.Equal(t, http.StatusOK, code)
	require.ErrorIs(t, enter(t.Context(), session.Identity{Actor: "ann", Value: "a"}), match.ErrLapsed, "no seat yet")
	_, code = send("PUT", "b", "bob")
	require.Equal(t, http.StatusOK, code)

	c, err := follow(t, server.URL, "a", token("ann", time.Now().Add(time.Hour)), nil)
	require.NoError(t, err)
	var seated matchhttp.Ticket
	for seated.State != "seated" {
		require.NoError(t, wsjson.Read(t.Context(), c, &seated))
	}
	assert.Equal(t, tile, seated.Tile)
	who, err := keys.Verify(seated.Token)
	require.NoError(t, err)
	for range 2 { // she may come back
		require.NoError(t, enter(t.Context(), who))
	}
	used := func() int {
		loads, err := store.Tiles(t.Context(), "eu")
		require.NoError(t, err)
		return loads[0].Used
	}
	for why, who := range map[string]session.Identity{"no ticket": {Actor: "ann"},
		"another's": {Actor: "eve", Value: "a"}, "unknown": {Actor: "ann", Value: "z"},
		"no text": {Actor: "ann", Value: 7}} {
		require.ErrorIs(t, enter(t.Context(), who), match.ErrUnknown, why)
	}
	require.Equal(t, 2, used())
	k, code := send("DELETE", "a", "ann")
	require.Equal(t, http.StatusOK, code)
	assert.Equal(t, "cancelled", k.State)
	assert.Equal(t, 1, used())
	require.ErrorIs(t, enter(t.Context(), who), match.ErrLapsed)
	_, code = send("POST", "b/leave", "bob")
	require.Equal(t, http.StatusOK, code)
	assert.Zero(t, used())
}

// FuzzRequests: whatever a client sends, the answer is one of those that are documented, and says so.
func FuzzRequests(f *testing.F) {
	for _, method := range []string{"PUT", "GET", "DELETE", "POST"} {
		for _, path := range []string{"a", "a/leave", "", "%2e%2e", "a%20b", strings.Repeat("a", 65), "tickets/../a"} {
			f.Add(method, path, `{"rating":1500,"friends":["x"]}`, true)
		}
	}
	for _, body := range []string{``, `{}`, `[]`, `null`, `{"rating":1e9}`, `{"rating":"x"}`, `{"friends":[""]}`,
		`{}{}`} {
		f.Add("PUT", "a", body, true)
	}
	f.Add("PUT", "a", `{}`, false)
	documented := []int{200, 400, 401, 404, 405, 409, 410, 429, 301, 307, 308}
	ann := token("ann", time.Now().Add(time.Hour))
	f.Fuzz(func(t *testing.T, method, path, body string, signed bool) {
		r, err := http.NewRequest(method, "http://lobby/tickets/"+path, strings.NewReader(body))
		if err != nil {
			return // no client can send it
		}
		if signed {
			r.Header = session.WithToken(nil, ann)
		}
		lobby, err := match.NewLobby(memmatch.New(), match.Queue{Name: "q", Max: 4, Teams: 2})
		require.NoError(t, err)
		h, err := matchhttp.New(lobby, "q", keys.Authenticate, &matchhttp.Config{Friend: keys.Verify,
			Leave: func(_ context.Context, s match.Status) error {
				return &match.DeniedError{Err: match.ErrLapsed, What: s.Ticket.ID}
			}})
		require.NoError(t, err)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Contains(t, documented, w.Code, "%s", w.Body)
		if w.Code == http.StatusOK {
			var k matchhttp.Ticket
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &k))
			require.True(t, signed)
			require.Equal(t, "waiting", k.State)
		}
	})
}
