package relayclient_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/relayclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tile = fence.TileID(0x85283473fffffff)

// script is a relay that says what a test tells it to, right or wrong.
type script struct {
	t     *testing.T
	url   string
	conns chan *peer

	handshakes atomic.Int64

	takes  atomic.Bool // subscriptions that handshakes name
	firsts chan *relaypb.Subscribe
	before atomic.Pointer[func()] // called once, before the answer to a handshake
}

// peer is one connection of it.
type peer struct {
	t    *testing.T
	nth  int64 // handshake
	conn *websocket.Conn
	over chan struct{}
}

func newScript(t *testing.T) *script {
	s := &script{t: t, conns: make(chan *peer, 64), firsts: make(chan *relaypb.Subscribe, 64)}
	over := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/forbidden" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		nth := s.handshakes.Add(1)
		if f := s.before.Swap(nil); f != nil {
			(*f)()
		}
		if value := r.FormValue(relaypb.SubscribeParam); s.takes.Load() && value != "" {
			first, _ := relaypb.ParseSubscribe(value)
			s.firsts <- first
			w.Header().Set(relaypb.SubscribedHeader, "1")
		}
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{relaypb.Subprotocol}})
		if err != nil {
			return
		}
		p := &peer{t: t, nth: nth, conn: conn, over: make(chan struct{})}
		s.conns <- p
		select {
		case <-p.over:
		case <-over:
		}
		_ = conn.CloseNow()
	}))
	t.Cleanup(func() { close(over); ts.Close() })
	s.url = "ws" + strings.TrimPrefix(ts.URL, "http")
	return s
}

func (s *script) accept() *peer {
	p := <-s.conns
	s.t.Cleanup(sync.OnceFunc(func() { p.end() }))
	return p
}

func (p *peer) end() {
	select {
	case <-p.over:
	default:
		close(p.over)
	}
}

func (p *peer) receive() *relaypb.ClientMessage {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, data, err := p.conn.Read(ctx)
	require.NoError(p.t, err)
	m := &relaypb.ClientMessage{}
	require.NoError(p.t, proto.Unmarshal(data, m))
	return m
}

func (p *peer) send(m *relaypb.ServerMessage) {
	data, err := proto.Marshal(m)
	require.NoError(p.t, err)
	require.NoError(p.t, p.conn.Write(context.Background(), websocket.MessageBinary, data))
}

func (p *peer) frame(e fence.Entry) {
	p.send(&relaypb.ServerMessage{Tile: tile.String(),
		Body: &relaypb.ServerMessage_Frame{Frame: relaypb.FromEntry(&e)}})
}

func (p *peer) sync(s *relaypb.Sync) {
	p.send(&relaypb.ServerMessage{Tile: tile.String(), Body: &relaypb.ServerMessage_Sync{Sync: s}})
}

// batch is a tile's batch i as watchers are sent it; it has the payload {i+1}, and some have a part for owners.
func batch(epoch fence.Epoch, i int, prev fence.Position) fence.Entry {
	e := fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindBatch,
		Position: fence.Position{Epoch: epoch, Seq: prev.Seq + 1},
		Prev:     prev, Tick: fence.Tick(i + 1), Payload: []byte{byte(i + 1)}, Private: make([]byte, i%3)})
	return e.Watched(fence.AreaSet{})
}

// history is n batches of a tile.
func history(n int) []fence.Entry {
	var all []fence.Entry
	var at fence.Position
	for i := range n {
		e := batch(1, i, at)
		at = e.Position
		all = append(all, e)
	}
	return all
}

// whole is a Sync from scratch: a snapshot after the first n batches, and the rest up to m.
func whole(h []fence.Entry, n, m int) *relaypb.Sync {
	var blob []byte
	for _, e := range h[:n] {
		blob = append(blob, e.Payload...)
	}
	s := &relaypb.Sync{Replace: true, Blob: blob, Sum: fence.Checksum(blob),
		From: relaypb.FromPosition(h[n-1].Position), Position: relaypb.FromPosition(h[m-1].Position)}
	for i := range h[n:m] {
		s.Tail = append(s.Tail, relaypb.FromEntry(&h[n+i]))
	}
	return s
}

