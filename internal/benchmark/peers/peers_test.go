package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/benchmark/crowd"
)

const (
	envServer  = "TILEFENCE_BENCH_PEER" // makes this test binary the server of that name
	envClients = "TILEFENCE_BENCH_CLIENTS"

	interval = 500 * time.Millisecond
	settle   = time.Second // after the last client joined
	joinRate = 2_500       // clients a second
	warmUp   = 50          // clients that make what all share, before memory is measured
)

func TestMain(m *testing.M) {
	if name, is := os.LookupEnv(envServer); is {
		if err := serve(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// report is a line that a server prints: what it used so far, and what it holds.
type report struct {
	Addr     string
	CPU      time.Duration
	Resident int // bytes of the process in memory
	Held     int // of them, heap and stacks after a collection; measured only when nothing is published
	Failed   string
}

// serve is the child process. It answers each line of its input with a report: "stat" at once, a number after it has
// published so many messages.
func serve(name string) error {
	i := slices.IndexFunc(servers, func(s server) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("no server is called %q", name)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	handler, publish, err := servers[i].start(ctx)
	if err != nil {
		return err
	}
	listening := httptest.NewServer(handler)
	defer listening.Close()
	out := json.NewEncoder(os.Stdout)
	say := func(r report) error {
		r.Addr = listening.Listener.Addr().String()
		return out.Encode(r)
	}
	if err := say(report{}); err != nil {
		return err
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		var answer report
		if n, err := strconv.Atoi(orders.Text()); err == nil {
			answer, err = publishing(publish, n)
			if err != nil {
				answer.Failed = err.Error()
			}
		} else {
			answer = holding()
		}
		if err := say(answer); err != nil {
			return err
		}
	}
	return nil
}

// publishing sends messages at the interval, and says what that took until the interval after the last was over.
func publishing(publish func([]byte) error, n int) (r report, err error) {
	before := used()
	turn := time.NewTicker(interval)
	defer turn.Stop()
	for range n {
		if err := publish(newMessage(time.Now())); err != nil {
			return r, err
		}
		<-turn.C
	}
	r.CPU = used() - before
	r.Resident, err = resident()
	return r, err
}

// holding says what the process holds now.
func holding() (r report) {
	r.Resident, _ = resident()
	for range 3 { // stacks shrink by half at each collection
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Held = int(m.HeapInuse + m.StackInuse)
	return r
}

func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of this process it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the memory of this process, in bytes.
func resident() (int, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, pages int
	_, err = fmt.Sscan(string(text), &size, &pages)
	return pages * os.Getpagesize(), err
}

// child is a server's process.
type child struct {
	cmd    *exec.Cmd
	orders io.Writer
	lines  *bufio.Scanner
	addr   string
}

func launch(tb testing.TB, name string) *child {
	tb.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), envServer+"="+name)
	c.cmd.Stderr = os.Stderr
	orders, err := c.cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, c.cmd.Start())
	tb.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	c.orders, c.lines = orders, bufio.NewScanner(out)
	c.addr = c.next(tb).Addr
	return c
}

func (c *child) next(tb testing.TB) (r report) {
	tb.Helper()
	require.True(tb, c.lines.Scan(), "the server ended")
	require.NoError(tb, json.Unmarshal(c.lines.Bytes(), &r))
	require.Empty(tb, r.Failed)
	return r
}

func (c *child) ask(tb testing.TB, order string) report {
	tb.Helper()
	_, err := io.WriteString(c.orders, order+"\n")
	require.NoError(tb, err)
	return c.next(tb)
}

// clientsOf a benchmark.
func clientsOf(tb testing.TB) int {
	tb.Helper()
	text, set := os.LookupEnv(envClients)
	if !set {
		return 9_500
	}
	n, err := strconv.Atoi(text)
	require.NoError(tb, err, envClients)
	return n
}

// BenchmarkPeers has each server send 30 messages to all clients, which are in this process, and measures from before
// a message is published until each client has read it (p50-ms, p99-ms), and the server's own processor time (cores).
// KiB/conn is what a connection adds to the server's resident memory while it publishes, held-KiB/conn to its heap and
// stacks after a collection.
func BenchmarkPeers(b *testing.B) {
	for _, s := range servers {
		b.Run(s.name, func(b *testing.B) {
			for b.Loop() {
				m := play(b, s, clientsOf(b), 30)
				require.Empty(b, m.missing)
				m.report(b)
			}
		})
	}
}

// TestPeers plays BenchmarkPeers in small: every client of every server is given every message.
func TestPeers(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			m := play(t, s, 50, 3)
			require.Empty(t, m.missing)
			require.Len(t, m.took, (50+warmUp)*3)
			require.Positive(t, m.took[0])
			require.Positive(t, m.cpu)
		})
	}
}

