package tilehttp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// gated submits when the test says so.
type gated struct {
	entered chan tile.Intent
	open    chan struct{}
}

func newGated() *gated {
	return &gated{entered: make(chan tile.Intent, 4096), open: make(chan struct{})}
}

func (g *gated) Submit(ctx context.Context, in tile.Intent) (tile.Result, error) {
	g.entered <- in
	select {
	case <-g.open:
		return tile.Result{Outcome: stream.Applied}, nil
	case <-ctx.Done():
		return tile.Result{}, context.Cause(ctx)
	}
}

// TestIntentsShareMessages: those that come together travel together, and so do the outcomes of a tick.
func TestIntentsShareMessages(t *testing.T) {
	const n = 2000
	g := newGated()
	contact, client := serve(t, g.Submit)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			o, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here, Body: make([]byte, 50)})
			assert.NoError(t, err)
			assert.Equal(t, stream.Applied, o.Outcome)
		})
	}
	for range n {
		<-g.entered
	}
	close(g.open)
	wg.Wait()
	s := client.Stats()
	assert.EqualValues(t, 1, s.Dialed)
	assert.EqualValues(t, n, s.Intents)
	assert.Less(t, s.Messages, uint64(n/4))

	g = newGated()
	contact, _ = serve(t, g.Submit)
	conn := dial(t, contact)
	say(t, conn, `{"v":1,"intents":[`+strings.Repeat(`{"id":7,"tile":"1"},`, n-1)+`{"id":7,"tile":"1"}]}`)
	for range n {
		<-g.entered
	}
	close(g.open)
	messages, answers := 0, 0
	for ; answers < n; messages++ {
		answers += strings.Count(hear(t, conn), `"id":7`)
	}
	assert.Equal(t, n, answers)
	assert.Less(t, messages, n/4)
}

// TestDeadlinesTravel: the tile server gives up an intent when the gateway does. One that is not written by then was
// certainly not applied.
func TestDeadlinesTravel(t *testing.T) {
	left := make(chan time.Duration, 2)
	contact, client := serve(t, func(ctx context.Context, _ tile.Intent) (tile.Result, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			left <- 0
			return tile.Result{Outcome: stream.Applied}, nil
		}
		left <- time.Until(deadline)
		<-ctx.Done()
		return tile.Result{}, context.Cause(ctx)
	})
	_, err := client.Forward(context.Background(), contact, tile.Intent{Tile: here})
	require.NoError(t, err)
	assert.Zero(t, <-left)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = client.Forward(ctx, contact, tile.Intent{Tile: here})
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	got := <-left
	assert.Greater(t, got, time.Duration(0))
	assert.LessOrEqual(t, got, 300*time.Millisecond)

	<-ctx.Done()
	_, err = client.Forward(ctx, contact, tile.Intent{Tile: here})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestOverload: intents beyond those that may be under way are refused by the gateway, and where its bound is higher,
// by the tile server. Room that was given back is used.
func TestOverload(t *testing.T) {
	for _, side := range []string{"gateway", "tile server"} {
		g := newGated()
		limits := map[string]int{side: 3}
		h, err := tilehttp.NewHandler(g, tilehttp.HandlerConfig{}.With(
			tilehttp.Tuning{MaxInFlight: limits["tile server"]}))
		require.NoError(t, err)
		server := httptest.NewServer(h)
		defer server.Close()
		contact := server.Listener.Addr().String()
		client := newClient(t, tilehttp.Config{}.With(tilehttp.Tuning{MaxInFlight: limits["gateway"]}))
		for range 2 {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here})
					assert.NoError(t, err, side)
				})
			}
			for range 3 {
				<-g.entered
			}
			_, err = client.Forward(t.Context(), contact, tile.Intent{Tile: here})
			require.ErrorIs(t, err, tile.ErrOverloaded, side)
			for range 3 {
				g.open <- struct{}{}
			}
			wg.Wait()
		}
		client.Close()
	}
}