// tail is a Sync of what follows the first n batches.
func tail(h []fence.Entry, n, m int) *relaypb.Sync {
	s := whole(h, n, m)
	s.Replace, s.Blob, s.Sum = false, nil, ""
	return s
}

// viewer folds what its client is given.
type viewer struct {
	*relayclient.Client
	t     *testing.T
	mu    sync.Mutex
	state []byte
	cfg   relayclient.Config
}

func view(s *script, url string, edit func(*relayclient.Config)) (*viewer, *peer) {
	v := &viewer{t: s.t}
	v.cfg = relayclient.Config{
		Sync: func(y relayclient.Sync) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.state = append([]byte(nil), y.Snapshot.Blob...)
		},
		Frame: func(f fence.Entry) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.state = append(v.state, f.Payload...)
		},
		BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond,
	}
	if edit != nil {
		edit(&v.cfg)
	}
	c, err := relayclient.Dial(context.Background(), url, &v.cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	v.Client = c
	require.NoError(s.t, c.Subscribe(context.Background(), tile))
	p := s.accept()
	require.Equal(s.t, []string{tile.String()}, p.receive().GetSubscribe().GetTiles())
	return v, p
}

func (v *viewer) holds(n int) {
	v.t.Helper()
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i + 1)
	}
	waittest.Until(v.t, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return string(v.state) == string(want)
	}, 5*time.Second, time.Millisecond)
}

func TestGapIsResyncedOnce(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	h := history(20)
	p.sync(whole(h, 3, 5))
	p.frame(h[5])
	v.holds(6)
	p.frame(h[7]) // h[6] is missing
	p.frame(h[8])
	p.frame(h[9])
	ask := p.receive().GetResync()
	require.Equal(t, tile.String(), ask.GetTile())
	require.Equal(t, h[5].Position, ask.GetPosition().Fence())
	p.sync(tail(h, 6, 10))
	p.frame(h[10])
	v.holds(11)
	require.Equal(t, relayclient.Stats{Connects: 1, Bytes: v.Stats().Bytes, Syncs: 2, Frames: 8, Gaps: 1, Repaired: 1,
		Resyncs: 1}, v.Stats())
	at, ok := v.Position(tile)
	require.True(t, ok)
	require.Equal(t, h[10].Position, at)
}

func TestFramesThatArriveAgainAreIgnored(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	h := history(10)
	p.frame(h[0]) // before any Sync
	p.sync(whole(h, 3, 5))
	p.frame(h[4])
	p.frame(h[1])
	p.frame(h[5])
	v.holds(6)
	require.EqualValues(t, 2, v.Stats().Duplicates)
	require.Zero(t, v.Stats().Gaps)
}

func TestFrameOfAnotherHistoryIsNotApplied(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	h := history(10)
	p.sync(whole(h, 3, 5))
	fork := h[5]
	fork.Prev.Chain++
	p.frame(fork)
	require.NotNil(t, p.receive().GetResync())
	require.Zero(t, v.Stats().Corrupt, "the position alone tells")
	p.sync(whole(h, 8, 9))
	v.holds(9)
	rebase := h[9]
	rebase.Kind = fence.KindRebase
	p.frame(rebase)
	require.NotNil(t, p.receive().GetResync(), "state that jumped cannot be followed")
	p.sync(whole(h, 8, 10))
	v.holds(10)
}

func TestDamageIsNotApplied(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	h := history(10)
	bad := whole(h, 3, 5)
	bad.Sum = fence.Checksum([]byte("something else"))
	p.sync(bad)
	require.Nil(t, p.receive().GetResync().GetPosition(), "everything is asked for")
	p.sync(whole(h, 3, 5))
	v.holds(5)
	damaged := h[5]
	damaged.Payload = []byte("damaged")
	p.frame(damaged)
	require.Equal(t, h[4].Position, p.receive().GetResync().GetPosition().Fence())
	p.sync(tail(h, 5, 6))
	v.holds(6)
	damaged = h[6]
	damaged.Hidden++
	p.frame(damaged)
	require.Equal(t, h[5].Position, p.receive().GetResync().GetPosition().Fence())
	p.sync(tail(h, 6, 7))
	v.holds(7)
	require.EqualValues(t, 3, v.Stats().Corrupt)
}

