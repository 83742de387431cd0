package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Program is something to run beside the servers of a stack, which it does not outlive.
type Program struct {
	Name string   // unique among the stack's processes
	Addr string   // what Process.Addr gives; may be empty
	Path string   // the executable
	Args []string // without the program's name
	Env  []string // NAME=value, in addition to PATH, HOME, LC_ALL=C and TZ=UTC

	// Ready returns nil once the program, running as pid, answers. It is called until it does.
	Ready func(ctx context.Context, pid int) error
}

// Launch starts a program as a process of the stack, and returns when it is ready. Its working directory,
// with its log in it, is one of its own inside the stack's. [Process.Stop] ends it before the stack ends.
func (s *Stack) Launch(ctx context.Context, g Program) (*Process, error) {
	if _, taken := s.Process(g.Name); taken || g.Name == "" || g.Ready == nil {
		return nil, fmt.Errorf("devstack: launch %q: want a name that is not taken, and Ready", g.Name)
	}
	dir, err := s.dir.sub(g.Name, nil)
	if err != nil {
		return nil, err
	}
	p := &Process{name: g.Name, addr: g.Addr, stack: s, ready: g.Ready,
		program: program{path: g.Path, args: g.Args, env: g.Env, dir: dir, stop: syscall.SIGTERM,
			orphaned: syscall.SIGKILL}}
	if err := p.start(ctx); err != nil {
		p.terminate()
		return nil, fmt.Errorf("devstack: launch %s: %w", g.Name, err)
	}
	s.adopt([]*Process{p})
	return p, nil
}

// Stop asks a process to end, kills it if it does not within a few seconds, waits for it, and forgets it:
// it cannot be restarted, and another may take its name.
func (p *Process) Stop() {
	p.terminate()
	p.stack.mu.Lock()
	defer p.stack.mu.Unlock()
	p.stack.processes = slices.DeleteFunc(p.stack.processes, func(q *Process) bool { return q == p })
}

// LogPath returns the file that the process's output goes to.
func (p *Process) LogPath() string { return p.logPath() }

// SignalAll sends sig to the process and all its descendants: PostgreSQL serves each connection with a
// process of its own, which pausing the first would not pause.
func (p *Process) SignalAll(sig os.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	var errs []error
	for _, pid := range descendants(p.Pid()) {
		child, err := os.FindProcess(pid)
		if err == nil {
			err = child.Signal(sig)
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("devstack: signal process %d of %s: %w", pid, p.name, err))
		}
	}
	return errors.Join(errs...)
}

// descendants lists the children of a process and theirs, as the kernel does.
func descendants(root int) (found []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", root, root)) // an error: it has ended
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			found = append(append(found, pid), descendants(pid)...)
		}
	}
	return found
}