// TestTileServerThatNeverReads: what the gateway keeps is bounded by number and by bytes, the rest is refused as
// overloaded; when the connection is given up, each intent has the outcome that its place says.
func TestTileServerThatNeverReads(t *testing.T) {
	contact := madeByHand(t, func(ctx context.Context, _ *websocket.Conn) { <-ctx.Done() })
	small := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetWriteBuffer(16 << 10) // or the kernel takes megabytes
		}
		return conn, err
	}}
	flood := func(t *testing.T, limit, intents int) {
		t.Parallel()
		client := newClient(t, tilehttp.Config{}.With(tilehttp.Tuning{MaxInFlight: limit, Transport: small,
			WriteTimeout: 3 * time.Second, PingInterval: time.Minute}))
		var overloaded, unknown, notApplied atomic.Int64
		var wg sync.WaitGroup
		for range intents {
			wg.Go(func() {
				_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here, Body: make([]byte, 4000)})
				switch {
				case errors.Is(err, tile.ErrOverloaded):
					overloaded.Add(1)
				case errors.Is(err, fence.ErrUnknownOutcome):
					unknown.Add(1)
				case errors.Is(err, fence.ErrNotApplied):
					notApplied.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, intents, overloaded.Load()+unknown.Load()+notApplied.Load())
		assert.GreaterOrEqual(t, overloaded.Load(), int64(100))
		assert.Positive(t, unknown.Load())
		assert.Positive(t, notApplied.Load())
		assert.EqualValues(t, unknown.Load(), client.Stats().Unknown)
		assert.Equal(t, client.Stats().Intents, client.Stats().Unknown)
		client.Close()
	}
	t.Run("a limit of intents", func(t *testing.T) { flood(t, 200, 300) })
	t.Run("a limit of bytes", func(t *testing.T) { flood(t, 0, 1500) })
}

// TestGatewayThatNeverReads is disconnected, and does not make the tile server keep more than its bounds.
func TestGatewayThatNeverReads(t *testing.T) {
	h, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(func(context.Context, tile.Intent) (tile.Result, error) {
		return tile.Result{}, errors.New(strings.Repeat("x", 400))
	}), tilehttp.HandlerConfig{}.With(
		tilehttp.Tuning{MaxInFlight: 500, WriteTimeout: time.Second, PingInterval: time.Minute}))
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	conn := dial(t, server.Listener.Addr().String())
	message := []byte(`{"v":1,"intents":[` + strings.Repeat(`{"id":7,"tile":"1"},`, 999) + `{"id":7,"tile":"1"}]}`)
	before := heap()
	sent := 0
	for began := time.Now(); ; sent++ {
		if err = conn.Write(t.Context(), websocket.MessageText, message); err != nil {
			break
		}
		require.Less(t, time.Since(began), 30*time.Second)
	}
	assert.Less(t, heap()-before, int64(32<<20), "after %d intents", 1000*sent)
	require.NoError(t, h.Drain(t.Context()), "the session has ended")
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHalfOpen: a peer that is gone without a word is noticed by either side.
func TestHalfOpen(t *testing.T) {
	contact := madeByHand(t, func(ctx context.Context, _ *websocket.Conn) { <-ctx.Done() }) // no pongs
	client := newClient(t, tilehttp.Config{}.With(tilehttp.Tuning{PingInterval: 50 * time.Millisecond}))
	_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here})
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	require.ErrorContains(t, err, "no sign of life")

	g := newGated()
	ended := make(chan error, 1)
	submit := func(ctx context.Context, in tile.Intent) (tile.Result, error) {
		o, err := g.Submit(ctx, in)
		ended <- err
		return o, err
	}
	h, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(submit),
		tilehttp.HandlerConfig{}.With(tilehttp.Tuning{PingInterval: 50 * time.Millisecond}))
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	say(t, dial(t, server.Listener.Addr().String()), `{"v":1,"intents":[{"id":7,"tile":"1"}]}`)
	require.ErrorContains(t, <-ended, "no sign of life")
}

