// Package socket is a server's end of a WebSocket. It is written here, and not a library's, because of what a
// connection costs: its frames are encoded once for all clients, header included, several go out in one write, one that
// is silent holds a goroutine with a shallow stack and 128 bytes of buffer, and thousands may come within a second.
//
// One goroutine reads, any may write. Pings, and what is done when a peer is silent, are the user's.
package socket

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is the network connection under a WebSocket.
type Conn struct {
	net.Conn
	// Deflated says that the handshake has agreed on permessage-deflate (RFC 7692): messages may come compressed, each
	// by itself.
	Deflated bool

	in    inbound
	mu    sync.Mutex    // held while frames are written
	held  []byte        // goes before the next of them: the response to the handshake, or what TrySend left of one
	until time.Time     // the write deadline
	heard atomic.Int64  // when bytes last came from the peer, since begun
	sent  atomic.Uint64 // bytes written
	total *atomic.Uint64
	raw   syscall.RawConn // of a TCP connection
}

func newConn(conn net.Conn, behind []byte, deflated bool, limit int, total *atomic.Uint64) *Conn {
	c := &Conn{Conn: conn, Deflated: deflated, total: total}
	if plain, ok := conn.(*net.TCPConn); ok {
		c.raw, _ = plain.SyscallConn() // fails if the connection is closed: then nothing is sent
	}
	c.in = inbound{from: c, limit: limit, rest: behind, deflated: deflated}
	c.hear()
	return c
}

// Next returns the next message, OpText or OpBinary, or control frame, OpClose, OpPing or OpPong. A *FrameError says
// what the peer did wrong; after it, or another error, nothing can be read.
func (c *Conn) Next() (op byte, payload []byte, err error) { return c.in.next() }

// Await waits until Next has something to do. It does so with half of the stack that a read takes, which then fits what
// a goroutine begins with. On anything but a plain TCP connection it does not wait.
func (c *Conn) Await() {
	if c.raw != nil && len(c.in.rest) == 0 {
		_ = c.raw.Read(c.readOnce) // an error is met again by Next
	}
}

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

// pack is room to join frames in.
type pack struct {
	room []byte
	attempt
}

var packs = sync.Pool{New: func() any {
	p := &pack{room: make([]byte, 0, packBytes)}
	p.init()
	return p
}}

func (p *pack) join(frames [][]byte) []byte {
	p.room = p.room[:0]
	for _, f := range frames {
		p.room = append(p.room, f...)
	}
	return p.room
}

// Send writes frames in order, after what TrySend has left of one. timeout is for each 64 KiB, so that a large message
// over a slow link is cut off only when it stops moving; it may be shorter by a quarter. After an error the stream is
// broken and must be closed.
func (c *Conn) Send(timeout time.Duration, frames ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held != nil {
		var first []byte
		if len(frames) > 0 {
			first, frames = frames[0], frames[1:]
		}
		rest, err := c.greet(timeout, first)
		if err == nil && len(rest) > 0 {
			err = c.sendChunks(rest, timeout)
		}
		if err != nil {
			return err
		}
	}
	if len(frames) == 1 {
		return c.sendChunks(frames[0], timeout)
	}
	var p *pack
	if len(frames) > 1 {
		p = packs.Get().(*pack)
		defer packs.Put(p)
	}
	for len(frames) > 0 {
		n, size := 0, 0
		for n < len(frames) && size+len(frames[n]) <= packBytes {
			size += len(frames[n])
			n++
		}
		out := frames[0]
		if n > 1 {
			out = p.join(frames[:n])
		}
		if err := c.sendChunks(out, timeout); err != nil {
			return err
		}
		frames = frames[max(n, 1):]
	}
	return nil
}

// TrySend writes frames in order if the network takes them at once. If it does not, left are those that Send is to
// write; of one that has gone out in part, the next Send writes the rest before anything else. It tries nothing if
// the connection is not a plain TCP connection, if the response to the handshake waits, or if there are more than
// 16 KiB.
func (c *Conn) TrySend(frames ...[]byte) (left [][]byte, done bool) {
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	if c.raw == nil || size > packBytes || !c.mu.TryLock() {
		return frames, false
	}
	defer c.mu.Unlock()
	if c.held != nil {
		return frames, false
	}
	p := packs.Get().(*pack)
	defer packs.Put(p)
	out := frames[0]
	if len(frames) > 1 {
		out = p.join(frames)
	}
	n := p.write(c.raw, out)
	c.wrote(n)
	switch n {
	case 0:
		return frames, false
	case size:
		return nil, true
	}
	c.held = bytes.Clone(out[n:])
	return nil, false
}

// Held reports whether something waits to go out before the next frame: the response to the handshake.
func (c *Conn) Held() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held != nil
}

// Greet writes the response to the handshake if it still waits for something to be sent.
func (c *Conn) Greet(timeout time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	_, err := c.greet(timeout, nil)
	return err
}

// greet writes the response and the beginning of a frame in one call, and returns the rest of the frame.
func (c *Conn) greet(timeout time.Duration, frame []byte) (rest []byte, err error) {
	if err := c.extend(timeout); err != nil {
		return nil, err
	}
	n := min(len(frame), chunkBytes)
	both := net.Buffers{c.held, frame[:n]}
	c.held = nil
	written, err := both.WriteTo(c.Conn)
	c.wrote(int(written))
	return frame[n:], err
}

// wrote counts bytes.
func (c *Conn) wrote(n int) {
	c.sent.Add(uint64(n))
	if c.total != nil {
		c.total.Add(uint64(n))
	}
}

func (c *Conn) sendChunks(out []byte, timeout time.Duration) error {
	for len(out) > 0 {
		if err := c.extend(timeout); err != nil {
			return err
		}
		n, err := c.Write(out[:min(len(out), chunkBytes)])
		c.wrote(n)
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
