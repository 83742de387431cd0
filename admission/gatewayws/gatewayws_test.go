package gatewayws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const here fence.TileID = 0x85283473fffffff

// gateway is one made of two functions.
type gateway struct {
	move func(context.Context, tile.Intent) (tile.Result, error)
	act  func(context.Context, admission.Action) (admission.Artifact, error)
	ask  func(actor, action string) (admission.Artifact, error)
}

func (d *gateway) Outcome(_ context.Context, actor, action string) (admission.Artifact, error) {
	if d.ask == nil {
		return admission.Artifact{}, admission.ErrUnknownAction
	}
	return d.ask(actor, action)
}

func (d *gateway) Move(ctx context.Context, in tile.Intent) (tile.Result, error) {
	if err := in.Validate(); err != nil { // as the real one does
		return tile.Result{}, err
	}
	if d.move == nil {
		return tile.Result{Outcome: stream.Applied}, nil
	}
	return d.move(ctx, in)
}

func (d *gateway) Act(ctx context.Context, a admission.Action) (admission.Artifact, error) {
	if d.act == nil {
		return admission.Artifact{AdmissionID: "6f0c", Outcome: stream.Applied}, nil
	}
	return d.act(ctx, a)
}

func byHeader(r *http.Request) (session.Identity, error) {
	if who := r.Header.Get("X-Player"); who != "" {
		return session.Identity{Actor: who}, nil
	}
	return session.Identity{}, errors.New("unknown player")
}

var asAnn = http.Header{"X-Player": {"ann"}}

// serve returns a handler and the URL it is served at.
func serve(t testing.TB, d gatewayws.Admitter, cfg *gatewayws.Config) (*gatewayws.Handler, string) {
	t.Helper()
	h, err := gatewayws.New(d, byHeader, cfg)
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, h.Drain(ctx))
	})
	return h, "ws" + strings.TrimPrefix(server.URL, "http")
}

func dial(t testing.TB, url string, cfg *gatewayws.DialConfig) *gatewayws.Client {
	t.Helper()
	if cfg == nil {
		cfg = &gatewayws.DialConfig{}
	}
	if cfg.Header == nil {
		cfg.Header = asAnn
	}
	client, err := gatewayws.Dial(t.Context(), url, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// raw is a connection that speaks for itself.
func raw(t testing.TB, url string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), url,
		&websocket.DialOptions{HTTPHeader: asAnn, Subprotocols: []string{gatewayws.Subprotocol}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func exchange(t testing.TB, conn *websocket.Conn, kind websocket.MessageType, frame string) string {
	t.Helper()
	require.NoError(t, conn.Write(t.Context(), kind, []byte(frame)))
	_, b, err := conn.Read(t.Context())
	require.NoError(t, err)
	return string(b)
}

func TestBothKinds(t *testing.T) {
	var moved tile.Intent
	var acted admission.Action
	_, url := serve(t, &gateway{
		move: func(_ context.Context, in tile.Intent) (tile.Result, error) {
			moved = in
			return tile.Result{Outcome: stream.Fizzled}, nil
		},
		act: func(_ context.Context, a admission.Action) (admission.Artifact, error) {
			acted = a
			return admission.Artifact{AdmissionID: "6f0c", Outcome: stream.Rejected,
				Reason: admission.ReasonCooldown}, nil
		},
	}, nil)
	client := dial(t, url, nil)
	a, err := client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move, Body: []byte("north")})
	require.NoError(t, err)
	assert.Equal(t, gatewayws.Answer{Outcome: stream.Fizzled}, a)
	assert.Equal(t, tile.Intent{Tile: here, Actor: "ann", Body: []byte("north")}, moved)

	a, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Act, Action: "0b54", Asset: "card",
		Cost: 3, Body: []byte("fire")})
	require.NoError(t, err)
	assert.Equal(t, gatewayws.Answer{Outcome: stream.Rejected, Admission: "6f0c", Reason: admission.ReasonCooldown}, a)
	assert.Equal(t, admission.Action{ID: "0b54", Actor: "ann", Asset: "card", Cost: 3, Tile: here,
		Body: []byte("fire")}, acted)

	_, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move, Action: "0b54"})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: "teleport"})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move, Body: make([]byte, 5000)})
	require.ErrorIs(t, err, fence.ErrInvalidArgument, "the gateway refuses it")
	_, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Act,
		Action: strings.Repeat("\x01", 3000)})
	var argument *fence.ArgumentError
	require.ErrorAs(t, err, &argument, "it is not sent: the server would end the connection")
	_, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move})
	require.NoError(t, err)
}