// TestReconnect: a tile server that is away is tried at intervals, and found when it is back at its address.
func TestReconnect(t *testing.T) {
	h := handler(t, tilehttp.SubmitterFunc(func(context.Context, tile.Intent) (tile.Result, error) {
		return tile.Result{Outcome: stream.Applied}, nil
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	contact := l.Addr().String()
	breakable := &faultinject.Listener{Listener: l}
	serveOn := func(l net.Listener) *http.Server {
		server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(l) }()
		return server
	}
	server := serveOn(breakable)
	client := newClient(t, nil)
	forward := func() error {
		_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here})
		return err
	}
	require.NoError(t, forward())
	breakable.Kill()
	_ = server.Close()
	waittest.Until(t, func() bool { return client.Stats().Broken == 1 }, 10*time.Second, time.Millisecond)
	for began := time.Now(); time.Since(began) < 500*time.Millisecond; time.Sleep(time.Millisecond) {
		require.ErrorIs(t, forward(), fence.ErrNotApplied)
	}
	assert.Less(t, client.Stats().Failed, uint64(10), "of hundreds of intents")
	l, err = net.Listen("tcp", contact)
	require.NoError(t, err)
	server = serveOn(l)
	defer func() { _ = server.Close() }()
	waittest.Until(t, func() bool { return forward() == nil }, 10*time.Second, time.Millisecond)
	client.Close()
}

// TestDrainOfATileServer: what gateways have sent is answered, and nothing is left unknown.
func TestDrainOfATileServer(t *testing.T) {
	g := newGated()
	h := handler(t, g)
	server := httptest.NewServer(h)
	defer server.Close()
	contact, client := server.Listener.Addr().String(), newClient(t, nil)
	var applied, refused atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 20 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here})
				switch {
				case err == nil:
					applied.Add(1)
				case errors.Is(err, fence.ErrNotApplied):
					refused.Add(1)
					time.Sleep(time.Millisecond)
				default:
					t.Error(err)
				}
			}
		})
	}
	opening := make(chan struct{})
	go func() {
		defer close(opening)
		for range g.entered {
			g.open <- struct{}{}
		}
	}()
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, h.Drain(t.Context()))
	before := applied.Load()
	waittest.Until(t, func() bool { return refused.Load() > 0 }, 10*time.Second, time.Millisecond)
	close(stop)
	wg.Wait()
	close(g.entered)
	<-opening
	assert.Positive(t, before)
	assert.Zero(t, client.Stats().Unknown)
	assert.Zero(t, client.Stats().Broken)
}

// TestDrainIsCutShort: intents that outlast the patience end as unknown, on either side's drain.
func TestDrainIsCutShort(t *testing.T) {
	for _, side := range []string{"gateway", "tile server"} {
		g := newGated()
		h := handler(t, g)
		server := httptest.NewServer(h)
		defer server.Close()
		client := newClient(t, nil)
		answered := make(chan error, 1)
		go func() {
			_, err := client.Forward(context.Background(), server.Listener.Addr().String(), tile.Intent{Tile: here})
			answered <- err
		}()
		<-g.entered
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		drain := client.Drain
		if side == "tile server" {
			drain = h.Drain
		}
		require.ErrorIs(t, drain(ctx), context.DeadlineExceeded, side)
		require.ErrorIs(t, <-answered, fence.ErrUnknownOutcome, side)
		client.Close()
	}
}

// TestDrainOfAGateway: intents under way are answered, new ones refused.
func TestDrainOfAGateway(t *testing.T) {
	g := newGated()
	contact, client := serve(t, g.Submit)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here})
		answered <- err
	}()
	<-g.entered
	drained := make(chan error, 1)
	go func() { drained <- client.Drain(t.Context()) }()
	for refused := false; !refused; { // those that come before the drain wait in vain
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := client.Forward(ctx, contact, tile.Intent{Tile: here})
		cancel()
		refused = errors.Is(err, fence.ErrNotApplied) && !errors.Is(err, context.DeadlineExceeded)
	}
	close(g.open)
	require.NoError(t, <-answered)
	require.NoError(t, <-drained)
	require.NoError(t, client.Drain(t.Context()), "again")
}

// TestPanicAtAnIntent ends neither the process nor the connection.
func TestPanicAtAnIntent(t *testing.T) {
	contact, client := serve(t, func(_ context.Context, in tile.Intent) (tile.Result, error) {
		if in.ActionID == "bad" {
			panic("a bug of the game's")
		}
		return tile.Result{Outcome: stream.Applied}, nil
	})
	_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here, ActionID: "bad"})
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	_, err = client.Forward(t.Context(), contact, tile.Intent{Tile: here})
	require.NoError(t, err)
	assert.EqualValues(t, 1, client.Stats().Dialed)
}
