package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
)

// early is a client that names its first subscription in the handshake.
type early struct {
	net.Conn
	in   *bufio.Reader
	resp *http.Response
}

func (s *server) early(t *testing.T, first *relaypb.Subscribe) *early {
	t.Helper()
	url, ok := relaypb.SubscribeURL("http"+strings.TrimPrefix(s.url, "ws"), first)
	require.True(t, ok)
	return s.handshake(t, url)
}

func (s *server) handshake(t *testing.T, url string) *early {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Protocol": relaypb.Subprotocol} {
		r.Header.Set(name, value)
	}
	conn, err := net.Dial("tcp", r.URL.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	require.NoError(t, r.Write(conn))
	c := &early{Conn: conn, in: bufio.NewReader(conn)}
	c.resp, err = http.ReadResponse(c.in, r)
	require.NoError(t, err)
	return c
}

// next is the relay's next message other than a Heartbeat, of less than 64 KiB.
func (c *early) next(t *testing.T) *relaypb.ServerMessage {
	t.Helper()
	head := make([]byte, 2)
	_, err := io.ReadFull(c.in, head)
	require.NoError(t, err)
	n := int(head[1])
	if n == 126 {
		_, err = io.ReadFull(c.in, head)
		require.NoError(t, err)
		n = int(head[0])<<8 | int(head[1])
	}
	data := make([]byte, n)
	_, err = io.ReadFull(c.in, data)
	require.NoError(t, err)
	m := &relaypb.ServerMessage{}
	require.NoError(t, proto.Unmarshal(data, m))
	if m.GetHeartbeat() != nil {
		return c.next(t)
	}
	return m
}

// TestFirstSubscriptionInTheHandshake: the response and the Sync of a tile that the relay has come together.
func TestFirstSubscriptionInTheHandshake(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.tickOn(3)
	s.watch(t, nil, tileA).reaches(o)
	c := s.early(t, &relaypb.Subscribe{Tiles: []string{tileA.String()}})
	require.Equal(t, http.StatusSwitchingProtocols, c.resp.StatusCode)
	require.Equal(t, "1", c.resp.Header.Get(relaypb.SubscribedHeader))
	require.NotZero(t, c.in.Buffered(), "the Sync is in the same packet")
	require.Equal(t, o.at, c.next(t).GetSync().GetPosition().Fence())
	e := o.commit()
	o.publish(e)
	require.Equal(t, e.Position, c.next(t).GetFrame().GetPosition().Fence(), "delivery goes on")

	held := &relaypb.Held{Tile: tileA.String(), Position: relaypb.FromPosition(e.Position)}
	c = s.early(t, &relaypb.Subscribe{Held: []*relaypb.Held{held}})
	require.Empty(t, c.next(t).GetSync().GetTail(), "nothing was missed")
}

// TestFirstSubscriptionThatCannotBeServed: the client is let in all the same, and told by messages.
func TestFirstSubscriptionThatCannotBeServed(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.Authenticate = func(*http.Request) (session.Identity, error) { return session.Identity{}, nil }
	cfg.authorize = func(_ context.Context, _ session.Identity, tile fence.TileID, _ fence.AreaSet) error {
		if tile == tileB {
			return errors.New("no")
		}
		return nil
	}
	s := w.serve(cfg)
	w.log.set(func(l *testLog) { l.err = errors.New("down") })
	c := s.early(t, &relaypb.Subscribe{Tiles: []string{tileA.String()}})
	require.Equal(t, http.StatusSwitchingProtocols, c.resp.StatusCode, "also if the tile cannot be read")

	c = s.early(t, &relaypb.Subscribe{Tiles: []string{tileB.String()}})
	require.Equal(t, relaypb.Code_CODE_FORBIDDEN, c.next(t).GetError().GetCode())
	c = s.early(t, &relaypb.Subscribe{Held: []*relaypb.Held{{Tile: tileA.String(), Areas: []uint32{256}}}})
	require.Equal(t, relaypb.Code_CODE_MALFORMED, c.next(t).GetError().GetCode())
	c = s.early(t, &relaypb.Subscribe{})
	require.Equal(t, http.StatusSwitchingProtocols, c.resp.StatusCode, "of nothing")

	c = s.handshake(t, fmt.Sprintf("http%s/?%s=!", strings.TrimPrefix(s.url, "ws"), relaypb.SubscribeParam))
	require.Equal(t, http.StatusBadRequest, c.resp.StatusCode)
	why, err := io.ReadAll(c.resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(why), relaypb.SubscribeParam)
	require.EqualValues(t, 1, s.Stats().Refused)
}

// TestManyClientsNameTilesInTheirHandshakes, and are sent what others are.
func TestManyClientsNameTilesInTheirHandshakes(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	a, b := w.claim(tileA, 1), w.claim(tileB, 1)
	var all []*watcher
	for range 20 {
		all = append(all, s.watch(t, func(c *relayclient.Config) { c.Tiles = []fence.TileID{tileA, tileB} }))
		e := a.commit()
		a.publish(e)
		b.tickOn(1)
	}
	for _, c := range all {
		c.reaches(a)
		c.reaches(b)
	}
}

// TestAuthorizationDoesNotHoldTheResponse: the response comes while the game still thinks about the tiles.
func TestAuthorizationDoesNotHoldTheResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := still()
	cfg.authorize = func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error {
		time.Sleep(time.Second)
		return nil
	}
	s := w.serve(cfg)
	start := time.Now()
	s.early(t, &relaypb.Subscribe{Tiles: []string{tileA.String(), tileB.String()}})
	require.Less(t, time.Since(start), 900*time.Millisecond)
}

// TestEndedWhileAuthorizing: a client that the game ends while it thinks about the first tiles is told so at once, and
// the game is asked about no more of them.
func TestEndedWhileAuthorizing(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	var asked atomic.Int64
	think := make(chan struct{})
	thought := sync.OnceFunc(func() { close(think) })
	defer thought()
	cfg.authorize = func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error {
		asked.Add(1)
		<-think
		return nil
	}
	s := w.serve(cfg)
	var tiles []string
	for i := range fence.TileID(6) {
		tiles = append(tiles, (tileA + i<<20).String())
	}
	url, ok := relaypb.SubscribeURL(s.url, &relaypb.Subscribe{Tiles: tiles})
	require.True(t, ok)
	c, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: []string{relaypb.Subprotocol}})
	require.NoError(t, err)
	defer func() { _ = c.CloseNow() }()
	clients := s.allClients()
	require.Len(t, clients, 1)
	require.True(t, clients[0].end())
	require.EqualValues(t, relaypb.CloseEnded, closeStatus(t, c))
	thought()
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "it is gone")
	require.EqualValues(t, 1, asked.Load())
}
