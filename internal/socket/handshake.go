package socket

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
)

// Offer is what a server agrees to in a handshake.
type Offer struct {
	Subprotocol string   // that the client has offered, too
	Origins     []string // allowed beside the server's own: patterns of path.Match for a host, or for scheme://host
	AnyOrigin   bool     // all are allowed
	Deflate     bool     // permessage-deflate, each message by itself, if the client offers it
	Hold        bool     // the response waits for what is sent first, and leaves with it: call Conn.Send or Conn.Greet
}

// handshakeTimeout bounds the write of the response.
const handshakeTimeout = 5 * time.Second

// Accept makes the handshake of a request (RFC 6455, section 4.2) and takes the connection over; messages may have
// limit bytes. What the Conn writes is counted in total too, unless that is nil. enter decides over a request that is
// a handshake of an allowed origin: the last thing before the connection is taken over. With an error the response has
// been written, except if it is an error of enter, which has to write it.
func Accept(
	w http.ResponseWriter, r *http.Request, offer Offer, limit int, total *atomic.Uint64, enter func() error,
) (*Conn, error) {
	if status, err := offer.refuse(w.Header(), r); err != nil {
		http.Error(w, err.Error(), status)
		return nil, err
	}
	if err := enter(); err != nil {
		return nil, err
	}
	conn, behind, err := takeOver(w)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusNotImplemented), http.StatusNotImplemented)
		return nil, fmt.Errorf("the connection cannot be taken over: %w", err)
	}
	deflated := offer.Deflate && offersDeflate(r.Header)
	c := newConn(conn, behind, deflated, limit, total)
	err = conn.SetReadDeadline(time.Time{}) // the server's was for the request
	response := offer.response(w.Header(), r.Header.Get("Sec-WebSocket-Key"), deflated)
	if err == nil && offer.Hold {
		c.held = response
		return c, nil
	}
	if err == nil {
		err = c.extend(handshakeTimeout)
	}
	if err == nil {
		_, err = conn.Write(response)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// takeOver takes the connection of a response over, with what the client has sent behind its handshake.
func takeOver(w http.ResponseWriter) (conn net.Conn, behind []byte, err error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if n := rw.Reader.Buffered(); n > 0 {
		peeked, _ := rw.Reader.Peek(n) // it is in the buffer, so there is no error
		behind = bytes.Clone(peeked)
	}
	return conn, behind, nil
}

// refuse says what is wrong with a request, and with which status it is to be answered; nil for a handshake of an
// allowed origin.
func (o *Offer) refuse(response http.Header, r *http.Request) (status int, wrong error) {
	h := r.Header
	switch {
	case !r.ProtoAtLeast(1, 1) || !has(h["Connection"], "Upgrade") || !has(h["Upgrade"], "websocket"):
		response["Connection"], response["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		return http.StatusUpgradeRequired, fmt.Errorf("a request of %s with Connection %.50q and Upgrade %.50q, "+
			"want a WebSocket handshake", r.Proto, h.Get("Connection"), h.Get("Upgrade"))
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, fmt.Errorf("a handshake with %s, want GET", r.Method)
	case h.Get("Sec-Websocket-Version") != "13":
		response["Sec-Websocket-Version"] = []string{"13"}
		return http.StatusBadRequest, fmt.Errorf("version %.50q of WebSocket, want 13", h.Get("Sec-Websocket-Version"))
	case len(h["Sec-Websocket-Key"]) != 1 || !isKey(h["Sec-Websocket-Key"][0]):
		return http.StatusBadRequest, fmt.Errorf("%d keys, want one of 16 bytes in base64", len(h["Sec-Websocket-Key"]))
	}
	if origin := h.Get("Origin"); origin != "" && !o.AnyOrigin {
		return http.StatusForbidden, o.checkOrigin(r.Host, origin)
	}
	return 0, nil
}

// isKey reports whether a client's key is one.
func isKey(key string) bool {
	var room [24]byte
	n, err := base64.StdEncoding.Decode(room[:], []byte(key[:min(len(key), 24)]))
	return err == nil && n == 16 && len(key) == 24
}

// checkOrigin says why an origin is not allowed.
func (o *Offer) checkOrigin(host, origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return fmt.Errorf("origin %.100q is no URL with a host", origin)
	}
	if strings.EqualFold(host, u.Host) {
		return nil
	}
	for _, pattern := range o.Origins {
		of := u.Host
		if strings.Contains(pattern, "://") {
			of = u.Scheme + "://" + u.Host
		}
		if ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(of)); ok && err == nil {
			return nil
		}
	}
	return fmt.Errorf("origin %.100q is not allowed", origin)
}

