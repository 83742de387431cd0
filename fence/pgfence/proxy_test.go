package pgfence_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// accident is what happens to one request on its way through a proxy.
type accident struct {
	kind accidentKind
	// meanwhile, if set, runs when the server has answered and the client has not heard of it.
	meanwhile func()
	// late delays a requestLate until arrive is called, and ends a silence.
	late *lateCopy
}

type accidentKind int

const (
	requestLost accidentKind = iota + 1 // cut before the request reaches the server
	answerLost                          // cut after the server has answered, before the client hears of it
	requestLate                         // cut at once, but the request reaches the server when arrive is called
	demoted                             // from now on the server of this connection says that it is a standby
	silence                             // nothing moves, and nothing is cut, until the late copy is to arrive
)

// lateCopy is a request that waits between its client, which is gone, and the server.
type lateCopy struct{ deliver, answered chan struct{} }

func newLateCopy() *lateCopy {
	return &lateCopy{deliver: make(chan struct{}), answered: make(chan struct{})}
}

// arrive lets the request reach the server and waits for the answer, which is discarded.
func (l *lateCopy) arrive() {
	close(l.deliver)
	<-l.answered
}

// proxy stands between a pool and a server and has accidents with requests that execute statements.
// What belongs to connecting, preparing and pinging passes unharmed.
type proxy struct {
	URL      string
	server   string
	listener net.Listener
	stop     chan struct{}
	wg       sync.WaitGroup

	mu        sync.Mutex
	accidents []accident
	conns     []net.Conn
}

func newProxy(t *testing.T, address string) *proxy {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{server: u.Host, listener: listener, stop: make(chan struct{})}
	u.Host = listener.Addr().String()
	p.URL = u.String()
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		close(p.stop)
		_ = listener.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// plan makes the next requests have these accidents, one each.
func (p *proxy) plan(accidents ...accident) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accidents = accidents
}

// left is how many planned accidents have not happened.
func (p *proxy) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.accidents)
}

func (p *proxy) next() accident {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.accidents) == 0 {
		return accident{}
	}
	a := p.accidents[0]
	p.accidents = p.accidents[1:]
	return a
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		l := &link{proxy: p, client: client, server: server, ready: make(chan struct{}, 1)}
		p.wg.Go(l.requests)
		p.wg.Go(l.answers)
	}
}

// link is one connection through the proxy.
type link struct {
	*proxy
	client, server net.Conn
	standby        atomic.Bool   // the server says that it is one
	deaf           atomic.Bool   // the client no longer hears answers
	ready          chan struct{} // the server has finished an answer the client did not hear
}

// requests passes on what the client sends, one request (everything up to a Sync) at a time.
func (l *link) requests() {
	defer func() { _ = l.server.Close() }()
	defer func() { _ = l.client.Close() }()
	startup, err := readMessage(l.client, false)
	if err != nil || write(l.server, startup) != nil {
		return
	}
	var request []byte
	var executes bool
	for {
		message, err := readMessage(l.client, true)
		if err != nil {
			return
		}
		request = append(request, message...)
		switch message[0] {
		case 'E': // Execute
			executes = true
			continue
		case 'S', 'Q', 'p', 'X': // Sync, Query, password, Terminate
		default:
			continue
		}
		if executes && !l.pass(request) || !executes && write(l.server, request) != nil {
			return
		}
		request, executes = nil, false
	}
}

// pass lets a request have its accident; false when that has ended the connection.
func (l *link) pass(request []byte) bool {
	switch a := l.next(); a.kind {
	case requestLost:
		return false
	case demoted:
		l.standby.Store(true)
	case silence:
		select {
		case <-a.late.deliver:
		case <-l.stop:
		}
		close(a.late.answered)
		return false
	case answerLost:
		l.exchange(request)
		if a.meanwhile != nil {
			a.meanwhile()
		}
		return false
	case requestLate:
		l.deaf.Store(true)
		_ = l.client.Close()
		select {
		case <-a.late.deliver:
			l.exchange(request)
		case <-l.stop:
		}
		close(a.late.answered)
		return false
	}
	return write(l.server, request) == nil
}

// exchange sends a request and waits for the answer, which the client does not hear.
func (l *link) exchange(request []byte) {
	l.deaf.Store(true)
	if write(l.server, request) != nil {
		return
	}
	select {
	case <-l.ready:
	case <-l.stop:
	}
}

// answers passes on what the server sends.
func (l *link) answers() {
	defer func() {
		// A late request's server connection outlives its client's.
		if !l.deaf.Load() {
			_ = l.client.Close()
		}
	}()
	for {
		message, err := readMessage(l.server, true)
		if err != nil {
			return
		}
		if l.deaf.Load() {
			if message[0] == 'Z' { // ReadyForQuery
				l.ready <- struct{}{}
			}
			continue
		}
		if message[0] == 'Z' && l.standby.Load() {
			message = append([]byte("S\x00\x00\x00\x16in_hot_standby\x00on\x00"), message...)
		}
		if write(l.client, message) != nil {
			return
		}
	}
}

// readMessage reads one message of PostgreSQL's protocol: a type, which the first one of a connection
// lacks, four bytes of length, and the rest.
func readMessage(r io.Reader, typed bool) ([]byte, error) {
	head := make([]byte, 4, 5)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 || length > 1<<20 {
		return nil, errors.New("not a message")
	}
	message := append(head, make([]byte, length-4)...)
	_, err := io.ReadFull(r, message[len(head):])
	return message, err
}

func write(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}
