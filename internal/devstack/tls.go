package devstack

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
)

// writeCertificates writes what servers are started with, if they encrypt.
func (s *Stack) writeCertificates() error {
	if s.cfg.Certificates == nil {
		return nil
	}
	dir, err := s.dir.sub("tls", nil)
	if err == nil {
		s.files, err = s.cfg.Certificates.Write(dir)
	}
	if err != nil {
		return fmt.Errorf("devstack: certificates: %w", err)
	}
	return nil
}

// clientTLS is what clients of Redis connect with; nil without certificates.
func (s *Stack) clientTLS() *tls.Config {
	if s.cfg.Certificates == nil {
		return nil
	}
	return s.cfg.Certificates.Mutual()
}

// tlsProxy ends TLS for a server that has none. A nil one does nothing.
type tlsProxy struct {
	listener net.Listener
	server   string

	mu     sync.Mutex
	open   map[net.Conn]bool // nil: closed
	served sync.WaitGroup
}

func newTLSProxy(c *tls.Config, server string) (*tlsProxy, error) {
	l, err := tls.Listen("tcp", hostPort(defaultHost, 0), c)
	if err != nil {
		return nil, err
	}
	p := &tlsProxy{listener: l, server: server, open: map[net.Conn]bool{}}
	p.served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.served.Go(func() { p.serve(conn) })
		}
	})
	return p, nil
}

// serve connects a client to the server until either leaves.
func (p *tlsProxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.keep(client, server) {
		return
	}
	defer p.forget(client, server)
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		p.served.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // whatever its error, the connection is over
			ended <- struct{}{}
		})
	}
	<-ended
}

func (p *tlsProxy) keep(all ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range all {
		if p.open != nil {
			p.open[c] = true
		}
	}
	return p.open != nil
}

func (p *tlsProxy) forget(all ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range all {
		delete(p.open, c)
	}
}

// close ends all connections, and waits for their end.
func (p *tlsProxy) close() {
	if p == nil {
		return
	}
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.open {
		_ = c.Close()
	}
	p.open = nil
	p.mu.Unlock()
	p.served.Wait()
}
