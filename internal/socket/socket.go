// Package socket is a server's end of a WebSocket. The library makes the handshake. After it the frames are read and
// written here, because of what a connection costs: its frames are encoded once for all clients, header included,
// several go out in one write, and one that is silent holds a goroutine with a shallow stack and 128 bytes of buffer.
//
// One goroutine reads, any may write. Pings, and what is done when a peer is silent, are the user's.
package socket

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// Conn is the network connection under a WebSocket.
type Conn struct {
	net.Conn
	// Deflated says that the handshake has agreed on permessage-deflate (RFC 7692): messages may come compressed, each
	// by itself.
	Deflated bool

	in    inbound
	mu    sync.Mutex    // held while frames are written
	until time.Time     // the write deadline
	heard atomic.Int64  // when bytes last came from the peer, since begun
	sent  atomic.Uint64 // bytes written
	total *atomic.Uint64
}

// Accept makes the handshake of a request and takes the connection over; messages may have limit bytes. What is
// written is counted in total too, unless that is nil. enter decides over a request that is a handshake of an allowed
// origin: the last thing before the connection is taken over. With an error the response has been written, except if
// it is an error of enter, which has to write it.
func Accept(
	w http.ResponseWriter, r *http.Request, options *websocket.AcceptOptions, limit int, total *atomic.Uint64,
	enter func() error,
) (*Conn, error) {
	hold := &capture{ResponseWriter: w, header: w.Header().Clone(), enter: enter}
	conn, err := websocket.Accept(hold, r, options)
	if err == nil {
		_ = conn.CloseNow()                      // frees it; the connection stays open
		err = hold.conn.SetDeadline(time.Time{}) // the server's were for the request
	}
	if err != nil {
		if hold.conn != nil {
			_ = hold.conn.Close()
		}
		return nil, err
	}
	agreed := w.Header().Get("Sec-WebSocket-Extensions") != "" // there is only one: permessage-deflate
	return newConn(hold.conn, hold.behind, agreed, limit, total), nil
}

func newConn(conn net.Conn, behind []byte, deflated bool, limit int, total *atomic.Uint64) *Conn {
	c := &Conn{Conn: conn, Deflated: deflated, total: total}
	c.in = inbound{from: c, limit: limit, rest: behind, deflated: deflated}
	c.hear()
	return c
}

// Next returns the next message, OpText or OpBinary, or control frame, OpClose, OpPing or OpPong. A *FrameError says
// what the peer did wrong; after it, or another error, nothing can be read.
func (c *Conn) Next() (op byte, payload []byte, err error) { return c.in.next() }

// maxUnseen is how much of what a peer still sends is read for it to see a close frame.
const maxUnseen = 1 << 20

// AwaitClose reads and drops what the peer sends until it closes the connection, which it does when it has seen our
// close frame, or the read deadline passes. A peer that just goes on sending is waited for no longer than 1 MiB.
func (c *Conn) AwaitClose() { _, _ = io.Copy(io.Discard, io.LimitReader(c, maxUnseen)) }

// Read implements net.Conn and notes that the peer is alive.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.hear()
	}
	return n, err
}

// begun is a moment on the monotonic clock. By the wall clock all peers would be silent at once when it is put ahead.
var begun = time.Now()

func (c *Conn) hear() { c.heard.Store(int64(time.Since(begun))) }

// Heard is when bytes last came from the peer. It has a monotonic reading.
func (c *Conn) Heard() time.Time { return begun.Add(time.Duration(c.heard.Load())) }

// Sent is how many bytes were written.
func (c *Conn) Sent() uint64 { return c.sent.Load() }

const (
	chunkBytes = 64 << 10 // written within one timeout
	packBytes  = 16 << 10 // frames up to this size together are copied into one write
)

var packs = sync.Pool{New: func() any { b := make([]byte, 0, packBytes); return &b }}

// Send writes frames in order. timeout is for each 64 KiB, so that a large message over a slow link is cut off only
// when it stops moving; it may be shorter by a quarter. After an error the stream is broken and must be closed.
func (c *Conn) Send(timeout time.Duration, frames ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(frames) == 1 {
		return c.sendChunks(frames[0], timeout)
	}
	pack := packs.Get().(*[]byte)
	defer packs.Put(pack)
	for len(frames) > 0 {
		n, size := 0, 0
		for n < len(frames) && size+len(frames[n]) <= packBytes {
			size += len(frames[n])
			n++
		}
		out := frames[0]
		if n > 1 {
			*pack = (*pack)[:0]
			for _, f := range frames[:n] {
				*pack = append(*pack, f...)
			}
			out = *pack
		}
		if err := c.sendChunks(out, timeout); err != nil {
			return err
		}
		frames = frames[max(n, 1):]
	}
	return nil
}

func (c *Conn) sendChunks(out []byte, timeout time.Duration) error {
	for len(out) > 0 {
		if err := c.extend(timeout); err != nil {
			return err
		}
		n, err := c.Write(out[:min(len(out), chunkBytes)])
		c.sent.Add(uint64(n))
		if c.total != nil {
			c.total.Add(uint64(n))
		}
		if err != nil {
			return err
		}
		out = out[n:]
	}
	return nil
}

// extend gives the next write at least three quarters of timeout, and at most timeout. A deadline costs a timer, and
// most writes end at once.
func (c *Conn) extend(timeout time.Duration) error {
	now := time.Now()
	if left := c.until.Sub(now); left >= timeout*3/4 && left <= timeout {
		return nil
	}
	c.until = now.Add(timeout)
	return c.SetWriteDeadline(c.until)
}

// capture is a ResponseWriter that takes the connection when the WebSocket library has made the handshake. What the
// library is given is not used after it. The library's response of success waits until enter has decided.
type capture struct {
	http.ResponseWriter
	header  http.Header // of the library's response
	enter   func() error
	refused bool // by enter: the library's response is not the one to be sent
	conn    net.Conn
	behind  []byte // what the client sent right behind its handshake
}

// Header implements http.ResponseWriter.
func (c *capture) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *capture) WriteHeader(status int) {
	if c.refused || status == http.StatusSwitchingProtocols {
		return
	}
	c.respond(status)
}

func (c *capture) respond(status int) {
	maps.Copy(c.ResponseWriter.Header(), c.header)
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (c *capture) Write(p []byte) (int, error) {
	if c.refused {
		return len(p), nil
	}
	return c.ResponseWriter.Write(p)
}

// Hijack implements http.Hijacker.
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := c.enter(); err != nil {
		c.refused = true
		return nil, nil, err
	}
	c.respond(http.StatusSwitchingProtocols)
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if n := rw.Reader.Buffered(); n > 0 {
		peeked, _ := rw.Reader.Peek(n) // it is in the buffer, so there is no error
		c.behind = bytes.Clone(peeked)
	}
	c.conn = conn
	stub := unused{conn}
	return stub, bufio.NewReadWriter(bufio.NewReaderSize(stub, 16), bufio.NewWriterSize(stub, 16)), nil
}

// unused is the connection as the library holds it: it is collected as garbage, and must not close anything then.
type unused struct{ net.Conn }

// Close implements net.Conn.
func (unused) Close() error { return nil }
