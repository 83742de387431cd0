package peers

import (
	"context"
	"encoding/binary"
	"net/http"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge"
	"github.com/centrifugal/protocol"
	"github.com/gorilla/websocket"
	"github.com/lxzan/gws"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// server is one of those that are compared.
type server struct {
	name        string
	subprotocol string
	// start returns the handler of its connections, and what sends a message to all of them.
	start func(ctx context.Context) (http.Handler, func(message []byte) error, error)
	// greet is what a client does after the handshake, until it is subscribed.
	greet func(*crowd.Client) error
}

// servers are those of BenchmarkPeers. None of them pings, so that no figure has pings in it.
var servers = []server{
	{"relay", relaypb.Subprotocol, startRelay, greetRelay},
	{"gws", "", startGWS, nil},
	{"gorilla", "", startGorilla, nil},
	{"centrifuge", "centrifuge-protobuf", startCentrifuge, greetCentrifuge},
}

// tile is the channel.
const tile = fence.TileID(0x85283473fffffff)

// startRelay starts a relay over an owner that commits each message to a store in the same process.
func startRelay(ctx context.Context) (http.Handler, func([]byte) error, error) {
	store, broker := memfence.New(), memfanout.New()
	r, err := relay.New(broker, memstream.New(store), relay.Public, &relay.Config{PingInterval: time.Hour})
	if err != nil {
		return nil, nil, err
	}
	go func() { _ = r.Run(ctx) }()
	begun, err := store.Rebase(ctx, fence.Rebase{Tile: tile, Epoch: 1, Contact: "owner:1", Seq: 1,
		Blob: stream.AppendSnapshot(nil, nil, nil)})
	if err != nil {
		return nil, nil, err
	}
	at, tick := begun.Position, fence.Tick(0)
	publish := func(message []byte) error {
		tick++
		c := fence.Commit{Tile: tile, Epoch: 1, Contact: "owner:1", Prev: at, Tick: tick, At: time.Now(),
			Payload: message}
		receipt, err := store.Commit(ctx, c)
		if err != nil {
			return err
		}
		at = receipt.Position
		_, err = broker.Publish(ctx, []fanout.Message{{Tile: tile, Data: c.Entry().Frame}})
		return err
	}
	return r.Handler(), publish, nil
}

// greetRelay subscribes and reads the Sync.
func greetRelay(c *crowd.Client) error {
	subscribe, err := proto.Marshal(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{
		Subscribe: &relaypb.Subscribe{Tiles: []string{tile.String()}}}})
	if err != nil {
		return err
	}
	if err := c.Send(false, subscribe); err != nil {
		return err
	}
	_, err = c.Next()
	return err
}

// room is the connections of a server that holds nothing else.
type room[C comparable] struct {
	mu  sync.Mutex
	all map[C]struct{}
}

func (r *room[C]) add(c C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[C]struct{}{}
	}
	r.all[c] = struct{}{}
}

func (r *room[C]) remove(c C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, c)
}

// each calls send for all connections; one that fails is on its way out.
func (r *room[C]) each(send func(C) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.all {
		_ = send(c)
	}
}

// gwsRoom is what gws reports to.
type gwsRoom struct {
	gws.BuiltinEventHandler
	room[*gws.Conn]
}

// OnOpen implements gws.Event.
func (g *gwsRoom) OnOpen(c *gws.Conn) { g.add(c) }

// OnClose implements gws.Event.
func (g *gwsRoom) OnClose(c *gws.Conn, _ error) { g.remove(c) }

// startGWS sends with gws's Broadcaster.
func startGWS(context.Context) (http.Handler, func([]byte) error, error) {
	g := &gwsRoom{}
	upgrader := gws.NewUpgrader(g, nil)
	handle := func(w http.ResponseWriter, r *http.Request) {
		if c, err := upgrader.Upgrade(w, r); err == nil {
			go c.ReadLoop() // the request's goroutine, with its buffers, ends
		}
	}
	publish := func(message []byte) error {
		b := gws.NewBroadcaster(gws.OpcodeBinary, message)
		g.each(b.Broadcast)
		return b.Close()
	}
	return http.HandlerFunc(handle), publish, nil
}

// gorillaConn is a connection as in the library's chat example: one goroutine reads, one writes what is queued.
type gorillaConn struct {
	*websocket.Conn
	queue chan *websocket.PreparedMessage
}

// startGorilla sends each message prepared once.
func startGorilla(context.Context) (http.Handler, func([]byte) error, error) {
	upgrader := websocket.Upgrader{}
	all := &room[*gorillaConn]{}
	handle := func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		c := &gorillaConn{Conn: conn, queue: make(chan *websocket.PreparedMessage, 16)}
		go func() {
			for m := range c.queue {
				_ = c.WritePreparedMessage(m) // the reader notices
			}
		}()
		all.add(c)
		go func() {
			defer close(c.queue)
			defer all.remove(c)
			for {
				if _, _, err := c.ReadMessage(); err != nil {
					return
				}
			}
		}()
	}
	publish := func(message []byte) error {
		m, err := websocket.NewPreparedMessage(websocket.BinaryMessage, message)
		if err != nil {
			return err
		}
		all.each(func(c *gorillaConn) error {
			c.queue <- m
			return nil
		})
		return nil
	}
	return http.HandlerFunc(handle), publish, nil
}

// startCentrifuge subscribes each connection to a channel with history and recovery.
func startCentrifuge(context.Context) (http.Handler, func([]byte) error, error) {
	const channel = "tile"
	noPings := centrifuge.PingPongConfig{PingInterval: -1, PongTimeout: -1}
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		return nil, nil, err
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{
			Credentials:    &centrifuge.Credentials{UserID: "ann"},
			Subscriptions:  map[string]centrifuge.SubscribeOptions{channel: {EnableRecovery: true}},
			PingPongConfig: &noPings,
		}, nil
	})
	if err := node.Run(); err != nil {
		return nil, nil, err
	}
	publish := func(message []byte) error {
		_, err := node.Publish(channel, message, centrifuge.WithHistory(512, time.Minute))
		return err
	}
	// Buffers as its documentation advises for many connections.
	handler := centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{ReadBufferSize: 512,
		UseWriteBufferPool: true, PingPongConfig: noPings})
	return handler, publish, nil
}

// greetCentrifuge connects and reads the reply.
func greetCentrifuge(c *crowd.Client) error {
	connect, err := protocol.NewProtobufCommandEncoder().Encode(
		&protocol.Command{Id: 1, Connect: &protocol.ConnectRequest{}})
	if err != nil {
		return err
	}
	if err := c.Send(false, connect); err != nil {
		return err
	}
	_, err = c.Next()
	return err
}

// A message has a mark, by which clients find it in whatever it travels in, and when it was sent.
const messageBytes = 600

var mark = []byte("\x00TILEFENCE-SENT\x00")

func newMessage(now time.Time) []byte {
	m := make([]byte, 0, messageBytes)
	m = append(m, mark...)
	m = binary.BigEndian.AppendUint64(m, uint64(now.UnixNano()))
	return m[:messageBytes]
}
