//go:build linux

package benchmark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// envGateway makes this test binary a gateway whose tiles are a fake.
const envGateway = "TILEFENCE_BENCH_GATEWAY"

// The gateway of BenchmarkOverload.
const (
	overloadTick = 100 * time.Millisecond
	overloadWork = 150 * time.Microsecond // of processor time for a movement, beside what a gateway does by itself
)

// ticking resolves movements at the next tick.
type ticking struct {
	tick atomic.Pointer[chan struct{}]
}

func newTicking() *ticking {
	t := &ticking{}
	next := make(chan struct{})
	t.tick.Store(&next)
	go func() {
		for range time.Tick(overloadTick) {
			next := make(chan struct{})
			close(*t.tick.Swap(&next))
		}
	}()
	return t
}

func (t *ticking) Move(ctx context.Context, _ tile.Intent) (tile.Result, error) {
	for began := time.Now(); time.Since(began) < overloadWork; {
	}
	select {
	case <-*t.tick.Load():
		return tile.Result{Outcome: stream.Applied}, nil
	case <-ctx.Done():
		return tile.Result{}, context.Cause(ctx)
	}
}

func (t *ticking) Act(context.Context, admission.Action) (admission.Artifact, error) {
	return admission.Artifact{}, admission.ErrDeclined
}

func (t *ticking) Outcome(context.Context, string, string) (admission.Artifact, error) {
	return admission.Artifact{}, admission.ErrUnknownAction
}

// serveGateway is the child process.
func serveGateway(string) error {
	runtime.GOMAXPROCS(1) // the players need a processor, too
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h, err := gatewayws.New(newTicking(), func(r *http.Request) (session.Identity, error) {
		return session.Identity{Actor: r.URL.Query().Get("actor")}, nil
	}, &gatewayws.Config{MaxClients: 25_000})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	speaker()(nodeEvent{What: "listening", Who: l.Addr().String()})
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		return err
	}
}

// asker is a player of BenchmarkOverload.
type asker struct {
	socket crowd.Socket
	id     int
	began  time.Time // of the movement under way; zero: there is none
	due    time.Time // of the next
	held   time.Time // until then the gateway wants none
}

// askers ask for more than a gateway can do.
type askers struct {
	all    []*asker
	poll   int
	buffer [64 << 10]byte
	text   []byte

	answered, refused    int // so far
	toOutcome, toRefusal *figures.Histogram
}

func gatherAskers(tb testing.TB, n int, address string) *askers {
	s := &askers{all: make([]*asker, n), toOutcome: figures.NewHistogram(), toRefusal: figures.NewHistogram()}
	var err error
	s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	require.NoError(tb, err)
	var mu sync.Mutex
	sem := make(chan struct{}, 16)
	_, err = crowd.Gather(n, time.Second, func(i int) error {
		sem <- struct{}{}
		defer func() { <-sem }()
		c, err := crowd.Dial(tb.Context(), address, "/?actor="+strconv.Itoa(i), gatewayws.Subprotocol)
		if err != nil {
			return err
		}
		a := &asker{}
		if a.socket, err = c.Detach(); err != nil {
			return err
		}
		if err = unix.SetNonblock(a.socket.FD, true); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		s.all[i] = a
		readable := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		return unix.EpollCtl(s.poll, unix.EPOLL_CTL_ADD, a.socket.FD, &readable)
	})
	require.NoError(tb, err)
	return s
}

// measured is what players met in a time.
type measured struct {
	answered, refused  int
	outcomes, refusals figures.Sample // how long they took
}

