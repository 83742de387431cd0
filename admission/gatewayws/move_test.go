package gatewayws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// starting is an Admitter whose movements wait until the test decides them.
type starting struct {
	counting
	waiting chan func(finish func() (tile.Result, error), waits bool)
}

func (s *starting) StartMove(
	_ context.Context, in tile.Intent, decided func(finish func() (tile.Result, error), waits bool),
) {
	switch string(in.Body) {
	case "panic":
		panic("a bug of the game's")
	case "refuse":
		decided(func() (tile.Result, error) {
			return tile.Result{}, &admission.DeclinedError{Err: errors.ErrUnsupported}
		}, false)
	case "flood":
		decided(func() (tile.Result, error) {
			return tile.Result{Outcome: stream.Fizzled, Why: strings.Repeat("x", tile.MaxWhy)}, nil
		}, false)
	default:
		s.waiting <- decided
	}
}

// applied is a finish.
func applied() (tile.Result, error) { return tile.Result{Outcome: stream.Applied}, nil }

// serveStarting returns a handler over a starting Admitter, and its URL.
func serveStarting(t *testing.T, cfg *Config) (*Handler, *starting, string) {
	t.Helper()
	s := &starting{waiting: make(chan func(func() (tile.Result, error), bool), 4096)}
	h, err := New(s, func(r *http.Request) (session.Identity, error) {
		return session.Identity{Actor: r.Header.Get("X-Player")}, nil
	}, cfg)
	require.NoError(t, err)
	h.cfg.turns = overload.New(64, mostWaiting, time.Hour) // never late
	server := httptest.NewUnstartedServer(h)
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		assert.NoError(t, conn.(*net.TCPConn).SetWriteBuffer(4<<10)) // the kernel would take megabytes
		return ctx
	}
	server.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, h.Drain(ctx))
		server.Close()
	})
	return h, s, "ws" + strings.TrimPrefix(server.URL, "http")
}

// socketTo is a client that speaks for itself.
func socketTo(t *testing.T, url, actor string, options websocket.DialOptions) *websocket.Conn {
	t.Helper()
	options.HTTPHeader, options.Subprotocols = http.Header{"X-Player": {actor}}, []string{Subprotocol}
	conn, _, err := websocket.Dial(t.Context(), url, &options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func send(t *testing.T, conn *websocket.Conn, id int, body string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"id": fmt.Sprint(id), "tile": "1", "kind": "move", "body": []byte(body)})
	require.NoError(t, err)
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, b))
}

func next(t *testing.T, conn *websocket.Conn) string {
	t.Helper()
	_, b, err := conn.Read(t.Context())
	require.NoError(t, err)
	return string(b)
}

// TestMovementsThatWaitTakeNoGoroutine: each has its answer when it is decided, although nothing waits for it.
func TestMovementsThatWaitTakeNoGoroutine(t *testing.T) {
	const clients, each = 10, 30
	_, s, url := serveStarting(t, nil)
	var conns []*websocket.Conn
	for i := range clients {
		conn := socketTo(t, url, fmt.Sprint("player", i), websocket.DialOptions{})
		conns = append(conns, conn)
		send(t, conn, 0, "refuse")
		require.Contains(t, next(t, conn), `"code":"refused"`)
	}
	for round := range 2 {
		before := runtime.NumGoroutine()
		for i := range each {
			for _, conn := range conns {
				send(t, conn, i, "go")
			}
			waittest.Until(t, func() bool { return len(s.waiting) == clients*(i+1) }, 10*time.Second,
				time.Millisecond)
		}
		// A worker for each of those that come at once waits for the next intent of any client.
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+clients+8)
		for range clients * each {
			(<-s.waiting)(applied, round == 1)
		}
		for _, conn := range conns {
			for range each {
				require.Contains(t, next(t, conn), `"outcome":"applied"`)
			}
		}
	}
}

// TestAMovementThatPanicsIsOneAnswer, before it is sent and when it is finished.
func TestAMovementThatPanicsIsOneAnswer(t *testing.T) {
	_, s, url := serveStarting(t, nil)
	conn := socketTo(t, url, "ann", websocket.DialOptions{})
	send(t, conn, 1, "panic")
	require.Contains(t, next(t, conn), `"code":"internal"`)
	send(t, conn, 2, "go")
	(<-s.waiting)(func() (tile.Result, error) { panic("a bug of the game's") }, true)
	require.Contains(t, next(t, conn), `"code":"internal"`)
	send(t, conn, 3, "go")
	(<-s.waiting)(applied, false)
	require.JSONEq(t, `{"id":"3","outcome":"applied"}`, next(t, conn))
}

