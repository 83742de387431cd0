//go:build unix

package relay

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/cputime"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// counting reads a socket to the end and counts.
func counting(conn net.Conn, got *atomic.Int64) {
	buf := make([]byte, 8<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		got.Add(int64(n))
	}
}

func waitFor(got *atomic.Int64, want int64) {
	for got.Load() < want {
		time.Sleep(20 * time.Microsecond)
	}
}

// BenchmarkBroadcast sends one batch with a payload of 500 bytes to all clients of a tile; an iteration
// ends when every socket has given it up. "socket" is the floor: the same bytes, written to as many bare
// sockets by one goroutine each ("goroutines") or by one for all ("loop"), in the same run.
func BenchmarkBroadcast(b *testing.B) {
	for _, n := range []int{100, 1000, 4000} {
		b.Run(fmt.Sprintf("relay/%d", n), func(b *testing.B) { benchRelay(b, n) })
		b.Run(fmt.Sprintf("socket-goroutines/%d", n), func(b *testing.B) { benchSockets(b, n, true) })
		b.Run(fmt.Sprintf("socket-loop/%d", n), func(b *testing.B) { benchSockets(b, n, false) })
	}
}

func benchRelay(b *testing.B, n int) {
	w := newWorld(b)
	cfg := still()
	cfg.PingInterval = time.Hour // these clients answer nothing
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	var got atomic.Int64
	for range n {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
		require.NoError(b, err)
		defer conn.Close()
		shake(b, conn)
		go counting(conn, &got)
	}
	eventually(b, func() bool { return s.Stats().SyncsOut == uint64(n) }, "all are synced")
	time.Sleep(50 * time.Millisecond)
	payload := make([]byte, 500)
	frames := make([][]byte, b.N)
	for i := range frames {
		f := o.appendPayload(payload, false)
		frames[i] = f.Frame
	}
	size := int64(len((&batch{Entry: decoded(b, frames[0])}).bytes(nil, form(relaypb.Binary), fence.AreaSet{})))
	start := got.Load()
	used := cputime.Used()
	b.ResetTimer()
	for i, data := range frames {
		w.fan.publish(tileA, data)
		waitFor(&got, start+int64(i+1)*int64(n)*(size-2)) // numbers grow by a byte now and then
	}
	b.StopTimer()
	report(b, n, cputime.Used()-used)
}

func decoded(b *testing.B, data []byte) fence.Entry {
	e, err := fence.DecodeEntry(data)
	require.NoError(b, err)
	return e.Watched(fence.AreaSet{})
}

func report(b *testing.B, n int, used time.Duration) {
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/float64(n), "cpu-ns/client")
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// shake does a handshake and subscribes to tileA with the fewest bytes.
func shake(b *testing.B, conn net.Conn) {
	_, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: %s\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		relaypb.Subprotocol)
	require.NoError(b, err)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	require.NoError(b, err)
	require.Equal(b, http.StatusSwitchingProtocols, resp.StatusCode)
	body, err := relaypb.Binary.Append(nil, subscribeTo(tileA.String()))
	require.NoError(b, err)
	frame := append([]byte{0x82, 0x80 | byte(len(body)), 0, 0, 0, 0}, body...) // masked with zeros
	_, err = conn.Write(frame)
	require.NoError(b, err)
}

func benchSockets(b *testing.B, n int, goroutines bool) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	var got atomic.Int64
	var ends []net.Conn
	for range n {
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(b, err)
		defer conn.Close()
		end, err := ln.Accept()
		require.NoError(b, err)
		defer end.Close()
		ends = append(ends, end)
		go counting(conn, &got)
	}
	data := make([]byte, 575)
	var calls []chan []byte
	if goroutines {
		for _, end := range ends {
			c := make(chan []byte, 1)
			calls = append(calls, c)
			go func() {
				for d := range c {
					_, _ = end.Write(d)
				}
			}()
		}
	}
	used := cputime.Used()
	b.ResetTimer()
	for i := range b.N {
		if goroutines {
			for _, c := range calls {
				c <- data
			}
		} else {
			for _, end := range ends {
				_, _ = end.Write(data)
			}
		}
		waitFor(&got, int64(i+1)*int64(n)*int64(len(data)))
	}
	b.StopTimer()
	for _, c := range calls {
		close(c)
	}
	report(b, n, cputime.Used()-used)
}

// BenchmarkCommitToClient is the whole way in one process: clients that watch three of sixty tiles each,
// which tick twice a second, through memfanout, the relay, loopback sockets and relayclient, decoded and
// verified. It takes ten seconds whatever b.N; run it with -benchtime=1x.
func BenchmarkCommitToClient(b *testing.B) {
	for _, clients := range []int{1000, 3000} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) { benchCommit(b, clients) })
	}
}