// play asks for so many movements a second, all players together, for a time. A player asks for none while one is under
// way, and while the gateway wants none.
func (s *askers) play(tb testing.TB, perSecond float64, length time.Duration) (m measured) {
	tb.Helper()
	every := time.Duration(float64(len(s.all)) / perSecond * float64(time.Second))
	now := time.Now()
	for i, a := range s.all {
		a.due = now.Add(every * time.Duration(i) / time.Duration(len(s.all)))
	}
	events := make([]unix.EpollEvent, 512)
	next := 0
	for end := now.Add(length); now.Before(end); now = time.Now() {
		n, err := unix.EpollWait(s.poll, events, 1)
		if !errors.Is(err, unix.EINTR) {
			require.NoError(tb, err)
		}
		for _, e := range events[:max(n, 0)] {
			a := s.all[e.Fd]
			require.NoError(tb, a.socket.Read(s.buffer[:], func(body []byte) error { return s.take(a, body) }))
		}
		for now = time.Now(); !now.Before(s.all[next].due); next = (next + 1) % len(s.all) {
			a := s.all[next]
			a.due = a.due.Add(every)
			require.NoError(tb, s.ask(a, now))
		}
	}
	m.answered, m.refused = s.answered, s.refused
	s.answered, s.refused = 0, 0
	m.outcomes, m.refusals = s.toOutcome.Cut(), s.toRefusal.Cut()
	return m
}

// askerPatience is how long a player waits for an answer.
const askerPatience = 3 * time.Second

func (s *askers) ask(a *asker, now time.Time) error {
	if !a.began.IsZero() && now.Sub(a.began) <= askerPatience || now.Before(a.held) {
		return nil
	}
	a.id++
	a.began = now
	s.text = fmt.Appendf(s.text[:0], `{"id":"%d","tile":"1","kind":"move","within":%d,"body":"AAE="}`, a.id,
		askerPatience.Milliseconds())
	return a.socket.Send(true, s.text)
}

