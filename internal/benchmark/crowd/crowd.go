// Package crowd holds WebSocket clients that cost next to nothing, for benchmarks of servers that share the machine
// with them: they mask with zeros, verify nothing, and leave a message's bytes uninterpreted.
//
// A Client is for one goroutine at a time, except that Close may be called at any time.
package crowd

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// The parts of a WebSocket frame's header that matter here (RFC 6455, section 5.2).
const (
	final     = 0x80
	masked    = 0x80
	opText    = 1
	opBinary  = 2
	opClose   = 8
	opPing    = 9
	opPong    = 10
	opMask    = 15
	longest   = 125 // bytes of a body whose length is in the header's second byte
	twoBytes  = 126 // the length follows in two bytes
	headerMax = 10
	bufferLen = 4 << 10
)

// Client is one connection.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte // of the last message
}

// Dial connects to a server at host:port and path, and makes the handshake. An empty subprotocol offers none.
func Dial(ctx context.Context, addr, path, subprotocol string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, in: bufio.NewReaderSize(conn, bufferLen)}
	if err := c.shake(addr, path, subprotocol); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// request is a client's half of the handshake.
func request(addr, path, subprotocol string) []byte {
	offer := ""
	if subprotocol != "" {
		offer = "Sec-WebSocket-Protocol: " + subprotocol + "\r\n"
	}
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n%s\r\n", path, addr, offer)
}

func (c *Client) shake(addr, path, subprotocol string) error {
	if _, err := c.conn.Write(request(addr, path, subprotocol)); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("crowd: %s answered %s, expected a switch to WebSocket", addr, resp.Status)
	}
	return nil
}

// Send sends one message of less than 64 KiB, as text or binary.
func (c *Client) Send(text bool, body []byte) error { return c.write(opOf(text), body) }

func (c *Client) write(op byte, body []byte) error {
	frame, err := appendFrame(nil, op, body)
	if err == nil {
		_, err = c.conn.Write(frame)
	}
	return err
}

func opOf(text bool) byte {
	if text {
		return opText
	}
	return opBinary
}

// appendFrame writes a frame with a mask of zeros.
func appendFrame(dst []byte, op byte, body []byte) ([]byte, error) {
	dst = append(dst, final|op)
	switch n := len(body); {
	case n <= longest:
		dst = append(dst, masked|byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, masked|twoBytes), uint16(n))
	default:
		return nil, fmt.Errorf("crowd: a message has %d bytes, the most is %d", n, math.MaxUint16)
	}
	return append(append(dst, 0, 0, 0, 0), body...), nil
}

// Next waits for a message and returns its body, which is valid until the next call. It answers pings.
func (c *Client) Next() ([]byte, error) {
	for {
		op, err := c.frame()
		if err != nil {
			return nil, err
		}
		switch op {
		case opText, opBinary:
			return c.body, nil
		case opPing:
			if err := c.write(opPong, c.body); err != nil {
				return nil, err
			}
		case opClose:
			return nil, io.EOF
		}
	}
}

// frame reads one frame into body.
func (c *Client) frame() (op byte, err error) {
	var header [8]byte
	if _, err := io.ReadFull(c.in, header[:2]); err != nil {
		return 0, err
	}
	if header[0]&final == 0 || header[1]&masked != 0 {
		return 0, fmt.Errorf("crowd: a frame begins with % x, expected an unmasked one that is a message", header[:2])
	}
	op = header[0] & opMask
	size := uint64(header[1])
	if size > longest {
		more := header[:2]
		if size > twoBytes {
			more = header[:8]
		}
		if _, err := io.ReadFull(c.in, more); err != nil {
			return 0, err
		}
		if size == twoBytes {
			size = uint64(binary.BigEndian.Uint16(more))
		} else {
			size = binary.BigEndian.Uint64(more)
		}
	}
	if uint64(cap(c.body)) < size {
		c.body = make([]byte, size)
	}
	c.body = c.body[:size]
	_, err = io.ReadFull(c.in, c.body)
	return op, err
}

// Close resets the connection: nothing of it lingers in the kernel, so that a benchmark may open many one after the
// other.
func (c *Client) Close() {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is closed in any case
	}
	_ = c.conn.Close()
}

// Gather runs join for n clients, each in a goroutine that begins at a random moment of a time, and returns how long
// each call took, or the first error.
func Gather(n int, over time.Duration, join func(i int) error) (took []time.Duration, err error) {
	var group sync.WaitGroup
	var once sync.Once
	took = make([]time.Duration, n)
	for i := range n {
		group.Go(func() {
			time.Sleep(rand.N(over))
			began := time.Now()
			if failed := join(i); failed != nil {
				once.Do(func() { err = fmt.Errorf("client %d of %d: %w", i+1, n, failed) })
			}
			took[i] = time.Since(began)
		})
	}
	group.Wait()
	return took, err
}
