package simulation

import (
	"context"
	"net"
	"sync"
)

// pipes are a listener in memory, which may be closed and opened again.
type pipes struct {
	mu       sync.Mutex
	listener *pipeListener // nil: connections are refused
	conns    []net.Conn
}

type pipeListener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// open begins to take connections.
func (p *pipes) open() net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = &pipeListener{accept: make(chan net.Conn), closed: make(chan struct{})}
	return p.listener
}

// cut refuses connections from now on, and ends those that are there.
func (p *pipes) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	p.mu.Lock()
	l := p.listener
	p.mu.Unlock()
	if l == nil {
		return nil, errDown
	}
	mine, theirs := net.Pipe()
	select {
	case l.accept <- address{theirs}:
	case <-l.closed:
		return nil, errDown
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, mine)
	return mine, nil
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return somewhere }

// address is a connection that has addresses, as servers expect.
type address struct{ net.Conn }

var somewhere = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7000}

func (address) RemoteAddr() net.Addr { return somewhere }
func (address) LocalAddr() net.Addr  { return somewhere }