func (s *askers) take(a *asker, body []byte) error {
	var answer struct {
		ID    string
		Error *struct {
			Code       gatewayws.Code
			RetryAfter int64 `json:"retry_after"`
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	if answer.ID != strconv.Itoa(a.id) {
		return nil // it came too late
	}
	now := time.Now()
	took := now.Sub(a.began)
	a.began = time.Time{}
	switch e := answer.Error; {
	case e == nil:
		s.answered++
		s.toOutcome.Record(took)
	case e.Code == gatewayws.CodeOverloaded:
		s.refused++
		s.toRefusal.Record(took)
		after := time.Duration(e.RetryAfter) * time.Millisecond
		a.held = now.Add(after + rand.N(after/2+1))
	default:
		return errors.New(string(body))
	}
	return nil
}

// carries finds how many movements a second the gateway carries: it asks for more until fewer are answered, twice.
func (s *askers) carries(tb testing.TB, step time.Duration) (perSecond float64) {
	tb.Helper()
	for asked, missed := 500.0, 0; missed < 2; asked *= 1.25 {
		got := float64(s.play(tb, asked, step).answered) / step.Seconds()
		if missed++; got >= 0.8*asked {
			missed = 0
		}
		perSecond = max(perSecond, got)
	}
	return perSecond
}

// overloadPlan is for how long BenchmarkOverload looks.
type overloadPlan struct {
	players      int
	rounds       int           // over all loads, so that what else the machine does meanwhile meets all of them
	settle, load time.Duration // of each load in a round: before it is measured, and while it is
	storm        time.Duration // at three times, before the load goes back
	recovery     time.Duration // at most
}

// overloadLoads are over what the gateway carries.
var overloadLoads = []float64{1, 1.5, 2, 3}

// overloadFigures are those of BenchmarkOverload.
type overloadFigures struct {
	carries         float64 // movements a second
	least           float64 // answered at a load, over what was asked for or the best of all loads: the least
	outcome, refuse float64 // ms, p99 at three times
	refused         float64 // a second at three times
	recovery        time.Duration
	memory          float64 // at three times over once
}

func playOverload(tb testing.TB, how overloadPlan) (f overloadFigures) {
	tb.Helper()
	gateway := launch(tb, envGateway, struct{}{})
	s := gatherAskers(tb, how.players, gateway.await(tb, "listening").Who)
	f.carries = s.carries(tb, how.settle+how.load)
	calm := 0.8 * f.carries
	answered, refused := make([]float64, len(overloadLoads)), 0.0
	memory := make([]float64, len(overloadLoads))
	var outcomes, refusals []figures.Sample // at three times
	for range how.rounds {
		for i, times := range overloadLoads {
			s.play(tb, times*f.carries, how.settle)
			m := s.play(tb, times*f.carries, how.load)
			answered[i] += float64(m.answered)
			memory[i] = residentMiB(tb, gateway.cmd.Process.Pid)
			if i == len(overloadLoads)-1 {
				outcomes, refusals = append(outcomes, m.outcomes), append(refusals, m.refusals)
				refused += float64(m.refused)
			}
		}
		s.play(tb, calm, 2*how.settle)
	}
	tb.Logf("answered at %v times %.0f a second: %.0f", overloadLoads, f.carries, answered)
	best := slices.Max(answered)
	f.least = 1
	for i, times := range overloadLoads {
		asked := times * f.carries * float64(how.rounds) * how.load.Seconds()
		f.least = min(f.least, answered[i]/min(asked, best))
	}
	f.memory = memory[len(memory)-1] / memory[0]
	f.refused = refused / (float64(how.rounds) * how.load.Seconds())
	f.outcome, f.refuse = p99(tb, outcomes...), p99(tb, refusals...)
	f.recovery = s.recover(tb, f.carries, how)
	return f
}

// recover is how long the players meet the figures of 0.8 times what the gateway carries no more, after they have asked
// for three times that.
func (s *askers) recover(tb testing.TB, carries float64, how overloadPlan) (took time.Duration) {
	tb.Helper()
	const look = 500 * time.Millisecond
	s.play(tb, 0.8*carries, how.settle)
	before := s.play(tb, 0.8*carries, how.load)
	s.play(tb, 3*carries, how.storm)
	for took < how.recovery {
		took += look
		m := s.play(tb, 0.8*carries, look)
		least := 0.9 * float64(before.answered) * look.Seconds() / how.load.Seconds()
		if m.refused == 0 && float64(m.answered) >= least && p99(tb, m.outcomes) <= 2*p99(tb, before.outcomes) {
			break
		}
	}
	return took
}

func p99(tb testing.TB, samples ...figures.Sample) float64 {
	tb.Helper()
	all := make([]figures.Set, len(samples))
	for i, s := range samples {
		all[i] = figures.Set{Histograms: map[string]figures.Sample{"": s}}
	}
	sum, err := figures.Sum(all...)
	require.NoError(tb, err)
	l, err := sum.Histograms[""].Latency()
	require.NoError(tb, err)
	return l.P99
}

// residentMiB is the memory of a process that is resident.
func residentMiB(tb testing.TB, pid int) float64 {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(tb, err)
	var all, resident int
	_, err = fmt.Sscan(string(text), &all, &resident)
	require.NoError(tb, err)
	return float64(resident*os.Getpagesize()) / (1 << 20)
}

// BenchmarkOverload is a gateway on one processor of which 2,000 players ask for 1, 1.5, 2 and 3 times what it carries
// in this run, and do what it tells them when it refuses. TILEFENCE_BENCH_STORM is how long three times lasts before
// the load goes back to 0.8; 10 s by default.
func BenchmarkOverload(b *testing.B) {
	storm := 10 * time.Second
	if text := os.Getenv("TILEFENCE_BENCH_STORM"); text != "" {
		var err error
		storm, err = time.ParseDuration(text)
		require.NoError(b, err, "TILEFENCE_BENCH_STORM")
	}
	for b.Loop() {
		f := playOverload(b, overloadPlan{players: 2000, rounds: 4, settle: time.Second, load: 2 * time.Second,
			storm: storm, recovery: 30 * time.Second})
		b.ReportMetric(f.carries, "carries/s")
		b.ReportMetric(f.least, "least/best")
		b.ReportMetric(f.refused, "refused/s")
		b.ReportMetric(f.refuse, "refusal-p99-ms")
		b.ReportMetric(f.outcome, "outcome-p99-ms")
		b.ReportMetric(f.recovery.Seconds(), "recovery-s")
		b.ReportMetric(f.memory, "x-MiB")
	}
}

// TestOverloadIsMeasured plays BenchmarkOverload in small. What it measures depends on what else the machine does.
func TestOverloadIsMeasured(t *testing.T) {
	f := playOverload(t, overloadPlan{players: 300, rounds: 1, settle: 200 * time.Millisecond,
		load: 300 * time.Millisecond, storm: 500 * time.Millisecond, recovery: 2 * time.Second})
	require.Positive(t, f.carries)
	require.Positive(t, f.memory)
	require.Positive(t, f.recovery)
}
