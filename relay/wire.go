package relay

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// wire is the network connection under a WebSocket. The library does the handshake; the relay reads and writes
// itself, because its frames are encoded once for all clients, header included, several go out in one write, and
// a silent connection must cost little.
type wire struct {
	net.Conn
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

// capture is a ResponseWriter that takes the connection when the WebSocket library has made the handshake. What the
// library is given is not used after it.
type capture struct {
	http.ResponseWriter
	conn   net.Conn
	behind []byte // what the client sent right behind its handshake
}

// Hijack implements http.Hijacker.
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
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
