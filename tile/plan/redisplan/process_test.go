package redisplan_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/plantest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// Of a worker that is a process of its own: the store's name, how long its calls take (or from and to), its slots, and
// the nodes' addresses.
const envWorker = "TILEFENCE_TEST_PLAN_WORKER"

// workerProcess works until it is asked to end. It writes a line for each call that begins, and ignores the context of
// calls for entities named deaf.
func workerProcess() int {
	var name, takes, addrs string
	var slots int
	_, err := fmt.Sscan(os.Getenv(envWorker), &name, &takes, &slots, &addrs)
	from, to, spread := strings.Cut(takes, "-")
	shortest, err2 := time.ParseDuration(from)
	longest := shortest
	if spread && err2 == nil {
		longest, err2 = time.ParseDuration(to)
	}
	hangAfter := 10 * time.Second
	if spread {
		hangAfter += longest
	}
	client := redis.NewClusterClient(redisfence.Options(strings.Split(addrs, ",")...))
	s, err3 := redisplan.New(client, &redisplan.Config{Name: name})
	planner := func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
		fmt.Println("began", r.Entity)
		d := shortest + rand.N(longest-shortest+1)
		used := plan.Usage{Model: "m", Input: 1}
		if r.Entity == "deaf" {
			time.Sleep(d)
			return []byte("by the process"), used, nil
		}
		select {
		case <-ctx.Done():
			return nil, plan.Usage{}, context.Cause(ctx)
		case <-time.After(d):
			return []byte("by the process"), used, nil
		}
	}
	w, err4 := plan.NewWorker(s, plan.PlannerFunc(planner),
		&plan.WorkerConfig{Slots: slots, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
			HangAfter: hangAfter})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for _, e := range []error{err, err2, err3, err4} {
		if e != nil {
			fmt.Fprintln(os.Stderr, e)
			return 1
		}
	}
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is a worker in a process of its own.
type process struct {
	cmd   *exec.Cmd
	lines chan string // what it writes
}

func startWorker(t testing.TB, name, takes string, slots int, addrs []string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(self), lines: make(chan string, 10000)}
	p.cmd.Env = append(os.Environ(),
		fmt.Sprint(envWorker, "=", name, " ", takes, " ", slots, " ", strings.Join(addrs, ",")))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go p.read(out)
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(devstack.GoOn)
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) read(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		select {
		case p.lines <- lines.Text():
		default: // a benchmark does not read them
		}
	}
	close(p.lines)
}

// await waits for a line with a text.
func (p *process) await(t testing.TB, text string) string {
	t.Helper()
	for limit := time.After(time.Minute); ; {
		select {
		case line, ok := <-p.lines:
			require.True(t, ok, "it has ended without %q", text)
			if strings.Contains(line, text) {
				return line
			}
		case <-limit:
			require.Fail(t, "it did not write "+text)
		}
	}
}

// here is a worker of this process, which answers at once.
func here(t testing.TB, s plan.Store) *plan.Worker {
	t.Helper()
	w, err := plan.NewWorker(s, plan.PlannerFunc(func(context.Context, plan.Request) ([]byte, plan.Usage, error) {
		return []byte("by the other"), plan.Usage{Model: "m", Input: 2}, nil
	}), &plan.WorkerConfig{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return w
}

// awaitAnswer waits for the answer of the bench's tile, and returns how long it took.
func awaitAnswer(b *plantest.Bench, body string) time.Duration {
	b.Helper()
	began := time.Now()
	waittest.Until(b, func() bool {
		answers := b.Turn(plan.Turn{}).Answers
		if len(answers) == 0 {
			return false
		}
		require.Equal(b, body, string(answers[0].Body))
		return true
	}, time.Minute, 10*time.Millisecond)
	return time.Since(began)
}

// oneEvent: whatever happened, there is one result and one usage event.
func oneEvent(b *plantest.Bench, input int64) {
	b.Helper()
	events := b.Events()
	require.Len(b, events, 1)
	require.Equal(b, input, events[0].Usage.Input)
}

// TestWorkerKilled: its request runs again elsewhere within the lease and a poll.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	addrs := stacktest.Redis(t)
	s := open(t, addrs)
	b, p := plantest.NewBench(t, s), startWorker(t, s.Name(), "1h", 4, addrs)
	b.Ask(b.PlayerRequest("ship"))
	p.await(t, "began ship")
	here(t, s)
	require.NoError(t, p.cmd.Process.Kill())
	took := awaitAnswer(b, "by the other")
	t.Logf("the request of a killed worker ran again after %v", took.Round(time.Millisecond))
	oneEvent(b, 2)
}

// TestWorkerPaused: a worker that was stopped for longer than its lease stores nothing when it goes on.
func TestWorkerPaused(t *testing.T) {
	t.Parallel()
	addrs := stacktest.Redis(t)
	s := open(t, addrs)
	b, p := plantest.NewBench(t, s), startWorker(t, s.Name(), "500ms", 4, addrs)
	b.Ask(b.Request("deaf"))
	p.await(t, "began deaf")
	require.NoError(t, p.cmd.Process.Signal(devstack.Pause))
	here(t, s)
	awaitAnswer(b, "by the other")
	require.NoError(t, p.cmd.Process.Signal(devstack.GoOn))
	p.await(t, "the result of a lost claim was refused")
	awaitAnswer(b, "by the other")
	oneEvent(b, 2)
}

// TestWorkerHangs: a call that goes on for ever, and does not look at its context, loses its claim. Its process has
// no other slot, or it could be the one that runs the request again.
func TestWorkerHangs(t *testing.T) {
	t.Parallel()
	addrs := stacktest.Redis(t)
	s := open(t, addrs)
	b, p := plantest.NewBench(t, s), startWorker(t, s.Name(), "1h", 1, addrs)
	b.Ask(b.Request("deaf"))
	p.await(t, "began deaf")
	here(t, s)
	took := awaitAnswer(b, "by the other")
	t.Logf("the request of a call that hangs for 10 s ran again after %v", took.Round(time.Millisecond))
	oneEvent(b, 2)
}

// TestWorkerTerminated: it takes nothing more, finishes what runs, says so, and ends well.
func TestWorkerTerminated(t *testing.T) {
	t.Parallel()
	addrs := stacktest.Redis(t)
	s := open(t, addrs)
	b, p := plantest.NewBench(t, s), startWorker(t, s.Name(), "3s", 4, addrs)
	b.Ask(b.PlayerRequest("ship"))
	p.await(t, "began ship")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Contains(t, p.await(t, "worker drains"), "running=1")
	b.Ask(b.PlayerRequest("late"))
	p.await(t, "worker is drained")
	require.NoError(t, p.cmd.Wait())
	awaitAnswer(b, "by the process")
	oneEvent(b, 1)
	require.Equal(t, "late", b.Claim(5)[0].Entity)
}
