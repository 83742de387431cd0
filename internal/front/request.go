package front

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// readers are what handshakes are read with.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, headBytes) }}

// readHead returns what was read when that is a whole head, or as much of one as there is room for, or all that the
// peer sends. It stays in the reader.
func readHead(from *bufio.Reader) (head []byte, err error) {
	for {
		_, err = from.Peek(len(head) + 1)
		head, _ = from.Peek(from.Buffered())
		switch {
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF) && len(head) > 0:
			return head, nil // an http.Server goes on, or says what is wrong
		case err != nil:
			return nil, err
		case bytes.Contains(head, []byte("\n\r\n")) || bytes.Contains(head, []byte("\n\n")):
			return head, nil
		}
	}
}

// handshake reads a request that is whole, and a WebSocket handshake that package http would take as it is; nil: it
// is none.
func handshake(head []byte, from *bufio.Reader) *http.Request {
	end := bytes.Index(head, []byte("\r\n\r\n"))
	if end < 0 || !bytes.HasPrefix(head, []byte("GET /")) || !oneHost(head[:end]) {
		return nil
	}
	r, err := http.ReadRequest(from) // all of it is in the reader's buffer, which head stays a view of
	switch {
	case err != nil, r.Host == "", r.Proto != "HTTP/1.1", r.ContentLength != 0, r.TransferEncoding != nil,
		!httpguts.ValidHostHeader(r.Host), !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"),
		!httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade"), r.Header.Get("Sec-Websocket-Key") == "",
		r.Header["Expect"] != nil, r.Header["Content-Length"] != nil:
		return nil
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, func(v string) bool {
			return !httpguts.ValidHeaderFieldValue(v)
		}) {
			return nil
		}
	}
	return r
}

// oneHost reports whether a request names its host once. Of two, http.ReadRequest would take one.
func oneHost(head []byte) bool {
	hosts := 0
	for line := range bytes.Lines(head) {
		if len(line) > 5 && bytes.EqualFold(line[:5], []byte("host:")) {
			hosts++
		}
	}
	return hosts == 1
}
