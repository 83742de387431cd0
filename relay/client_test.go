package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
)

// raw is a connection without a client library behind it.
func (s *server) raw(t testing.TB, subprotocol string) *websocket.Conn {
	c, _, err := websocket.Dial(context.Background(), s.url, &websocket.DialOptions{
		Subprotocols: []string{subprotocol},
		HTTPClient:   &http.Client{Transport: &http.Transport{DialContext: narrowDial}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.CloseNow() })
	c.SetReadLimit(64 << 20)
	return c
}

func send(t testing.TB, c *websocket.Conn, m *relaypb.ClientMessage) {
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, c.Write(context.Background(), websocket.MessageBinary, data))
}

// receive is the relay's next message, other than a Heartbeat.
func receive(t testing.TB, c *websocket.Conn) *relaypb.ServerMessage {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		_, data, err := c.Read(ctx)
		require.NoError(t, err)
		m := &relaypb.ServerMessage{}
		require.NoError(t, proto.Unmarshal(data, m))
		if m.GetHeartbeat() == nil {
			return m
		}
	}
}

func subscribeTo(tiles ...string) *relaypb.ClientMessage {
	return &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{Tiles: tiles}}}
}

// closeStatus reads until the connection ends and returns the status.
func closeStatus(t testing.TB, c *websocket.Conn) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			require.NoError(t, ctx.Err(), "the connection stays open")
			return int(websocket.CloseStatus(err))
		}
	}
}

// stall makes a client's functions wait until the gate opens, so that its socket fills up.
func stall(gate chan struct{}) func(*relayclient.Config) {
	return func(c *relayclient.Config) {
		narrow(c)
		frame := c.Frame
		c.Frame = func(f fence.Entry) { <-gate; frame(f) }
	}
}

func TestSlowClientIsResyncedAndOthersAreNotAffected(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.queueBytes = 64 << 10
	cfg.TailFrames = 1000
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	gate := make(chan struct{})
	slow := s.watch(t, stall(gate), tileA)
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	eventually(t, func() bool { return slow.Stats().Syncs == 1 }, "the slow client is there")
	quick := s.watch(t, nil, tileA)
	quick.reaches(o)
	big := make([]byte, 4<<10)
	for range 60 { // far more than the socket buffers and the queue hold
		for range 8 {
			o.publish(o.appendPayload(big, false))
		}
		quick.reaches(o)
	}
	require.EqualValues(t, 1, quick.Stats().Syncs, "the other client got frames only")
	require.NotZero(t, s.Stats().SlowDrops)
	require.Less(t, s.Stats().SlowDrops, uint64(400), "counted once per falling behind")
	open()
	slow.reaches(o)
	require.Greater(t, slow.Stats().Syncs, uint64(1))
	require.EqualValues(t, 0, slow.Stats().Gaps, "what was dropped came back before anything that follows it")
	o.tickOn(3)
	slow.reaches(o)
}

func TestTooSlowClientIsClosed(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.queueBytes, cfg.slowTimeout, cfg.writeTimeout = 1<<10, 100*time.Millisecond, 5*time.Second
	var closed sync.Map
	cfg.Hooks.ClientClosed = func(i ClientClosedInfo) { closed.Store(i.Code, i.Reason) }
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	c := s.raw(t, relaypb.Subprotocol)
	send(t, c, subscribeTo(tileA.String()))
	receive(t, c)
	big := make([]byte, 16<<10)
	for range 30 {
		o.publish(o.appendPayload(big, false))
	}
	eventually(t, func() bool { return s.Stats().SlowCloses == 1 }, "the relay gives up on it")
	require.Equal(t, relaypb.CloseTooSlow, closeStatus(t, c), "it reads what was on its way, then the status")
	eventually(t, func() bool { _, ok := closed.Load(relaypb.CloseTooSlow); return ok && s.Stats().Clients == 0 },
		"it is gone")
}

func TestStuckClientIsCutOffByTheWriteTimeout(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.writeTimeout = 100 * time.Millisecond
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	c := s.raw(t, relaypb.Subprotocol)
	send(t, c, subscribeTo(tileA.String()))
	receive(t, c)
	big := make([]byte, 64<<10)
	for range 16 {
		o.publish(o.appendPayload(big, false))
	}
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "it is cut off")
}

func TestSilentClientIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := still()
	cfg.PingInterval = 400 * time.Millisecond // generous: a busy machine answers late
	s := w.serve(cfg)
	alive := s.watch(t, nil, tileA)
	dead, _, err := websocket.Dial(context.Background(), s.url, &websocket.DialOptions{
		Subprotocols:   []string{relaypb.Subprotocol},
		OnPingReceived: func(context.Context, []byte) bool { return false },
	})
	require.NoError(t, err)
	defer dead.CloseNow()
	require.Equal(t, relaypb.CloseIdle, closeStatus(t, dead))
	eventually(t, func() bool { return s.Stats().IdleCloses == 1 }, "it is counted")
	time.Sleep(600 * time.Millisecond)
	require.NoError(t, alive.Err(), "a client that answers pings stays")
}

