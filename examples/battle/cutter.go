package main

import (
	"bufio"
	"net"
	"net/http"
	"sync"
)

// cutter remembers the connections that a handler has made WebSockets of, to break them.
type cutter struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newCutter() *cutter { return &cutter{conns: map[net.Conn]struct{}{}} }

// wrap returns the handler with its connections remembered.
func (c *cutter) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&taken{ResponseWriter: w, by: c}, r)
	})
}

// cut closes every connection, without a word.
func (c *cutter) cut() {
	c.mu.Lock()
	conns := c.conns
	c.conns = map[net.Conn]struct{}{}
	c.mu.Unlock()
	for conn := range conns {
		_ = conn.Close() // that is the point
	}
}

// taken is a ResponseWriter that tells the cutter of a connection that is taken over.
type taken struct {
	http.ResponseWriter
	by *cutter
}

// Hijack implements http.Hijacker.
func (t *taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err == nil {
		conn = &remembered{Conn: conn, by: t.by}
		t.by.mu.Lock()
		t.by.conns[conn] = struct{}{}
		t.by.mu.Unlock()
	}
	return conn, rw, err
}

// remembered is a connection that is forgotten when it is closed.
type remembered struct {
	net.Conn
	by *cutter
}

func (r *remembered) Close() error {
	r.by.mu.Lock()
	delete(r.by.conns, net.Conn(r))
	r.by.mu.Unlock()
	return r.Conn.Close()
}
