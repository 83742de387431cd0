package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tilefence/tilefence/internal/wait"
)

const (
	stopGrace  = 3 * time.Second       // between asking a process to end and killing it
	pollEvery  = 15 * time.Millisecond // between two looks at whether a server is ready
	retryEvery = 100 * time.Millisecond
	logName    = "server.log"
	startTries = 5 // with new ports each, should other programs take them first
)

// errPortTaken marks an attempt that is worth repeating with other ports.
var errPortTaken = errors.New("a port was taken by another program")

// program is what a process runs.
type program struct {
	path string
	args []string
	env  []string       // NAME=value, besides what every program gets
	dir  string         // working directory; the log lies in it
	user *serverUser    // nil: the user of this process
	stop syscall.Signal // asks for a quick end; Stop sends it
	// orphaned is what the kernel sends when this process dies without having stopped the program.
	orphaned syscall.Signal
}

// Process is one server of a stack, for tests that break it. It keeps its name and address when it is
// restarted; the pid changes.
type Process struct {
	name    string
	addr    string
	program program
	stack   *Stack
	// ready returns nil once the server that runs as pid answers. It is called until it does.
	ready func(ctx context.Context, pid int) error

	mu  sync.Mutex
	run *run
}

// run is one life of a process.
type run struct {
	cmd    *exec.Cmd
	asked  bool          // it was sent a signal, so its end is no news; guarded by Process.mu
	exited chan struct{} // closed when the process has ended and been waited for
	err    error         // how it ended; set before exited is closed
}

// Name returns the process's name, unique in its stack.
func (p *Process) Name() string { return p.name }

// Addr returns the host:port the server listens on.
func (p *Process) Addr() string { return p.addr }

// Pid returns the process id of the present life of the process.
func (p *Process) Pid() int { return p.current().cmd.Process.Pid }

// Exited returns a channel that is closed when the present life of the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.current().exited }

// Signal sends sig to the process: os.Kill for a crash, syscall.SIGSTOP and syscall.SIGCONT for a pause.
// It returns os.ErrProcessDone if the process has ended.
func (p *Process) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.asked = true
	return p.run.cmd.Process.Signal(sig)
}

// Restart kills the process if it still runs, starts it again at the same address on the same files, and
// returns when it answers or ctx ends. What comes back:
//
//   - A Redis node is empty and rejoins its cluster, as a replica of the node that has its slots now. If
//     no replica was promoted while it was away, it is a master again, and its replicas empty themselves
//     too. With [Config.AppendOnly], a node of the coordination cluster has what it had. The cluster may
//     need two more seconds to be complete.
//   - PostgreSQL recovers every committed transaction from its log.
//   - The DynamoDB-compatible server is empty.
//
// It gives up after a minute, and returns [ErrStopped] once the stack is stopped.
func (p *Process) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if err := p.Signal(os.Kill); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("devstack: restart %s: %w", p.name, err)
		}
		<-p.Exited()
		err := p.start(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrStopped) {
			return err
		}
		// What the dead process held (a port, PostgreSQL's shared memory) may take a moment to be free.
		if !wait.For(ctx, retryEvery) {
			return err
		}
	}
}

// expectEnd keeps the end of r out of the log.
func (p *Process) expectEnd(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.asked = true
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// start starts the process and waits until it is ready. On an error the process may still run.
func (p *Process) start(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return err
	}
	return p.awaitReady(ctx)
}

// finish runs a program that ends by itself, and waits for it.
func (p *Process) finish(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return err
	}
	r := p.current()
	p.expectEnd(r)
	select {
	case <-r.exited:
	case <-ctx.Done():
		p.terminate()
		return fmt.Errorf("%s: %w", p.name, context.Cause(ctx))
	}
	if r.err != nil {
		return fmt.Errorf("%s: %w%s", p.name, r.err, p.logTail())
	}
	return nil
}

func (p *Process) launch() error {
	if p.stack.spawner.stopped() { // the directory may be gone as well
		return ErrStopped
	}
	logFile, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }() // the child has its own descriptor by then

	cmd := p.program.command(p.program.path, p.program.args...)
	cmd.Stdout = logFile
	cmd.Stderr = logFile
	r := &run{cmd: cmd, exited: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.stack.spawner.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.run = r
	go p.wait(r)
	return nil
}

// command returns a command that runs as the program does: same user, directory and environment.
func (g program) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = g.dir
	// A fixed environment: PGDATA, LC_* or proxy settings of the caller must not change a server.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + g.dir, "LC_ALL=C", "TZ=UTC"}, g.env...)
	cmd.SysProcAttr = childAttr(g.user, g.orphaned)
	return cmd
}

func (p *Process) wait(r *run) {
	r.err = r.cmd.Wait()
	// Before the end is announced: a signal that is sent later requested nothing.
	p.mu.Lock()
	asked := r.asked
	p.mu.Unlock()
	close(r.exited)
	if !asked {
		p.stack.logf("%s (pid %d) ended unexpectedly: %v", p.name, r.cmd.Process.Pid, r.cmd.ProcessState)
	}
}

func (p *Process) awaitReady(ctx context.Context) error {
	r := p.current()
	var last error
	for {
		if last = p.ready(ctx, r.cmd.Process.Pid); last == nil {
			return nil
		}
		select {
		case <-r.exited:
			return p.diedEarly(r)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (last answer: %w)%s", p.name, context.Cause(ctx), last, p.logTail())
		case <-time.After(pollEvery):
		}
	}
}

func (p *Process) diedEarly(r *run) error {
	tail := p.logTail()
	if bytes.Contains(tail, []byte("ddress already in use")) {
		return fmt.Errorf("%s on %s: %w", p.name, p.addr, errPortTaken)
	}
	return fmt.Errorf("%s ended before it was ready: %v%s", p.name, r.cmd.ProcessState, tail)
}

func (p *Process) logPath() string {
	return filepath.Join(p.program.dir, logName)
}

// logTail returns the last lines of the log, each indented on a line of its own.
func (p *Process) logTail() []byte {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	lines = lines[max(0, len(lines)-12):]
	return append([]byte("\n    "), bytes.Join(lines, []byte("\n    "))...)
}

// terminateAll asks all the processes to end, kills those that do not, and waits for every one.
func terminateAll(processes []*Process) {
	var wg sync.WaitGroup
	for _, p := range processes {
		wg.Go(p.terminate)
	}
	wg.Wait()
}

func (p *Process) terminate() {
	r := p.current()
	if r == nil {
		return
	}
	_ = p.Signal(p.program.stop) // an error means that it has ended already
	_ = p.Signal(resumeSignal)   // a paused process could not obey
	select {
	case <-r.exited:
	case <-time.After(stopGrace):
		_ = p.Signal(os.Kill)
		<-r.exited
	}
}

// startWithPorts starts the processes that build returns and waits until all are ready. build is called
// again for other ports if one was taken between being picked and being used.
func (s *Stack) startWithPorts(ctx context.Context, build func() ([]*Process, error)) ([]*Process, error) {
	for try := 1; ; try++ {
		processes, err := build()
		if err != nil {
			return nil, err
		}
		err = startAll(ctx, processes)
		if err == nil {
			s.adopt(processes)
			return processes, nil
		}
		terminateAll(processes)
		if !errors.Is(err, errPortTaken) || try == startTries {
			return nil, err
		}
	}
}

func startAll(ctx context.Context, processes []*Process) error {
	errs := make([]error, len(processes))
	var wg sync.WaitGroup
	for i, p := range processes {
		wg.Go(func() { errs[i] = p.start(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