// TestCloseAfterSilenceIsAnswered: the deadline of the last write must not meet the close frame.
func TestCloseAfterSilenceIsAnswered(t *testing.T) {
	cfg := still()
	cfg.writeTimeout = 20 * time.Millisecond
	s := newWorld(t).serve(cfg)
	c := s.raw(t, relaypb.Subprotocol)
	send(t, c, subscribeTo(tileA.String()))
	receive(t, c)
	time.Sleep(60 * time.Millisecond)
	require.NoError(t, c.Close(websocket.StatusNormalClosure, ""), "the relay answers the close")
}

func TestPingIsAnswered(t *testing.T) {
	s := newWorld(t).serve(still())
	c := s.raw(t, relaypb.Subprotocol)
	ctx, cancel := context.WithTimeout(c.CloseRead(context.Background()), time.Minute)
	defer cancel()
	require.NoError(t, c.Ping(ctx))
}

func TestMalformedMessages(t *testing.T) {
	for name, m := range map[string]struct {
		subprotocol string
		kind        websocket.MessageType
		data        string
	}{
		"not protobuf":   {relaypb.Subprotocol, websocket.MessageBinary, "\xff\xff\xff\xff"},
		"cut short":      {relaypb.Subprotocol, websocket.MessageBinary, "\x0a\x7f"},
		"text on binary": {relaypb.Subprotocol, websocket.MessageText, `{"subscribe":{}}`},
		"not JSON":       {relaypb.SubprotocolJSON, websocket.MessageText, `{"subscribe":`},
		"wrong type":     {relaypb.SubprotocolJSON, websocket.MessageText, `{"subscribe":{"tiles":7}}`},
		"binary on JSON": {relaypb.SubprotocolJSON, websocket.MessageBinary, `{}`},
		"no UTF-8":       {relaypb.Subprotocol, websocket.MessageBinary, "\x0a\x03\x0a\x01\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorld(t).serve(still())
			c := s.raw(t, m.subprotocol)
			require.NoError(t, c.Write(context.Background(), m.kind, []byte(m.data)))
			kind, data, err := c.Read(context.Background())
			require.NoError(t, err, "an Error comes before the close")
			got := &relaypb.ServerMessage{}
			if kind == websocket.MessageText {
				require.NoError(t, protojson.Unmarshal(data, got))
			} else {
				require.NoError(t, proto.Unmarshal(data, got))
			}
			require.Equal(t, relaypb.Code_CODE_MALFORMED, got.GetError().GetCode())
			require.Equal(t, relaypb.ClosePolicy, closeStatus(t, c))
			require.EqualValues(t, 1, s.Stats().BadMessages)
		})
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.MaxTilesPerClient, cfg.MaxTiles, cfg.inboundBytes, cfg.InboundRate = 2, 2, 1<<10, 3
	s := w.serve(cfg)
	code := func(m *relaypb.ServerMessage) relaypb.Code { return m.GetError().GetCode() }

	c := s.raw(t, relaypb.Subprotocol)
	for _, bad := range []string{"", "0", "zz", "085283473fffffff", "85283473FFFFFFF", strings.Repeat("f", 100)} {
		send(t, c, subscribeTo(bad))
		require.Equal(t, relaypb.Code_CODE_INVALID_TILE, code(receive(t, c)), bad)
	}
	send(t, c, subscribeTo("1", "2", "3"))
	var syncs int
	for range 3 { // the Syncs may come before the Error or after it
		if m := receive(t, c); m.GetSync() != nil {
			syncs++
		} else {
			require.Equal(t, relaypb.Code_CODE_TOO_MANY_TILES, code(m))
			require.Equal(t, "3", m.GetTile())
		}
	}
	require.Equal(t, 2, syncs)
	send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Resync{Resync: &relaypb.Resync{Tile: "3"}}})
	require.Equal(t, relaypb.Code_CODE_NOT_SUBSCRIBED, code(receive(t, c)))
	send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Unsubscribe{
		Unsubscribe: &relaypb.Unsubscribe{Tiles: []string{"1"}},
	}})
	send(t, c, subscribeTo("3"))
	require.NotNil(t, receive(t, c).GetSync(), "a tile that nobody watches any more makes room")

	d := s.raw(t, relaypb.Subprotocol)
	send(t, d, subscribeTo("4"))
	require.Equal(t, relaypb.Code_CODE_OVERLOADED, code(receive(t, d)), "two tiles are watched")
	for range cfg.InboundRate * 10 {
		_ = d.Write(context.Background(), websocket.MessageBinary, nil) // an empty message asks for nothing
	}
	require.Equal(t, relaypb.Code_CODE_RATE_LIMITED, code(receive(t, d)))
	require.Equal(t, relaypb.ClosePolicy, closeStatus(t, d))

	e := s.raw(t, relaypb.Subprotocol)
	_ = e.Write(context.Background(), websocket.MessageBinary, make([]byte, 2<<10))
	require.EqualValues(t, websocket.StatusMessageTooBig, closeStatus(t, e))
}

