package relay

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// wire is the network connection under a WebSocket. The library does the handshake, reads, and writes
// the close frame; the relay writes everything else itself, because its frames are encoded once for all
// clients, header included, and several go out in one write. Both write whole frames under one lock.
type wire struct {
	net.Conn
	own   time.Duration  // for the library to write a close frame
	mu    sync.Mutex     // held while frames are written
	heard atomic.Int64   // when bytes last came from the peer, nanoseconds since 1970
	sent  atomic.Uint64  // bytes written
	total *atomic.Uint64 // the same for the whole relay
}

const (
	chunkBytes = 64 << 10 // written within one write timeout
	packBytes  = 16 << 10 // frames up to this size together are copied into one write
)

var packs = sync.Pool{New: func() any { b := make([]byte, 0, packBytes); return &b }}

// Read implements net.Conn and notes that the peer is alive.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// Write implements net.Conn. The library calls it with one control frame at a time.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.SetWriteDeadline(time.Now().Add(w.own)); err != nil { // else the last send's holds
		return 0, err
	}
	n, err := w.Conn.Write(p)
	w.wrote(n)
	return n, err
}

func (w *wire) wrote(n int) {
	w.sent.Add(uint64(n))
	w.total.Add(uint64(n))
}

// send writes frames in order. timeout is for each 64 KiB, so that a large Sync over a slow link is cut
// off only when it stops moving. After an error the stream is broken and must be closed.
func (w *wire) send(frames [][]byte, timeout time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
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
		if err := w.sendChunks(out, timeout); err != nil {
			return err
		}
		frames = frames[max(n, 1):]
	}
	return nil
}

func (w *wire) sendChunks(out []byte, timeout time.Duration) error {
	for len(out) > 0 {
		if err := w.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		n, err := w.Conn.Write(out[:min(len(out), chunkBytes)])
		w.wrote(n)
		if err != nil {
			return err
		}
		out = out[n:]
	}
	return nil
}

// capture is a ResponseWriter that lets the WebSocket library take over the connection through a wire,
// with buffers no larger than a client's small messages need.
type capture struct {
	http.ResponseWriter
	wire  *wire
	own   time.Duration
	total *atomic.Uint64
}

// Hijack implements http.Hijacker.
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c.wire = &wire{Conn: conn, own: c.own, total: c.total}
	c.wire.heard.Store(time.Now().UnixNano())
	in := rw.Reader
	if in.Buffered() == 0 { // else it holds what the client sent right behind its handshake
		in = bufio.NewReaderSize(c.wire, 1024)
	}
	return c.wire, bufio.NewReadWriter(in, bufio.NewWriterSize(c.wire, 256)), nil
}
