package front

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// response is what the handler of a handshake writes to. It becomes the handler's connection, or is sent when the
// handler returns; then the connection is closed.
type response struct {
	of      *Listener
	conn    net.Conn      // nil: it is not this response's any more
	from    *bufio.Reader // likewise
	request *http.Request
	header  http.Header
	status  int // zero: none yet
	body    bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter. Informational responses are left out, but for the switch of protocols.
func (w *response) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	if w.conn == nil {
		return 0, http.ErrHijacked
	}
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// SetReadDeadline serves http.ResponseController.
func (w *response) SetReadDeadline(t time.Time) error {
	if w.conn == nil {
		return http.ErrHijacked
	}
	return w.conn.SetReadDeadline(t)
}

// SetWriteDeadline serves http.ResponseController.
func (w *response) SetWriteDeadline(t time.Time) error {
	if w.conn == nil {
		return http.ErrHijacked
	}
	return w.conn.SetWriteDeadline(t)
}

// TakeOver gives the connection, and what the client has sent behind its handshake, to a handler that has buffers of
// its own. Package socket asks for it. The read deadline is the request's.
func (w *response) TakeOver() (c net.Conn, behind []byte, err error) {
	if w.conn == nil {
		return nil, nil, http.ErrHijacked
	}
	if n := w.from.Buffered(); n > 0 {
		behind, _ = w.from.Peek(n) // it is in the buffer, so there is no error
		behind = bytes.Clone(behind)
	}
	c, w.conn = w.conn, nil
	w.of.leaves(c)
	w.free()
	return c, behind, nil
}

// Hijack implements http.Hijacker.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.conn == nil {
		return nil, nil, http.ErrHijacked
	}
	c, from := w.conn, w.from
	w.conn, w.from = nil, nil
	w.of.leaves(c)
	to := bufio.NewWriter(c)
	err := c.SetReadDeadline(time.Time{})
	if w.status != 0 { // the handler has begun to answer
		_, _ = fmt.Fprintf(to, "HTTP/1.1 %d %s\r\n", w.status, http.StatusText(w.status))
		_ = w.Header().Write(to)
		_, _ = to.WriteString("\r\n")
		_, _ = to.Write(w.body.Bytes())
		if failed := to.Flush(); err == nil {
			err = failed
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return c, bufio.NewReadWriter(from, to), nil
}

// finish sends the response, unless the handler has the connection.
func (w *response) finish() {
	if w.conn == nil {
		return
	}
	w.WriteHeader(http.StatusOK)
	h := w.Header()
	if h["Content-Type"] == nil && w.body.Len() > 0 {
		h.Set("Content-Type", http.DetectContentType(w.body.Bytes()))
	}
	if h["Date"] == nil {
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	r := http.Response{StatusCode: w.status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Close: true, Request: w.request,
		Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len())}
	if w.conn.SetDeadline(time.Now().Add(lingerFor)) != nil || r.Write(w.conn) != nil {
		return
	}
	// What the client has sent meanwhile would reset the connection, and the answer with it.
	if half, ok := w.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, w.conn, lingerBytes)
	}
}

// How long, and for how many bytes, a connection is read after its last response.
const (
	lingerFor   = 500 * time.Millisecond
	lingerBytes = 64 << 10
)

// end closes the connection and frees the reader, if they are still the response's.
func (w *response) end() {
	if w.conn != nil {
		_ = w.conn.Close()
	}
	w.free()
}

func (w *response) free() {
	if w.from != nil {
		w.from.Reset(nil)
		readers.Put(w.from)
		w.from = nil
	}
}