func TestFramesByHand(t *testing.T) {
	_, url := serve(t, &gateway{}, nil)
	conn := raw(t, url)
	for _, c := range []struct{ frame, want string }{
		{`{"id":"a","tile":"1","kind":"move"}`, `{"id":"a","outcome":"applied"}`},
		{`{"id":"b","tile":"1","kind":"act","action":"x","asset":"y","cost":1}`,
			`{"id":"b","outcome":"applied","admission":"6f0c"}`},
		{`{"id":"c","tile":"1","kind":"teleport"}`,
			`{"id":"c","error":{"code":"malformed","message":"kind must be \"move\", \"act\", \"ask\", \"refresh\" or \"where\"","retryable":false}}`},
		{`hello`,
			`{"id":"","error":{"code":"malformed","message":"send one JSON object: ` +
				`invalid character 'h' looking for beginning of value","retryable":false}}`},
		{`{"id":"d","tile":"1","kind":"move"}`, `{"id":"d","outcome":"applied"}`},
	} {
		assert.JSONEq(t, c.want, exchange(t, conn, websocket.MessageText, c.frame))
	}
	assert.Contains(t, exchange(t, conn, websocket.MessageBinary, `{"id":"e","tile":"1","kind":"move"}`), "binary")
	for text, status := range map[string]websocket.StatusCode{
		strings.Repeat(" ", 17<<10): websocket.StatusMessageTooBig,
		"\xff":                      websocket.StatusInvalidFramePayloadData,
	} {
		conn := raw(t, url)
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(text)))
		_, _, err := conn.Read(t.Context())
		assert.Equal(t, status, websocket.CloseStatus(err))
	}
}

// TestClosingIsAnswered: a client that closes, or closes while its intent runs, gets its status back and is gone.
func TestClosingIsAnswered(t *testing.T) {
	closed := make(chan gatewayws.ConnInfo, 1)
	_, url := serve(t, &gateway{}, &gatewayws.Config{Hooks: gatewayws.Hooks{
		Closed: func(i gatewayws.ConnInfo) { closed <- i }}})
	conn := raw(t, url)
	require.NoError(t, conn.Ping(conn.CloseRead(t.Context())))
	require.NoError(t, conn.Close(websocket.StatusCode(4321), "enough"))
	assert.Equal(t, websocket.StatusCode(4321), websocket.CloseStatus((<-closed).Err))
}

// TestTooManyClients: of many that come at once, MaxClients are taken; the others are sent away until one leaves.
func TestTooManyClients(t *testing.T) {
	_, url := serve(t, &gateway{}, &gatewayws.Config{MaxClients: 1})
	var taken []*gatewayws.Client
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			c, err := gatewayws.Dial(t.Context(), url, &gatewayws.DialConfig{Header: asAnn})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				taken = append(taken, c)
			} else {
				assert.ErrorContains(t, err, "503")
			}
		})
	}
	wg.Wait()
	require.Len(t, taken, 1)
	require.NoError(t, taken[0].Close())
	waittest.Until(t, func() bool {
		c, err := gatewayws.Dial(t.Context(), url, &gatewayws.DialConfig{Header: asAnn})
		return err == nil && c.Close() == nil
	}, 5*time.Second, time.Millisecond)
}