func TestSyncThatDoesNotContinueIsFollowedByOneFromScratch(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	h := history(10)
	p.sync(tail(h, 3, 5)) // nothing is held: ignored
	p.sync(whole(h, 3, 5))
	v.holds(5)
	p.sync(tail(h, 7, 9))
	ask := p.receive().GetResync()
	require.NotNil(t, ask)
	require.Nil(t, ask.GetPosition())
	p.sync(whole(h, 7, 9))
	v.holds(9)
}

func TestReconnectNamesWhatItHolds(t *testing.T) {
	s := newScript(t)
	var mu sync.Mutex
	var ends []error
	v, p := view(s, s.url, func(c *relayclient.Config) {
		c.Reconnect = true
		c.Disconnected = func(err error) { mu.Lock(); ends = append(ends, err); mu.Unlock() }
	})
	h := history(10)
	p.sync(whole(h, 3, 5))
	v.holds(5)
	p.end()
	p = s.accept()
	ask := p.receive().GetSubscribe()
	require.Empty(t, ask.GetTiles())
	require.Len(t, ask.GetHeld(), 1)
	require.Equal(t, h[4].Position, ask.GetHeld()[0].GetPosition().Fence())
	p.sync(tail(h, 5, 8))
	v.holds(8)
	require.EqualValues(t, 2, v.Stats().Connects)
	mu.Lock()
	require.Len(t, ends, 1)
	mu.Unlock()
}

func TestPolicyCloseIsFinal(t *testing.T) {
	s := newScript(t)
	var mu sync.Mutex
	var refused []relayclient.Refusal
	v, p := view(s, s.url, func(c *relayclient.Config) {
		c.Reconnect = true
		c.Refused = func(r relayclient.Refusal) { mu.Lock(); refused = append(refused, r); mu.Unlock() }
	})
	p.send(&relaypb.ServerMessage{Body: &relaypb.ServerMessage_Error{
		Error: &relaypb.Error{Code: relaypb.Code_CODE_MALFORMED, Message: "what?"},
	}})
	_ = p.conn.Close(relaypb.ClosePolicy, "no")
	<-v.Done()
	require.EqualValues(t, relaypb.ClosePolicy, websocket.CloseStatus(v.Err()))
	require.ErrorIs(t, v.Subscribe(context.Background(), tile), relayclient.ErrClosed)
	mu.Lock()
	require.Equal(t, []relayclient.Refusal{{Code: "CODE_MALFORMED", Message: "what?"}}, refused)
	mu.Unlock()
}

func heartbeat(ms uint32) *relaypb.ServerMessage {
	return &relaypb.ServerMessage{Body: &relaypb.ServerMessage_Heartbeat{Heartbeat: &relaypb.Heartbeat{IntervalMs: ms}}}
}

// TestSilentRelayCountsAsLost: the relay names its interval, and then says nothing, without a FIN. The client makes
// another connection, and goes on from what it holds.
func TestSilentRelayCountsAsLost(t *testing.T) {
	s := newScript(t)
	lost := make(chan error, 8)
	v, p := view(s, s.url, func(c *relayclient.Config) {
		c.Reconnect = true
		c.BackoffMin, c.BackoffMax = time.Millisecond, time.Millisecond
		c.Disconnected = func(err error) { lost <- err }
	})
	p.sync(whole(history(5), 1, 3))
	v.holds(3)
	p.send(heartbeat(20))
	require.ErrorIs(t, <-lost, relayclient.ErrSilent)
	p = <-s.conns
	defer p.conn.CloseNow()
	p.send(heartbeat(60_000))
	p.sync(whole(history(5), 1, 5))
	v.holds(5)
}

// TestALongMessageIsNoSilence: it takes longer than the limit, and each piece of it is a sign of life.
func TestALongMessageIsNoSilence(t *testing.T) {
	s := newScript(t)
	came := make(chan time.Duration, 1)
	v, p := view(s, s.url, func(c *relayclient.Config) { c.GoAway = func(d time.Duration) { came <- d } })
	p.send(heartbeat(200))
	data, err := proto.Marshal(&relaypb.ServerMessage{Body: &relaypb.ServerMessage_GoAway{
		GoAway: &relaypb.GoAway{Message: strings.Repeat("long", 32<<10), WithinMs: 7}}})
	require.NoError(t, err)
	w, err := p.conn.Writer(context.Background(), websocket.MessageBinary)
	require.NoError(t, err)
	for part := range slices.Chunk(data, len(data)/12) {
		_, err = w.Write(part)
		require.NoError(t, err)
		time.Sleep(50 * time.Millisecond)
	}
	require.NoError(t, w.Close())
	select {
	case within := <-came:
		require.Equal(t, 7*time.Millisecond, within)
	case <-v.Done():
		require.NoError(t, v.Err())
	}
	_ = p.conn.CloseNow()
}

