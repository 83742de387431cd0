package relay

import (
	"crypto/rand"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// Clients that say nothing and read nothing, each of which is sent a Sync of its own, do not take more than the relay
// has for them, and a client that reads is served among them.
func TestSilentClientsDoNotHoldSyncs(t *testing.T) {
	w := newWorld(t)
	const size, limit = 512 << 10, 4 << 20
	cfg := still()
	cfg.RelaySyncBytes, cfg.syncStall = limit, 50*time.Millisecond
	cfg.TailFrames = 1 << 10
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.appendPayload(make([]byte, size), false)
	o.snapshot()
	var most atomic.Int64
	s.watch(t, nil, tileA).reaches(o)
	for i := range 60 {
		c := s.raw(t, relaypb.Subprotocol)
		send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: tileA.String(), Areas: []uint32{uint32(i + 1)}}}}}}) // a Sync of its own
		s.backlog.mu.Lock()
		held := int64(s.backlog.bytes)
		s.backlog.mu.Unlock()
		most.Store(max(most.Load(), held, s.hubs.kept.bytes.Load()))
	}
	honest := s.watch(t, func(c *relayclient.Config) {
		c.Reconnect, c.BackoffMin = true, time.Millisecond // on a busy machine it may be too slow once
	}, tileA)
	o.tickOn(3)
	honest.reaches(o)
	eventually(t, func() bool { return s.Stats().SlowCloses > 0 }, "those that stall are closed")
	assert.LessOrEqual(t, most.Load(), int64(limit+size*3/2*runtime.GOMAXPROCS(0)))
	assert.Positive(t, most.Load())
}

// Clients that do not read, each of which watches other areas and so is sent other bytes, do not pile up frames.
func TestSilentClientsDoNotHoldFrames(t *testing.T) {
	w := newWorld(t)
	const size, limit, silent = 16 << 10, 1 << 20, 40
	cfg := still()
	cfg.RelayQueueBytes = limit
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	honest := s.watch(t, nil, tileA)
	honest.reaches(o)
	for i := range silent {
		c := s.raw(t, relaypb.Subprotocol)
		send(t, c, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
			Held: []*relaypb.Held{{Tile: tileA.String(), Areas: []uint32{0, uint32(i + 1)}}}}}})
	}
	eventually(t, func() bool { return s.Stats().SyncsOut == silent+1 }, "all watch")
	most := int64(0)
	for range 300 {
		o.publish(o.appendPayload(fence.AppendPart(nil, 0, make([]byte, size)), false))
		most = max(most, s.backlog.frames.Load())
	}
	assert.LessOrEqual(t, most, int64(limit+(silent+1)*(size+100)))
	assert.Greater(t, most, int64(limit), "the limit was reached")
	o.tickOn(1)
	honest.reaches(o)
	s.stop()
	require.Zero(t, s.backlog.frames.Load(), "all that was counted in was counted out")
	require.Zero(t, s.backlog.bytes)
	require.Zero(t, s.hubs.kept.bytes.Load())
}

// The books of the backlog balance, whatever clients do.
func TestBacklogBooks(t *testing.T) {
	b := newBacklog(&Config{Limits: Limits{RelaySyncBytes: 100, RelayQueueBytes: 10}})
	c, d := &client{}, &client{}
	one, two := make([]byte, 60), make([]byte, 50)
	now := time.Now()
	require.True(t, b.room(now))
	b.hold(c, one)
	b.hold(d, one)
	require.Equal(t, 60, b.bytes, "shared")
	b.hold(d, two)
	b.release(c, one)
	b.release(c, one)
	require.Equal(t, 110, b.bytes)
	b.release(d, one)
	require.Equal(t, 50, b.bytes)
	require.True(t, b.room(now))
	b.release(d, two)
	require.Zero(t, b.bytes)
	kept := &keptSyncs{most: 100}
	require.True(t, kept.keep(70))
	require.False(t, kept.keep(70))
	kept.forget(70)
	require.True(t, kept.keep(70))
	for range 1000 {
		b.hold(c, two)
		b.release(c, two)
	}
	require.LessOrEqual(t, len(b.order), 32)
}

// envSilent is how many clients TestSilentClientsWithDifferentPositions has: 480 for the attack at its full size.
const envSilent = "TILEFENCE_SILENT_CLIENTS"

