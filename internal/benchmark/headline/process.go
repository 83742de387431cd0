//go:build linux

package headline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/tilefence/tilefence/internal/figures"
)

// process is one actor. It ends by itself if this program dies, since its orders then end.
type process struct {
	kind    string // for the table
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *json.Decoder
	errs    transcript
	ended   chan struct{}
	err     error // of Wait; read after ended is closed
}

// transcript is what a process wrote to its standard error, which may be read meanwhile.
type transcript struct {
	mu   sync.Mutex
	text []byte
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	return len(p), nil
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// launch starts an actor that knows a secret.
func launch(kind, program, secret string, args ...string) (*process, error) {
	p := &process{kind: kind, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Stderr = &p.errs
	p.cmd.Env = append(os.Environ(), "TILEFENCE_SECRET="+secret)
	// A group of its own: Ctrl-C reaches this program alone, which then ends its actors in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	orders, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, in, err := os.Pipe() // not StdoutPipe, which Wait closes before all is read
	if err != nil {
		return nil, err
	}
	p.orders, p.answers, p.cmd.Stdout = orders, json.NewDecoder(out), in
	err = p.cmd.Start()
	_ = in.Close() // the child has its own
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// find waits until the process has written something to its standard error, and returns the first group.
func (p *process) find(ctx context.Context, pattern string) (string, error) {
	re := regexp.MustCompile(pattern)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if found := re.FindStringSubmatch(p.errs.String()); found != nil {
			return found[1], nil
		}
		select {
		case <-p.ended:
			return "", fmt.Errorf("%s ended: %w\n%s", p.kind, p.err, p.errs.String())
		case <-ctx.Done():
			return "", fmt.Errorf("%s never said %s: %w\n%s", p.kind, pattern, ctx.Err(), p.errs.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// cut asks the process for its figures.
func (p *process) cut() (s figures.Set, err error) {
	if _, err = p.orders.Write([]byte("cut\n")); err == nil {
		err = p.answers.Decode(&s)
	}
	if err != nil {
		select {
		case <-p.ended: // its last words are there
		case <-time.After(time.Second):
		}
		err = fmt.Errorf("%s: no figures: %w\n%s", p.kind, err, p.errs.String())
	}
	return s, err
}

// leaveWithin is how long a process may take to drain.
const leaveWithin = 90 * time.Second

// leave asks the process to drain. It may be called twice.
func (p *process) leave() { _ = p.cmd.Process.Signal(syscall.SIGTERM) } // it may have ended

// await waits for the end of a process that was asked to drain, and kills it if that takes too long.
func (p *process) await() error {
	select {
	case <-p.ended:
		return p.err
	case <-time.After(leaveWithin):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return errors.Join(fmt.Errorf("did not drain within %v", leaveWithin), p.err)
	}
}
