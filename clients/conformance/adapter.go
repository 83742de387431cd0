package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const starting = time.Minute // for an adapter to say that it is ready

// trial is one case under way: an adapter, and the relay and the gateway that its client talks to. Methods that expect
// something panic with a failure if it does not come.
type trial struct {
	ctx       context.Context
	in        io.WriteCloser
	base      string // the servers' address
	began     time.Time
	patience  time.Duration // for what must come at once
	arrivals  chan *peer    // connections that were accepted
	handshake func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	news  chan struct{} // closed and replaced when a line has come
	view  []string      // lines about what the client shows, not yet expected
	other []string      // the other lines
	log   []string
	peers []*peer
}

// failure is what a case did not find.
type failure struct{ error }

func (s *trial) fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// note adds a line to the transcript.
func (s *trial) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if len(line) > 400 {
		line = line[:400] + "…"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%6.2f  %s", time.Since(s.began).Seconds(), line))
}

// playCase runs one case against an adapter of its own.
func playCase(parent context.Context, c testCase, o *options) (log []string, err error) {
	ctx, cancel := context.WithTimeout(parent, 2*time.Minute)
	defer cancel()
	s := &trial{ctx: ctx, began: time.Now(), patience: o.patience, arrivals: make(chan *peer, 16),
		news: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.base = "ws://" + listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: o.patience}
	var work sync.WaitGroup
	work.Go(func() { _ = server.Serve(listener) })
	defer work.Wait()
	defer func() { _ = server.Close() }()
	defer s.cutAll()

	cmd := exec.CommandContext(ctx, o.adapter[0], o.adapter[1:]...) //nolint:gosec // the user names the command
	var stdout io.ReadCloser
	if s.in, err = cmd.StdinPipe(); err == nil {
		stdout, err = cmd.StdoutPipe()
	}
	cmd.Stderr = &noter{s: s}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.read(stdout)
	}()
	err = s.play(c)
	_ = cmd.Process.Kill() // nothing that it could still say would count
	<-read
	_ = cmd.Wait() // whatever its status: it was judged by its lines
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log), err
}

// play runs the script, and turns its panic into an error.
func (s *trial) play(c testCase) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	s.hearsWithin(starting, "ready")
	c.play(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.view) > 0 {
		return fmt.Errorf("at the end, the client also showed %q", s.view[0])
	}
	return nil
}

// noter puts an adapter's standard error into the transcript.
type noter struct{ s *trial }

func (n *noter) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		n.s.note("  stderr %s", strings.TrimRight(line, "\r\n"))
	}
	return len(b), nil
}

// viewWords begin the lines that must come exactly as they are expected; other lines may come besides.
var viewWords = []string{"state", "open", "batch", "answer", "told"}

func (s *trial) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		s.note("  shows  %s", line)
		s.mu.Lock()
		if word, _, _ := strings.Cut(line, " "); slices.Contains(viewWords, word) {
			s.view = append(s.view, line)
		} else {
			s.other = append(s.other, line)
		}
		close(s.news)
		s.news = make(chan struct{})
		s.mu.Unlock()
	}
}

// tell gives the adapter a command.
func (s *trial) tell(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.note("tell     %s", line)
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.fail("the adapter ended before %q: %w", line, err)
	}
}

// await waits for a line that take finds, and removes it.
func (s *trial) await(within time.Duration, what string, take func() bool) {
	late := time.After(within)
	for {
		s.mu.Lock()
		found, news := take(), s.news
		s.mu.Unlock()
		if found {
			return
		}
		select {
		case <-news:
		case <-late:
			s.fail("want the line %q within %v", what, within)
		case <-s.ctx.Done():
			s.fail("want the line %q: %w", what, context.Cause(s.ctx))
		}
	}
}

// sees expects that the client shows exactly these things next.
func (s *trial) sees(want ...string) {
	for _, line := range want {
		var got string
		s.await(s.patience, line, func() bool {
			if len(s.view) == 0 {
				return false
			}
			got, s.view = s.view[0], s.view[1:]
			return true
		})
		if got != line {
			s.fail("want the line %q, got %q", line, got)
		}
	}
}

// hears expects a line that begins like this, among others.
func (s *trial) hears(want string) { s.hearsWithin(s.patience, want) }

func (s *trial) hearsWithin(within time.Duration, want string) {
	s.await(within, want, func() bool {
		i := slices.IndexFunc(s.other, func(line string) bool {
			return line == want || strings.HasPrefix(line, want+" ")
		})
		if i >= 0 {
			s.other = slices.Delete(s.other, i, i+1)
		}
		return i >= 0
	})
}

// quiet expects that the client shows nothing for a while, sends nothing over these connections, and makes no
// other one.
func (s *trial) quiet(over time.Duration, on ...*peer) {
	select {
	case p := <-s.arrivals:
		s.fail("a connection to %s, and none is due", p.path)
	case <-time.After(over):
	}
	for _, p := range on {
		select {
		case m, open := <-p.in:
			if open {
				s.fail("the client sent %s, and nothing is due", p.show(m))
			}
			s.fail("the client left a connection that was good")
		default:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.view) > 0 {
		s.fail("the client showed %q, and nothing is due", s.view[0])
	}
}
