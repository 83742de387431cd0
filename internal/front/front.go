// Package front takes WebSocket handshakes from a listener before an http.Server has them. Package http reads ahead, in
// a goroutine of its own, for as long as a handler runs, and gives each connection buffers that are lost with the
// handshake. In a storm of joins that is a fifth of the processor time of both ends, and two thirds of the garbage
// (BenchmarkHandshake).
//
// What is a handshake is what package http would take for one. Any other request, and every one that is not plain in
// all respects, goes on to the http.Server with the bytes that were read, and so do encrypted connections. The context
// of a handshake does not end when its client leaves: nobody reads from the connection while the handler decides.
package front

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// headBytes is how long a handshake may be that is served here. A longer one goes on to the http.Server.
const headBytes = 4 << 10

// Listener is a net.Listener of the connections that do not begin with a handshake. Create one with New. Handshakes are
// served while Accept is called.
type Listener struct {
	net.Listener
	server *http.Server
	base   context.Context // of requests
	cut    context.CancelFunc

	begin  sync.Once
	passed chan net.Conn
	failed chan error
	closed chan struct{}

	mu    sync.Mutex
	ended bool
	under map[net.Conn]bool // handshakes under way; true: the handler has it
	gone  *sync.Cond        // one of them is not any more
}

// New returns a Listener that serves handshakes with the handler of a server, its ReadHeaderTimeout and its ErrorLog.
// Have the server serve it, and call Wait after Shutdown.
func New(l net.Listener, server *http.Server) *Listener {
	f := &Listener{Listener: l, server: server, passed: make(chan net.Conn), failed: make(chan error),
		closed: make(chan struct{}), under: map[net.Conn]bool{}}
	f.gone = sync.NewCond(&f.mu)
	f.base, f.cut = context.WithCancel(context.WithValue(context.Background(), http.ServerContextKey, server))
	return f
}

// Accept implements net.Listener.
func (f *Listener) Accept() (net.Conn, error) {
	f.begin.Do(func() { go f.accept() })
	select {
	case c := <-f.passed:
		return c, nil
	case err := <-f.failed:
		return nil, err
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *Listener) accept() {
	for {
		c, err := f.Listener.Accept()
		if err == nil {
			go f.meet(c)
			continue
		}
		select {
		case f.failed <- err: // the server waits a moment after an error that may pass, and then asks again
		case <-f.closed:
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Close implements net.Listener. It closes connections whose handshake has not come yet.
func (f *Listener) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil
	}
	f.ended = true
	close(f.closed)
	for c, serving := range f.under {
		if !serving {
			_ = c.Close()
		}
	}
	return f.Listener.Close()
}

// Wait waits, once the listener is closed, until the handler has answered every handshake or taken it over. When ctx
// ends first, the connections are closed and its error is returned.
func (f *Listener) Wait(ctx context.Context) error {
	var late error
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		late = ctx.Err()
		for c := range f.under {
			_ = c.Close()
		}
		f.cut()
		f.gone.Broadcast()
	})
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.under) > 0 && late == nil {
		f.gone.Wait()
	}
	return late
}

// enters notes a connection, or that the handler has it now; false: the listener is closed.
func (f *Listener) enters(c net.Conn, serving bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	f.under[c] = serving
	return true
}

// leaves notes that a connection is no handshake any more.
func (f *Listener) leaves(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.under, c)
	f.gone.Broadcast()
}

// meet serves one connection, or passes it on.
func (f *Listener) meet(c net.Conn) {
	if _, encrypted := c.(*tls.Conn); encrypted {
		f.pass(c)
		return
	}
	defer f.leaves(c)
	from := readers.Get().(*bufio.Reader)
	from.Reset(c)
	w := &response{of: f, conn: c, from: from}
	defer w.end()
	if !f.enters(c, false) || f.server.ReadHeaderTimeout > 0 &&
		c.SetReadDeadline(time.Now().Add(f.server.ReadHeaderTimeout)) != nil {
		return
	}
	head, err := readHead(from)
	if err != nil {
		return // there is no request to answer
	}
	r := handshake(head, from)
	if r == nil {
		w.conn = nil
		f.leaves(c)
		f.pass(&begunConn{c, bytes.Clone(head)})
		return
	}
	if !f.enters(c, true) {
		return
	}
	ctx, cancel := context.WithCancel(context.WithValue(f.base, http.LocalAddrContextKey, c.LocalAddr()))
	defer cancel()
	r.RemoteAddr = c.RemoteAddr().String()
	w.request = r.WithContext(ctx)
	defer f.recovered(w)
	f.server.Handler.ServeHTTP(w, w.request)
	w.finish()
}

// pass gives a connection to the server.
func (f *Listener) pass(c net.Conn) {
	select {
	case f.passed <- c:
	case <-f.closed:
		_ = c.Close()
	}
}

// recovered ends a handler's panic as package http does.
func (f *Listener) recovered(w *response) {
	wrong := recover()
	if err, ok := wrong.(error); wrong == nil || ok && errors.Is(err, http.ErrAbortHandler) {
		return
	}
	logf := log.Printf
	if f.server.ErrorLog != nil {
		logf = f.server.ErrorLog.Printf
	}
	logf("http: panic serving %v: %v\n%s", w.request.RemoteAddr, wrong, debug.Stack())
}

// begunConn is a connection of which something was read.
type begunConn struct {
	net.Conn
	head []byte
}

// Read implements net.Conn.
func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.head)
	c.head = c.head[n:]
	return n, nil
}