// A gateway whose places one player has taken serves others: the player who has most gives one.
func TestAFullGatewayTakesFromTheHeaviest(t *testing.T) {
	closed := make(chan gatewayws.ConnInfo, 9)
	_, url := serve(t, &gateway{}, &gatewayws.Config{MaxClients: 3,
		Hooks: gatewayws.Hooks{Closed: func(i gatewayws.ConnInfo) { closed <- i }}})
	for range 3 {
		dial(t, url, nil)
	}
	bob, err := gatewayws.Dial(t.Context(), url, &gatewayws.DialConfig{Header: http.Header{"X-Player": {"bob"}}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = bob.Close() })
	require.Equal(t, "ann", (<-closed).Actor)
	_, err = bob.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move})
	require.NoError(t, err)
}

func TestManyAtOnce(t *testing.T) {
	_, url := serve(t, &gateway{move: func(_ context.Context, in tile.Intent) (tile.Result, error) {
		return tile.Result{Outcome: stream.Outcome(1 + len(in.Body)%4)}, nil
	}}, nil)
	client := dial(t, url, nil)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			a, err := client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move, Body: make([]byte, i)})
			assert.NoError(t, err)
			assert.Equal(t, stream.Outcome(1+i%4), a.Outcome, "each gets its own answer")
		})
	}
	wg.Wait()
}

func TestInFlightIsBounded(t *testing.T) {
	release := make(chan struct{})
	var running atomic.Int64
	_, url := serve(t, &gateway{move: func(context.Context, tile.Intent) (tile.Result, error) {
		running.Add(1)
		<-release
		return tile.Result{Outcome: stream.Applied}, nil
	}}, &gatewayws.Config{MaxInFlight: 2})
	conn := raw(t, url)
	for i := range 2 {
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText,
			fmt.Appendf(nil, `{"id":"%d","tile":"1","kind":"move"}`, i)))
	}
	waittest.Until(t, func() bool { return running.Load() == 2 }, 5*time.Second, time.Millisecond)
	assert.Contains(t, exchange(t, conn, websocket.MessageText, `{"id":"x","tile":"1","kind":"move"}`), `"code":"busy"`)

	// The client of this package waits instead.
	client := dial(t, url, &gatewayws.DialConfig{MaxInFlight: 2})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			_, err := client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move})
			assert.NoError(t, err)
		})
	}
	waittest.Until(t, func() bool { return running.Load() == 4 }, 5*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := client.Do(ctx, gatewayws.Request{Tile: here, Kind: admission.Move})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(release)
	wg.Wait()
	assert.Equal(t, int64(8), running.Load())
}

func TestWhoMayConnect(t *testing.T) {
	_, url := serve(t, &gateway{}, &gatewayws.Config{Origins: []string{"*.example.com", "https://play.example.org"}})
	try := func(header http.Header, subprotocols ...string) int {
		t.Helper()
		conn, resp, err := websocket.Dial(t.Context(), url,
			&websocket.DialOptions{HTTPHeader: header, Subprotocols: subprotocols})
		if err == nil {
			_ = conn.Close(websocket.StatusNormalClosure, "")
		}
		require.NotNil(t, resp)
		return resp.StatusCode
	}
	const ok, v1 = http.StatusSwitchingProtocols, gatewayws.Subprotocol
	with := func(origin string) http.Header { return http.Header{"X-Player": {"ann"}, "Origin": {origin}} }
	assert.Equal(t, ok, try(asAnn, v1))
	assert.Equal(t, ok, try(asAnn, "other", v1))
	assert.Equal(t, http.StatusBadRequest, try(asAnn))
	assert.Equal(t, http.StatusBadRequest, try(asAnn, "tilefence.intent.v2.json"))
	assert.Equal(t, http.StatusUnauthorized, try(nil, v1))
	assert.Equal(t, http.StatusUnauthorized, try(http.Header{"X-Player": {strings.Repeat("x", 65)}}, v1))
	assert.Equal(t, ok, try(with("http"+strings.TrimPrefix(url, "ws")), v1), "the server's own origin")
	assert.Equal(t, ok, try(with("https://a.example.com"), v1))
	assert.Equal(t, ok, try(with("https://play.example.org"), v1))
	assert.Equal(t, http.StatusForbidden, try(with("http://play.example.org"), v1))
	assert.Equal(t, http.StatusForbidden, try(with("https://evil.example.net"), v1))

	_, url = serve(t, &gateway{}, &gatewayws.Config{AnyOrigin: true})
	assert.Equal(t, ok, try(with("https://evil.example.net"), v1))

	resp, err := http.Get("http" + strings.TrimPrefix(url, "ws"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	http.DefaultClient.CloseIdleConnections()
}

func TestPanicIsOneAnswer(t *testing.T) {
	_, url := serve(t, &gateway{act: func(context.Context, admission.Action) (admission.Artifact, error) {
		panic("no such card")
	}}, nil)
	client := dial(t, url, nil)
	_, err := client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Act})
	var e *gatewayws.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, gatewayws.CodeInternal, e.Code)
	_, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move})
	require.NoError(t, err)
}

