//go:build linux

package natsfanout_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// The benchmarks of this file give the inputs of the calculation in docs/decisions/06-broker-tier.md. What they measure
// runs in a process of its own, so that its CPU is not mixed with that of the clients.

// childEnv makes this test binary a server instead: "broker", or "relay <URL of the broker>".
const childEnv = "TILEFENCE_BENCH_CHILD"

func init() {
	role, broker, _ := strings.Cut(os.Getenv(childEnv), " ")
	switch role {
	case "broker":
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
			MaxPayload: 2 * fence.MaxPayload})
		if err != nil {
			panic(err)
		}
		s.Start()
		s.ReadyForConnections(patience)
		fmt.Println(s.ClientURL())
	case "relay":
		fmt.Println(serveRelay(broker))
	default:
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has ended
	os.Exit(0)
}

// serveRelay starts a relay on the broker and returns its address.
func serveRelay(broker string) string {
	f, err := natsfanout.Open([]string{broker}, &natsfanout.Config{Logger: quiet})
	if err != nil {
		panic(err)
	}
	store := memfence.New()
	r, err := relay.New(f, memstream.New(store), relay.Public,
		&relay.Config{CheckInterval: time.Hour, PingInterval: time.Hour})
	if err != nil {
		panic(err)
	}
	go func() { _ = r.Run(context.Background()) }()
	return httptest.NewServer(r.Handler()).Listener.Addr().String()
}

// child runs this test binary in a role until the end of the benchmark, and returns what it prints first and its CPU.
func child(b *testing.B, role string) (address string, cpu func() time.Duration) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	return strings.TrimSpace(line), func() time.Duration { return cpuOf(b, cmd.Process.Pid) }
}

// cpuOf is what a process has used, to 10 ms.
func cpuOf(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	require.NoError(b, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(f)
		require.NoError(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// frames returns a chain of frames of the tile with payloads of so many bytes.
func frames(tile fence.TileID, n, payload int) (all [][]byte) {
	var last fence.Position
	for range n {
		e := fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindBatch, Prev: last, Tick: fence.Tick(last.Seq + 1),
			Position: fence.Position{Epoch: 1, Seq: last.Seq + 1}, At: time.Now(), Payload: make([]byte, payload)})
		all = append(all, e.Frame)
		last = e.Position
	}
	return all
}

// BenchmarkBrokerNode sends frames of one tile through one node to so many relays; an iteration ends when each has it.
func BenchmarkBrokerNode(b *testing.B) {
	for _, size := range []int{600, 16 << 10} {
		for _, relays := range []int{4, 20, 100} {
			b.Run(fmt.Sprintf("bytes=%d/relays=%d", size, relays), func(b *testing.B) {
				url, cpu := child(b, "broker")
				tile := anyTile()
				var got atomic.Int64
				for range relays {
					stop, err := open(b, nil, url).Subscribe(b.Context(), tile, func([]byte) { got.Add(1) })
					require.NoError(b, err)
					defer stop()
				}
				pub := open(b, natsfanout.Config{}.With(natsfanout.Tuning{Timeout: patience}), url)
				data := make([]byte, size)
				used := cpu()
				b.ResetTimer()
				for i := range b.N {
					_, err := pub.Publish(b.Context(), []fanout.Message{{Tile: tile, Data: data}})
					require.NoError(b, err)
					for got.Load() < int64((i+1)*relays) {
						time.Sleep(20 * time.Microsecond)
					}
				}
				b.StopTimer()
				report(b, "relays", relays*b.N, size, cpu()-used)
			})
		}
	}
}

// report gives what one message to one subscriber costs, and how many subscribers of a tile that ticks twice a second
// take one core, and one link of 1 Gbit/s.
func report(b *testing.B, subscribers string, messages, size int, cpu time.Duration) {
	const ticks, link = 2, 125e6 // a second; bytes a second
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(messages), "cpu-ns/message")
	b.ReportMetric(float64(messages)/cpu.Seconds()/ticks, subscribers+"/core")
	b.ReportMetric(link/float64(size)/ticks, subscribers+"/Gbit")
	b.ReportMetric(float64(messages)/seconds, "messages/s")
	b.ReportMetric(float64(messages*size)/seconds/1e6, "MB/s")
	b.ReportMetric(cpu.Seconds()/seconds, "cores")
}

// BenchmarkRelayNode sends frames of one tile through a broker to one relay with so many watchers; an iteration ends
// when each watcher has it.
func BenchmarkRelayNode(b *testing.B) {
	for _, size := range []int{600, 16 << 10} {
		for _, watchers := range []int{1000, 4000} {
			b.Run(fmt.Sprintf("bytes=%d/watchers=%d", size, watchers), func(b *testing.B) {
				url, _ := child(b, "broker")
				addr, cpu := child(b, "relay "+url)
				tile := anyTile()
				var got atomic.Int64
				for range watchers {
					conn := watch(b, addr, tile)
					defer func() { _ = conn.Close() }()
					go count(conn, &got)
				}
				quiet := func() int64 { // what has come when nothing more comes
					for {
						before := got.Load()
						time.Sleep(500 * time.Millisecond)
						if got.Load() == before && before > 0 {
							return before
						}
					}
				}
				pub := open(b, natsfanout.Config{}.With(natsfanout.Tuning{Timeout: patience}), url)
				chain := frames(tile, b.N+1, size)
				send := func(data []byte) {
					_, err := pub.Publish(b.Context(), []fanout.Message{{Tile: tile, Data: data}})
					require.NoError(b, err)
				}
				synced := quiet()
				send(chain[0])
				start := quiet()
				message := (start - synced) / int64(watchers) // grows by a byte now and then
				used := cpu()
				b.ResetTimer()
				for i, data := range chain[1:] {
					send(data)
					for got.Load()-start < int64(i+1)*int64(watchers)*message {
						time.Sleep(20 * time.Microsecond)
					}
				}
				b.StopTimer()
				report(b, "watchers", watchers*b.N, int(message), cpu()-used)
			})
		}
	}
}

// watch connects and subscribes with the fewest bytes.
func watch(b *testing.B, addr string, tile fence.TileID) net.Conn {
	conn, err := net.Dial("tcp", addr)
	require.NoError(b, err)
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: %s\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", relaypb.Subprotocol)
	require.NoError(b, err)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	require.NoError(b, err)
	require.Equal(b, http.StatusSwitchingProtocols, resp.StatusCode)
	body, err := relaypb.Binary.Append(nil, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{
		Subscribe: &relaypb.Subscribe{Tiles: []string{tile.String()}}}})
	require.NoError(b, err)
	_, err = conn.Write(append([]byte{0x82, 0x80 | byte(len(body)), 0, 0, 0, 0}, body...)) // masked with zeros
	require.NoError(b, err)
	return conn
}

// count reads a socket to the end.
func count(conn net.Conn, got *atomic.Int64) {
	buf := make([]byte, 8<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		got.Add(int64(n))
	}
}