func TestUnreadableMessageEndsTheConnection(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	require.NoError(t, p.conn.Write(context.Background(), websocket.MessageBinary, []byte("\xff\xff")))
	_, _, err := p.conn.Read(context.Background())
	require.EqualValues(t, websocket.StatusUnsupportedData, websocket.CloseStatus(err))
	<-v.Done()
	require.ErrorContains(t, v.Err(), "cannot be read")
}

func TestUnknownMessagesAndTilesAreIgnored(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	h := history(5)
	p.send(&relaypb.ServerMessage{})
	p.send(&relaypb.ServerMessage{Tile: "not a tile", Body: &relaypb.ServerMessage_Sync{Sync: whole(h, 1, 2)}})
	p.send(&relaypb.ServerMessage{Tile: "1", Body: &relaypb.ServerMessage_Frame{Frame: relaypb.FromEntry(&h[0])}})
	// field 127
	require.NoError(t, p.conn.Write(context.Background(), websocket.MessageBinary, []byte{0xf8, 0x07, 0x01}))
	p.sync(whole(h, 3, 5))
	v.holds(5)
}

func TestDialErrors(t *testing.T) {
	s := newScript(t)
	_, err := relayclient.Dial(context.Background(), s.url+"/forbidden", nil)
	require.ErrorContains(t, err, "403")
	_, err = relayclient.Dial(context.Background(), s.url, &relayclient.Config{JSON: true})
	require.ErrorContains(t, err, "tilefence.view.v1.json")
	s.accept().end()
	for field, cfg := range map[string]*relayclient.Config{
		"BackoffMin": {BackoffMin: -1},
		"BackoffMax": {BackoffMin: time.Second, BackoffMax: time.Millisecond},
	} {
		_, err = relayclient.Dial(context.Background(), s.url, cfg)
		var arg *fence.ArgumentError
		require.ErrorAs(t, err, &arg)
		require.Equal(t, field, arg.Field)
	}
}

func TestClose(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, func(c *relayclient.Config) { c.Reconnect = true })
	require.NoError(t, v.Err())
	go func() { _, _, _ = p.conn.Read(context.Background()) }()
	require.NoError(t, v.Close())
	require.NoError(t, v.Close())
	require.ErrorIs(t, v.Err(), relayclient.ErrClosed)
	require.ErrorIs(t, v.Unsubscribe(context.Background(), tile), relayclient.ErrClosed)
}

// TestTheHandshakeNamesTiles: if the relay takes them, they are not asked for again, and what was subscribed meanwhile
// is not lost.
func TestTheHandshakeNamesTiles(t *testing.T) {
	s := newScript(t)
	s.takes.Store(true)
	v, p := view(s, s.url, func(c *relayclient.Config) {
		c.Tiles, c.Reconnect = []fence.TileID{tile}, true
	})
	require.Equal(t, []string{tile.String()}, (<-s.firsts).GetTiles())
	h := history(10)
	p.sync(whole(h, 3, 5))
	v.holds(5)
	late := fence.TileID(0x85283447fffffff)
	for _, names := range [][]fence.TileID{nil, {late}} {
		asks := func() { _ = v.Subscribe(context.Background(), names...) }
		s.before.Store(&asks)
		p.end()
		first := <-s.firsts
		require.Equal(t, h[4].Position, first.GetHeld()[0].GetPosition().Fence())
		require.Len(t, (<-s.firsts).GetTiles(), len(names))
		left, stays := s.accept(), s.accept()
		if left.nth > stays.nth { // the client may have left before its peer came forward
			left, stays = stays, left
		}
		_, _, err := left.conn.Read(context.Background())
		require.Error(t, err, "the client has left")
		p = stays
	}
	p.sync(tail(h, 5, 8))
	v.holds(8)
}