// has reports whether the values of a header have a token, in any case of letters.
func has(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(t), token) {
				return true
			}
		}
	}
	return false
}

// offersDeflate reports whether a client offers permessage-deflate (RFC 7692) with parameters that can be met: each
// message is compressed by itself, with a window of any size that the client likes, and the server's of 32 KiB.
func offersDeflate(h http.Header) bool {
	for _, v := range h["Sec-Websocket-Extensions"] {
		for extension := range strings.SplitSeq(v, ",") {
			name, params, more := strings.Cut(extension, ";")
			if textproto.TrimString(name) == "permessage-deflate" && (!more || canDeflate(params)) {
				return true
			}
		}
	}
	return false
}

func canDeflate(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, _, _ := strings.Cut(textproto.TrimString(p), "=")
		switch {
		case name == "client_no_context_takeover", name == "server_no_context_takeover",
			name == "client_max_window_bits", textproto.TrimString(p) == "server_max_window_bits=15":
		default:
			return false
		}
	}
	return true
}

// guid is what a server appends to the client's key (RFC 6455, section 1.3).
const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// response is the server's half of the handshake, with the header that earlier handlers of the request have set.
func (o *Offer) response(header http.Header, key string, deflated bool) []byte {
	var b bytes.Buffer
	b.Grow(256)
	sum := sha1.Sum(append([]byte(key), guid...))
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: ")
	b.Write(base64.StdEncoding.AppendEncode(b.AvailableBuffer(), sum[:]))
	if o.Subprotocol != "" {
		b.WriteString("\r\nSec-WebSocket-Protocol: " + o.Subprotocol)
	}
	if deflated {
		b.WriteString("\r\nSec-WebSocket-Extensions: permessage-deflate; " +
			"client_no_context_takeover; server_no_context_takeover")
	}
	b.WriteString("\r\n")
	_ = header.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	return b.Bytes()
}

// Redact is a URL without what may be a secret, for errors and logs: no user and password, no query, no fragment. One
// that cannot be parsed is not shown.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return "(not a URL)"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.RawQuery != "" {
		return shown.String() + "?…"
	}
	return shown.String()
}

// DialError is the error of a handshake without the URLs in it, with the reason that the response gives, if there is
// one. Package net/http puts the URL into its errors, with its query.
func DialError(err error, resp *http.Response) error {
	for {
		u, ok := errors.AsType[*url.Error](err)
		switch {
		case !ok:
			if why := reason(resp); why != "" {
				return fmt.Errorf("%w: %s", err, why)
			}
			return err
		case u.Op == "parse":
			return errors.New("the URL cannot be parsed")
		}
		err = u.Err
	}
}

// RetryAfter is the value of the header of that name: whole seconds.
func RetryAfter(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}

// After is how long a server that refuses a handshake wants its client to wait; zero: it does not say.
func After(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, mostAfter)
}

// mostAfter keeps a client from waiting for ever for a word of its server's.
const mostAfter = time.Minute

// Refused reports whether the status of a handshake means that it is refused for good: another attempt, with the same
// credentials, has no better answer.
func Refused(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests
}

// reason is the first line of a text with which a server refuses a handshake; empty if there is none that can be shown.
func reason(resp *http.Response) string {
	if resp == nil || resp.StatusCode < 400 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // as far as it has come
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, line)
}
