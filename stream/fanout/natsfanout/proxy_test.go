package natsfanout_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/natstest"
)

// proxy stands between clients and a node. It can be cut, or hold back what the node sends as a network or a process
// that stalls does. Use it with a single node: a cluster tells its clients the addresses of its nodes.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed while nothing is held back
	conns  map[net.Conn]struct{}
}

// newProxy runs a proxy until the end of the test.
func newProxy(t testing.TB, n *natstest.Node) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, target: n.URL()[len("nats://"):], frozen: make(chan struct{}),
		conns: map[net.Conn]struct{}{}}
	close(p.frozen)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.Thaw()
		_ = l.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// URL is where clients connect.
func (p *proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Freeze holds back what the node sends to its clients until Thaw.
func (p *proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

// Thaw ends Freeze. It is safe to call without one.
func (p *proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.frozen:
	default:
		close(p.frozen)
	}
}

// Cut closes every connection.
func (p *proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		node, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[node] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() {
			defer p.drop(client, node)
			_, _ = io.Copy(node, client)
		})
		p.wg.Go(func() {
			defer p.drop(client, node)
			p.forward(client, node)
		})
	}
}

// forward copies what the node sends, unless frozen.
func (p *proxy) forward(client io.Writer, node io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		<-frozen
		n, err := node.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		frozen = p.frozen
		p.mu.Unlock()
		<-frozen // it may have been frozen while this waited
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