// TestAFinishThatWaits keeps nobody from being answered.
func TestAFinishThatWaits(t *testing.T) {
	_, s, url := serveStarting(t, nil)
	conn := socketTo(t, url, "ann", websocket.DialOptions{})
	send(t, conn, 1, "go")
	send(t, conn, 2, "go")
	release := make(chan struct{})
	(<-s.waiting)(func() (tile.Result, error) { <-release; return applied() }, true)
	(<-s.waiting)(applied, false)
	require.Contains(t, next(t, conn), `"applied"`)
	close(release)
	require.Contains(t, next(t, conn), `"applied"`)
}

// TestMovementsThatWaitOutliveTheirClient, and are answered before a drain closes the connection.
func TestMovementsThatWaitOutliveTheirClient(t *testing.T) {
	closed := make(chan ConnInfo, 2)
	h, s, url := serveStarting(t, &Config{Hooks: Hooks{Closed: func(i ConnInfo) { closed <- i }}})
	gone := socketTo(t, url, "ann", websocket.DialOptions{})
	send(t, gone, 1, "go")
	decided := <-s.waiting
	_ = gone.CloseNow()
	stays := socketTo(t, url, "bob", websocket.DialOptions{})
	send(t, stays, 1, "go")
	last := <-s.waiting
	drained := make(chan error, 1)
	go func() { drained <- h.Drain(t.Context()) }()
	waittest.Until(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.draining
	}, 10*time.Second, time.Millisecond)
	assert.Empty(t, closed)
	decided(applied, false)
	assert.Equal(t, "ann", (<-closed).Actor)
	last(applied, true)
	require.JSONEq(t, `{"id":"1","outcome":"applied"}`, next(t, stays))
	_, _, err := stays.Read(t.Context())
	assert.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err))
	require.NoError(t, <-drained)
}

// TestAnswersThatAreNotRead: a client that goes on sending is not read any more when as many answers wait as may, and
// is cut off.
func TestAnswersThatAreNotRead(t *testing.T) {
	closed := make(chan error, 1)
	h, _, url := serveStarting(t, &Config{MaxInFlight: 4, PingInterval: time.Hour,
		Hooks: Hooks{Closed: func(i ConnInfo) { closed <- i.Err }}})
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return conn, err
	}}
	conn := socketTo(t, url, "ann", websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	var flooding sync.WaitGroup
	flooding.Go(func() {
		for conn.Write(context.Background(), websocket.MessageText,
			[]byte(`{"id":"1","tile":"1","kind":"move","body":"Zmxvb2Q="}`)) == nil {
		}
	})
	most := 0
	for err := error(nil); err == nil; {
		select {
		case err = <-closed:
			require.Error(t, err)
		case <-time.After(10 * time.Millisecond):
			h.mu.Lock()
			for s := range h.sessions {
				s.outbox.mu.Lock()
				most = max(most, s.outbox.waiting.answers+s.outbox.taken.answers)
				s.outbox.mu.Unlock()
			}
			h.mu.Unlock()
		}
	}
	assert.LessOrEqual(t, most, 2*4)
	_ = conn.CloseNow()
	flooding.Wait()
}

// TestNothingFollowsTheCloseFrame, and what is answered before it comes before it.
func TestNothingFollowsTheCloseFrame(t *testing.T) {
	h, s, url := serveStarting(t, nil)
	conn := socketTo(t, url, "ann", websocket.DialOptions{})
	for i := range 3 {
		send(t, conn, i, "go")
	}
	first := <-s.waiting
	second, third := <-s.waiting, <-s.waiting
	first(applied, false)
	require.Equal(t, 1, h.EndActor("ann"))
	second(applied, false)
	require.Zero(t, h.Tell("ann", []byte("news")))
	require.Contains(t, next(t, conn), `"applied"`)
	_, _, err := conn.Read(t.Context())
	closing, ok := errors.AsType[websocket.CloseError](err)
	require.True(t, ok, "%v", err)
	require.EqualValues(t, CloseEnded, closing.Code)
	third(applied, false)
}