func benchCommit(b *testing.B, clients int) {
	const tiles, each, ticks = 60, 3, 20
	w := newWorld(b)
	broker := memfanout.New()
	r, err := New(broker, memstream.New(w.store), Public, nil)
	require.NoError(b, err)
	ts := httptest.NewServer(r.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()

	var owners []*owner
	for i := range tiles {
		o := w.claim(tileA+fence.TileID(i), 1)
		o.snapshot()
		owners = append(owners, o)
	}
	sent := sync.Map{} // position: time published
	var mu sync.Mutex
	var took []time.Duration
	url := "ws" + strings.TrimPrefix(ts.URL, "http")
	all := make([]*relayclient.Client, clients)
	for i := range all {
		all[i], err = relayclient.Dial(ctx, url, &relayclient.Config{Frame: func(f fence.Entry) {
			var d time.Duration // none if the comparison with the store was faster than the publisher
			if at, ok := sent.Load(f.Position); ok {
				d = time.Since(at.(time.Time))
			}
			mu.Lock()
			took = append(took, d)
			mu.Unlock()
		}})
		require.NoError(b, err)
		for j := range each {
			require.NoError(b, all[i].Subscribe(ctx, owners[(i*each+j)%tiles].tile))
		}
	}
	eventually(b, func() bool { return r.Stats().SyncsOut == uint64(clients*each) }, "all are synced")

	var group sync.WaitGroup
	b.ResetTimer()
	for i, o := range owners {
		group.Go(func() { // the phases are spread, as a host spreads them
			time.Sleep(time.Duration(i) * 500 * time.Millisecond / tiles)
			for range ticks {
				next := time.Now().Add(500 * time.Millisecond)
				f := o.appendPayload(make([]byte, 500), false)
				sent.Store(f.Position, time.Now())
				_, _ = broker.Publish(ctx, []fanout.Message{{Tile: o.tile, Data: f.Frame}})
				time.Sleep(time.Until(next))
			}
		})
	}
	group.Wait()
	want := clients * each * ticks
	eventually(b, func() bool { mu.Lock(); defer mu.Unlock(); return len(took) == want },
		"every client has every batch")
	b.StopTimer()
	slices.Sort(took)
	at := func(p float64) float64 { return float64(took[int(p*float64(len(took)-1))].Microseconds()) / 1000 }
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "max-ms")
	b.ReportMetric(float64(want)/10, "frames/s")
	require.Zero(b, r.Stats().Gaps)
	require.Zero(b, r.Stats().SlowDrops)
	for _, c := range all {
		_ = c.Close()
	}
	cancel()
	require.NoError(b, <-ran)
	ts.Close()
}

// BenchmarkDeliver is the relay's own part of a broadcast: decode, verify, judge, encode, and queue to
// clients that have no sockets.
func BenchmarkDeliver(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld(b)
			s := w.serve(still())
			o := w.claim(tileA, 1)
			o.snapshot()
			var all []*client
			for range n {
				c, _ := s.testJoin(tileA)
				all = append(all, c)
			}
			h := s.hubs.open(tileA, "")
			eventually(b, func() bool { return s.Stats().Repairs > 0 }, "loaded")
			frames := make([][]byte, b.N)
			for i := range frames {
				f := o.appendPayload(make([]byte, 500), false)
				frames[i] = f.Frame
			}
			for _, c := range all {
				c.drain()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i, data := range frames {
				h.deliver(data)
				if i%3 == 0 { // before one is shed
					b.StopTimer()
					for _, c := range all {
						c.drain()
					}
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(s.Stats().FramesOut)/float64(b.N), "frames/op")
		})
	}
}

// BenchmarkSync encodes what a new client is sent: a snapshot of 100 KiB and 60 batches of 500 bytes.
func BenchmarkSync(b *testing.B) {
	l := line{}
	for range 120 {
		e := l.next(1, 'a')
		e.Payload = make([]byte, 500)
		l = append(l, e)
	}
	rec := l.recovery(60)
	rec.Snapshot.Blob = make([]byte, 100<<10)
	v := &view{}
	v.adopt(rec, false)
	for _, e := range []relaypb.Encoding{relaypb.Binary, relaypb.JSON} {
		b.Run(e.Subprotocol(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parts := takeScratch()
				s, _ := v.sync(parts, fence.Position{}, fence.AreaSet{})
				b.SetBytes(int64(len(prepare(form(e), syncMessage(tileA, s)))))
				parts.free()
			}
		})
	}
}

// BenchmarkDecode reads a client's Subscribe of ten tiles, and a relay's Frame of 500 bytes.
func BenchmarkDecode(b *testing.B) {
	var names []string
	for i := range 10 {
		names = append(names, (tileA + fence.TileID(i)).String())
	}
	e := line{}.next(1, 'a')
	e.Payload = make([]byte, 500)
	for _, enc := range []relaypb.Encoding{relaypb.Binary, relaypb.JSON} {
		ask, err := enc.Append(nil, subscribeTo(names...))
		require.NoError(b, err)
		frame, err := enc.Append(nil, &relaypb.ServerMessage{Tile: tileA.String(),
			Body: &relaypb.ServerMessage_Frame{Frame: relaypb.FromEntry(&e)}})
		require.NoError(b, err)
		kind := byte(socket.OpBinary)
		if enc == relaypb.JSON {
			kind = socket.OpText
		}
		b.Run("subscribe/"+enc.Subprotocol(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeInbound(enc, kind, ask); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("frame/"+enc.Subprotocol(), func(b *testing.B) {
			b.ReportAllocs()
			m := &relaypb.ServerMessage{}
			for b.Loop() {
				if err := enc.Decode(frame, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
