package faultinject

import (
	"net"
	"sync"
)

// Listener is a listener whose connections can be broken. All methods may be called from any goroutine.
type Listener struct {
	net.Listener
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// Accept implements net.Listener.
func (c *Listener) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	remembered := &conn{accepted, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns = map[net.Conn]struct{}{}
	}
	c.conns[remembered] = struct{}{}
	return remembered, nil
}

// Cut closes every connection, without a word.
func (c *Listener) Cut() {
	c.mu.Lock()
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	for conn := range conns {
		_ = conn.Close() // that is the point
	}
}

// Kill closes the listener and every connection, as the kernel does when a process dies.
func (c *Listener) Kill() {
	_ = c.Listener.Close()
	c.Cut()
}

// conn is a connection that is forgotten when it is closed.
type conn struct {
	net.Conn
	by *Listener
}

// Close implements net.Conn.
func (r *conn) Close() error {
	r.by.mu.Lock()
	delete(r.by.conns, net.Conn(r))
	r.by.mu.Unlock()
	return r.Conn.Close()
}