func TestResyncAndHeldPositions(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.ShowOwners = true
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	held := o.at
	o.tickOn(4)
	c := s.raw(t, relaypb.Subprotocol)
	tile := tileA.String()
	ask := func(p fence.Position) *relaypb.Sync {
		send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Resync{Resync: &relaypb.Resync{Tile: tile,
			Position: relaypb.FromPosition(p)}}})
		return receive(t, c).GetSync()
	}
	send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
		Held: []*relaypb.Held{{Tile: tile, Position: relaypb.FromPosition(held)}},
	}}})
	sync := receive(t, c).GetSync()
	require.False(t, sync.GetReplace())
	require.Len(t, sync.GetTail(), 4)
	require.Equal(t, held, sync.GetFrom().Fence())
	require.Equal(t, o.at, sync.GetPosition().Fence())
	require.Equal(t, "owner-1", sync.GetOwnerContact())
	require.EqualValues(t, 1, sync.GetOwnerEpoch())

	sync = ask(o.at)
	require.False(t, sync.GetReplace())
	require.Empty(t, sync.GetTail(), "nothing was missed: the answer says so")

	sync = ask(fence.Position{})
	require.True(t, sync.GetReplace())
	require.Equal(t, o.state[:8], sync.GetBlob())
	require.Equal(t, fence.Checksum(sync.GetBlob()), sync.GetSum())

	forged := o.at
	forged.Chain++
	require.True(t, ask(forged).GetReplace(), "a position of another history is not continued")
	require.EqualValues(t, 3, s.Stats().Resyncs)
}

func TestAdmission(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.Authenticate = func(r *http.Request) (session.Identity, error) {
		if r.Header.Get("Authorization") != "let me in" {
			return session.Identity{}, errors.New("who are you")
		}
		return session.Identity{Actor: "ann"}, nil
	}
	cfg.authorize = func(_ context.Context, who session.Identity, tile fence.TileID, _ fence.AreaSet) error {
		if tile == tileB || who.Actor != "ann" {
			return errors.New("not yours")
		}
		return nil
	}
	cfg.Origins = []string{"*.example.com"}
	cfg.MaxClients = 1
	s := w.serve(cfg)
	get := func(subprotocol, secret, origin string) int {
		c, resp, err := websocket.Dial(context.Background(), s.url, &websocket.DialOptions{
			Subprotocols: []string{subprotocol},
			HTTPHeader:   http.Header{"Authorization": {secret}, "Origin": {origin}},
		})
		if err != nil {
			require.NotNil(t, resp)
			return resp.StatusCode
		}
		_ = c.Close(websocket.StatusNormalClosure, "")
		eventually(t, func() bool { return s.Stats().Clients == 0 }, "it is gone")
		return resp.StatusCode
	}
	require.Equal(t, http.StatusUnauthorized, get(relaypb.Subprotocol, "", ""))
	require.Equal(t, http.StatusBadRequest, get("tilefence.view.v2", "let me in", ""))
	require.Equal(t, http.StatusForbidden, get(relaypb.Subprotocol, "let me in", "https://evil.test"))
	require.Equal(t, http.StatusSwitchingProtocols, get(relaypb.Subprotocol, "let me in", "https://play.example.com"))
	require.Equal(t, http.StatusSwitchingProtocols, get(relaypb.SubprotocolJSON, "let me in", ""))

	c := s.watch(t, func(c *relayclient.Config) { c.Header = http.Header{"Authorization": {"let me in"}} }, tileA,
		tileB)
	eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.Stats().Syncs == 1 && len(c.refused) > 0
	}, "the allowed tile is served, and the other refused")
	c.mu.Lock()
	require.Equal(t, []relayclient.Refusal{{Tile: tileB.String(), Code: "CODE_FORBIDDEN",
		Message: "not allowed"}}, c.refused)
	c.mu.Unlock()
	require.Equal(t, http.StatusServiceUnavailable, get(relaypb.Subprotocol, "let me in", ""), "full")
	require.EqualValues(t, 4, s.Stats().Refused)
}

func TestHandlerRefusesWithoutRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, err := New(w.fan, w.log, Public, nil)
	require.NoError(t, err)
	rec := httptest.NewRecorder()
	r.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Equal(t, "1", rec.Header().Get("Retry-After"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, r.Run(ctx))
	require.ErrorIs(t, r.Run(ctx), fence.ErrAlreadyRun)
}
