//go:build unix

package campaign

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// errAccident is what a client sees of a connection that had an accident.
var errAccident = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// accidents makes connections break as a network does: reset after the request was sent, or before. The
// shares are of a thousand reads and writes, and zero unless a fault is on.
type accidents struct {
	answersLost  atomic.Int64 // the server has answered, the client never hears of it
	requestsLost atomic.Int64 // the request never leaves

	refuses atomic.Pointer[string] // the address that refuses every new connection; nil for none
}

// dialer connects from a host of one's own, so that routing rules can distinguish connections.
func (a *accidents) dialer(from string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if refuses := a.refuses.Load(); refuses != nil && *refuses == addr {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &frailConn{TCPConn: c.(*net.TCPConn), accidents: a}, nil
	}
}

// frailListener accepts connections that have accidents. What is a request to a client's end is an answer here.
type frailListener struct {
	net.Listener
	accidents *accidents
}

func (l *frailListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &frailConn{TCPConn: c.(*net.TCPConn), accidents: l.accidents}, nil
}

// frailConn has accidents.
type frailConn struct {
	*net.TCPConn
	accidents *accidents
}

func (c *frailConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err == nil && happens(c.accidents.answersLost.Load()) {
		return 0, c.reset()
	}
	return n, err
}

func (c *frailConn) Write(b []byte) (int, error) {
	if happens(c.accidents.requestsLost.Load()) {
		return 0, c.reset()
	}
	return c.TCPConn.Write(b)
}

func happens(share int64) bool { return share > 0 && rand.Int64N(1000) < share }

// reset ends the connection as a router does that lost track of it: with a reset, not a close.
func (c *frailConn) reset() error {
	return errors.Join(errAccident, c.SetLinger(0), c.Close())
}