func TestIntentsOutliveTheConnection(t *testing.T) {
	entered, finished := make(chan struct{}), make(chan error, 1)
	release := make(chan struct{})
	_, url := serve(t, &gateway{act: func(ctx context.Context, _ admission.Action) (admission.Artifact, error) {
		close(entered)
		<-release
		finished <- ctx.Err()
		return admission.Artifact{Outcome: stream.Applied}, nil
	}}, nil)
	client := dial(t, url, nil)
	failed := make(chan error, 1)
	go func() {
		_, err := client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Act})
		failed <- err
	}()
	<-entered
	require.NoError(t, client.Close())
	require.ErrorIs(t, <-failed, gatewayws.ErrDisconnected)
	<-client.Done()
	_, err := client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Act})
	require.ErrorIs(t, err, gatewayws.ErrDisconnected)
	close(release)
	require.NoError(t, <-finished)
}

func TestDrain(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	h, url := serve(t, &gateway{act: func(context.Context, admission.Action) (admission.Artifact, error) {
		close(entered)
		<-release
		return admission.Artifact{Outcome: stream.Applied, AdmissionID: "6f0c"}, nil
	}}, nil)
	idle := dial(t, url, nil)
	busy := raw(t, url)
	require.NoError(t, busy.Write(t.Context(), websocket.MessageText, []byte(`{"id":"1","tile":"1","kind":"act"}`)))
	<-entered
	drained := make(chan error, 1)
	go func() { drained <- h.Drain(t.Context()) }()
	<-idle.Done()
	_, err := gatewayws.Dial(t.Context(), url, &gatewayws.DialConfig{Header: asAnn})
	require.ErrorContains(t, err, "503")
	assert.Contains(t, exchange(t, busy, websocket.MessageText, `{"id":"2","tile":"1","kind":"move"}`),
		`"code":"draining"`)
	close(release)
	_, b, err := busy.Read(t.Context())
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"1","outcome":"applied","admission":"6f0c"}`, string(b))
	_, _, err = busy.Read(t.Context())
	assert.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err))
	require.NoError(t, <-drained)
}

func TestDrainCutShort(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	h, url := serve(t, &gateway{move: func(context.Context, tile.Intent) (tile.Result, error) {
		close(entered)
		<-release
		return tile.Result{Outcome: stream.Applied}, nil
	}}, nil)
	client := dial(t, url, nil)
	failed := make(chan error, 1)
	go func() {
		_, err := client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move})
		failed <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, h.Drain(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, <-failed, gatewayws.ErrDisconnected)
	close(release)
}

// TestDeafClient: a client that reads nothing is disconnected and delays no other.
func TestDeafClient(t *testing.T) {
	closed := make(chan gatewayws.ConnInfo, 1)
	_, url := serve(t, &gateway{}, &gatewayws.Config{PingInterval: 50 * time.Millisecond,
		Hooks: gatewayws.Hooks{Closed: func(i gatewayws.ConnInfo) { closed <- i }}})
	_ = raw(t, url)
	info := <-closed
	assert.Equal(t, "ann", info.Actor)
	require.Error(t, info.Err)
}

func TestHooks(t *testing.T) {
	var mu sync.Mutex
	var answers []gatewayws.AnswerInfo
	began, opened := time.Now(), make(chan gatewayws.ConnInfo, 1)
	_, url := serve(t, &gateway{move: func(context.Context, tile.Intent) (tile.Result, error) {
		return tile.Result{}, &admission.LimitError{RetryAfter: time.Second}
	}}, &gatewayws.Config{Hooks: gatewayws.Hooks{
		Opened: func(i gatewayws.ConnInfo) { opened <- i },
		Answered: func(i gatewayws.AnswerInfo) {
			mu.Lock()
			defer mu.Unlock()
			i.Took = 0
			answers = append(answers, i)
		},
	}})
	client := dial(t, url, nil)
	info := <-opened
	assert.WithinRange(t, info.Began, began, time.Now())
	assert.Equal(t, gatewayws.ConnInfo{Actor: "ann", Began: info.Began}, info)
	_, err := client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Move})
	var e *gatewayws.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, time.Second, e.RetryAfter)
	assert.True(t, e.Retryable)
	_, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Act})
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []gatewayws.AnswerInfo{
		{Actor: "ann", Kind: admission.Move, Tile: here, Code: gatewayws.CodeLimited},
		{Actor: "ann", Kind: admission.Act, Tile: here, Outcome: stream.Applied},
	}, answers)
}

func TestArguments(t *testing.T) {
	for _, cfg := range []gatewayws.Config{{MaxClients: -1}, {MaxInFlight: -1}, {PingInterval: 1}} {
		_, err := gatewayws.New(&gateway{}, byHeader, &cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	_, err := gatewayws.New(nil, byHeader, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = gatewayws.New(&gateway{}, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = gatewayws.Dial(t.Context(), "ws://127.0.0.1:1", &gatewayws.DialConfig{MaxInFlight: -1})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = gatewayws.Dial(t.Context(), "ws://127.0.0.1:1", nil)
	require.Error(t, err)
}

// TestAskForAnOutcome: the answer is the one that the action had, with its time, in the same bytes but for the id.
func TestAskForAnOutcome(t *testing.T) {
	art := admission.Artifact{ActionID: "0b54", Actor: "ann", AdmissionID: "6f0c", Outcome: stream.Redirected,
		Refunded: true, Resolved: time.UnixMilli(1785585600123).UTC()}
	_, url := serve(t, &gateway{
		act: func(context.Context, admission.Action) (admission.Artifact, error) { return art, nil },
		ask: func(actor, action string) (admission.Artifact, error) {
			assert.Equal(t, "ann", actor)
			switch action {
			case "0b54":
				return art, nil
			case "open":
				return admission.Artifact{AdmissionID: "6f0d"}, nil
			}
			return admission.Artifact{}, admission.ErrUnknownAction
		},
	}, nil)
	conn := raw(t, url)
	first := exchange(t, conn, websocket.MessageText, `{"id":"7","tile":"1","kind":"act","action":"0b54"}`)
	assert.JSONEq(t, `{"id":"7","outcome":"redirected","admission":"6f0c","refunded":true,"at":1785585600123}`, first)
	for _, ask := range []string{`{"id":"7","kind":"ask","action":"0b54"}`,
		`{"id":"7","tile":"1","kind":"ask","action":"0b54"}`} {
		assert.Equal(t, first, exchange(t, conn, websocket.MessageText, ask))
	}

	client := dial(t, url, nil)
	answer, err := client.Outcome(t.Context(), "0b54")
	require.NoError(t, err)
	assert.Equal(t, gatewayws.Answer{Outcome: stream.Redirected, Admission: "6f0c", Refunded: true, At: art.Resolved},
		answer)
	_, err = client.Outcome(t.Context(), "open")
	require.ErrorIs(t, err, admission.ErrPending)
	_, err = client.Outcome(t.Context(), "another")
	require.ErrorIs(t, err, admission.ErrUnknownAction)
	var e *gatewayws.Error
	require.ErrorAs(t, err, &e)
	assert.False(t, e.Retryable)
}