// TestSilentClientsWithDifferentPositions: each client says that it holds another position of a long tail, so that each
// would have an answer of its own, and then reads nothing. The relay's memory stays within its limits.
func TestSilentClientsWithDifferentPositions(t *testing.T) {
	clients, entries, limit, watched := 48, 200, 2<<20, 2*time.Second
	if text := os.Getenv(envSilent); text != "" {
		var err error
		clients, err = strconv.Atoi(text)
		require.NoError(t, err)
		entries, limit, watched = 500, 0, 20*time.Second // the default limit
	}
	for name, protocol := range map[string]string{"binary": relaypb.Subprotocol, "JSON": relaypb.SubprotocolJSON} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := still()
			if cfg.RelaySyncBytes = limit; limit != 0 {
				cfg.syncStall = 50 * time.Millisecond // the honest client has not as much room beside them
			}
			s := w.serve(cfg)
			o := w.claim(tileA, 1)
			o.snapshot()
			var held []fence.Position
			const entry = 6 << 10
			for range entries {
				o.appendPayload(make([]byte, entry), false)
				held = append(held, o.at)
			}
			s.watch(t, nil, tileA).reaches(o)
			before := heap()
			for i := range clients {
				c := s.raw(t, protocol)
				at := held[i*len(held)/clients]
				m := &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
					Held: []*relaypb.Held{{Tile: tileA.String(), Position: relaypb.FromPosition(at)}}}}}
				if protocol == relaypb.Subprotocol {
					send(t, c, m)
					continue
				}
				text, err := protojson.Marshal(m)
				require.NoError(t, err)
				require.NoError(t, c.Write(t.Context(), websocket.MessageText, text))
			}
			most := heap()
			for began := time.Now(); time.Since(began) < watched; time.Sleep(100 * time.Millisecond) {
				most = max(most, heap())
			}
			t.Logf("%d clients: heap %d MiB before, at most %d MiB; an answer of its own for each would be %d MiB",
				clients, before>>20, most>>20, clients*entry*entries/2>>20)
			allowed := before + 3*int64(s.cfg.RelaySyncBytes) + int64(clients)<<16 + 8<<20
			assert.LessOrEqual(t, most, allowed)
			require.Zero(t, s.Stats().BadMessages)
			require.GreaterOrEqual(t, s.Stats().SyncsOut, uint64(3), "the silent clients are served")
			honest := s.watch(t, nil, tileA)
			o.tickOn(1)
			honest.reaches(o)
		})
	}
}

// heap is what is in use once garbage is collected: the least of three looks, because answers are made meanwhile, and
// what they leave behind says nothing.
func heap() int64 {
	least := int64(math.MaxInt64)
	for range 3 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapInuse))
	}
	return least
}

// TestASlowClientIsEndedToo: one that reads a large Sync a little at a time is gone soon after the game ended it.
func TestASlowClientIsEndedToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := still()
	cfg.writeTimeout = 2 * time.Second
	cfg.closeTimeout = 500 * time.Millisecond
	cfg.TailBytes = 64 << 20
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	for range 24 {
		p := make([]byte, 1<<19)
		_, _ = rand.Read(p) // so that it is not compressed
		o.appendPayload(p, false)
	}
	url, ok := relaypb.SubscribeURL("/", &relaypb.Subscribe{Tiles: []string{tileA.String()}})
	require.True(t, ok)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(8<<10))
	_, err = conn.Write([]byte("GET " + url + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n" +
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
		"Sec-WebSocket-Protocol: " + relaypb.Subprotocol + "\r\n\r\n"))
	require.NoError(t, err)
	buf, ended := make([]byte, 16<<10), time.Time{}
	for start := time.Now(); ended.IsZero() || len(s.allClients()) > 0; time.Sleep(100 * time.Millisecond) {
		if _, err := conn.Read(buf); err != nil {
			break
		}
		if ended.IsZero() && time.Since(start) > time.Second {
			require.Equal(t, 1, s.EndTile(tileA))
			ended = time.Now()
		}
		require.True(t, ended.IsZero() || time.Since(ended) < 6*time.Second, "it is still there") // of 70 s
	}
}