// measured is what one server did.
type measured struct {
	clients        int             // without those of the warm-up
	took           []time.Duration // of all messages to all clients, sorted
	missing        []string        // clients that did not get all messages, and why
	cpu            time.Duration
	during         time.Duration
	resident, held int // bytes that clients added
}

func (m *measured) report(b *testing.B) {
	at := func(percent int) float64 { return float64(m.took[(len(m.took)-1)*percent/100]) / 1e6 }
	b.ReportMetric(m.cpu.Seconds()/m.during.Seconds(), "cores")
	b.ReportMetric(at(50), "p50-ms")
	b.ReportMetric(at(99), "p99-ms")
	b.ReportMetric(float64(m.resident)/1024/float64(m.clients), "KiB/conn")
	b.ReportMetric(float64(m.held)/1024/float64(m.clients), "held-KiB/conn")
	b.ReportMetric(0, "ns/op") // the length of the run: it says nothing
}

// play has clients join a server and read so many messages.
func play(tb testing.TB, s server, clients, messages int) (m measured) {
	tb.Helper()
	c := launch(tb, s.name)
	all := join(tb, s, c.addr, warmUp)
	before := c.ask(tb, "stat")
	all = append(all, join(tb, s, c.addr, clients)...)
	defer func() {
		for _, one := range all {
			one.Close()
		}
	}()
	idle := c.ask(tb, "stat")
	time.Sleep(settle)

	var mu sync.Mutex
	var reading sync.WaitGroup
	for i, one := range all {
		reading.Go(func() {
			took, err := read(one, messages)
			mu.Lock()
			defer mu.Unlock()
			m.took = append(m.took, took...)
			if err != nil {
				m.missing = append(m.missing, fmt.Sprintf("client %d after %d messages: %v", i, len(took), err))
			}
		})
	}
	done := c.ask(tb, strconv.Itoa(messages))
	give := time.AfterFunc(10*time.Second, func() { // what has not come by then does not come
		for _, one := range all {
			one.Close()
		}
	})
	reading.Wait()
	give.Stop()
	slices.Sort(m.took)
	m.clients, m.cpu, m.during = clients, done.CPU, time.Duration(messages)*interval
	m.resident, m.held = done.Resident-before.Resident, idle.Held-before.Held
	return m
}

// join connects clients.
func join(tb testing.TB, s server, addr string, n int) []*crowd.Client {
	tb.Helper()
	all := make([]*crowd.Client, n)
	_, err := crowd.Gather(n, time.Second*time.Duration(n)/joinRate, func(i int) (err error) {
		if all[i], err = crowd.Dial(tb.Context(), addr, "/", s.subprotocol); err == nil && s.greet != nil {
			err = s.greet(all[i])
		}
		return err
	})
	require.NoError(tb, err)
	return all
}

// read reads so many messages, and gives the age of each. A server may put several into one of WebSocket's.
func read(c *crowd.Client, n int) (took []time.Duration, err error) {
	for len(took) < n {
		body, err := c.Next()
		if err != nil {
			return took, err
		}
		now, all := time.Now(), len(took)
		for at := bytes.Index(body, mark); at >= 0 && len(body) >= at+messageBytes; at = bytes.Index(body, mark) {
			sent := binary.BigEndian.Uint64(body[at+len(mark):])
			took = append(took, now.Sub(time.Unix(0, int64(sent))))
			body = body[at+messageBytes:]
		}
		if len(took) == all {
			return took, fmt.Errorf("a message of %d bytes is none that was published: %q", len(body),
				body[:min(len(body), 40)])
		}
	}
	return took, nil
}
