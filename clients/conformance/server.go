package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/session"
)

const (
	viewPath   = "/view" // the relay
	intentPath = "/play" // the gateway
	intents    = "tilefence.intent.v1.json"
)

// peer is a connection of the client, as its server has it.
type peer struct {
	s     *trial
	path  string
	token string
	ws    *websocket.Conn
	// of a relay
	encoding relaypb.Encoding
	in       chan []byte // messages; closed when the connection has ended
}

// serve takes a handshake, unless the case has its own answer to it.
func (s *trial) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	handshake := s.handshake
	s.mu.Unlock()
	s.note("arrives  %s %s", r.URL, strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ", "))
	if handshake != nil && handshake(w, r) {
		return
	}
	p := s.upgrade(w, r)
	if p == nil {
		return
	}
	s.mu.Lock()
	s.peers = append(s.peers, p)
	s.mu.Unlock()
	if first := w.Header().Get(relaypb.SubscribedHeader); first != "" {
		subscribe, err := relaypb.ParseSubscribe(r.URL.Query().Get(relaypb.SubscribeParam))
		if err == nil {
			var b []byte
			b, err = p.encoding.Append(nil, &relaypb.ClientMessage{
				Body: &relaypb.ClientMessage_Subscribe{Subscribe: subscribe}})
			p.in <- b
		}
		if err != nil {
			s.note("the handshake's subscription cannot be read: %v", err)
		}
	}
	s.arrivals <- p
	p.read()
}

// upgrade accepts a handshake. It takes the subscription that it names, as relays do.
func (s *trial) upgrade(w http.ResponseWriter, r *http.Request) *peer {
	offers := []string{intents}
	if r.URL.Path == viewPath {
		offers = []string{relaypb.Subprotocol, relaypb.SubprotocolJSON}
		if r.URL.Query().Has(relaypb.SubscribeParam) && r.Header.Get("Old-Relay") == "" {
			w.Header().Set(relaypb.SubscribedHeader, "1")
		}
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: offers, InsecureSkipVerify: true})
	if err != nil {
		s.note("the handshake failed: %v", err)
		return nil
	}
	if !slices.Contains(offers, ws.Subprotocol()) {
		s.note("the client offered none of the subprotocols %q", offers)
		_ = ws.Close(websocket.StatusProtocolError, "no subprotocol")
		return nil
	}
	encoding, _ := relaypb.EncodingOf(ws.Subprotocol())
	return &peer{s: s, path: r.URL.Path, token: session.Token(r), ws: ws, encoding: encoding,
		in: make(chan []byte, 256)}
}

func (p *peer) read() {
	defer close(p.in)
	for {
		_, b, err := p.ws.Read(p.s.ctx)
		if err != nil {
			p.s.note("  ended  %s: %v", p.path, err)
			return
		}
		p.s.note("  sends  %s", p.show(b))
		p.in <- b
	}
}

// answers sets what becomes of handshakes from now on. Nil accepts them.
func (s *trial) answers(handshake func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handshake = handshake
}

// denies refuses each handshake as relays and gateways do: with a status, or, for a browser, with a code after it. The
// channel has the time of each.
func (s *trial) denies(status int, code websocket.StatusCode, reason string) <-chan time.Time {
	came := make(chan time.Time, 256)
	s.answers(func(w http.ResponseWriter, r *http.Request) bool {
		came <- time.Now()
		if r.Header.Get("Origin") == "" {
			http.Error(w, reason, status)
		} else if p := s.upgrade(w, r); p != nil {
			_ = p.ws.Close(code, reason)
		}
		return true
	})
	return came
}

// arrives expects a connection to a path.
func (s *trial) arrives(path string) *peer { return s.arrivesWithin(s.patience, path) }

func (s *trial) arrivesWithin(within time.Duration, path string) *peer {
	select {
	case p := <-s.arrivals:
		if p.path != path {
			s.fail("a connection to %s, want one to %s", p.path, path)
		}
		return p
	case <-time.After(within):
		s.fail("no connection to %s within %v", path, within)
	}
	return nil
}

// next is the client's next message.
func (p *peer) next(within time.Duration, want string) []byte {
	select {
	case m, open := <-p.in:
		if !open {
			p.s.fail("the client's connection has ended, want %s", want)
		}
		return m
	case <-time.After(within):
		p.s.fail("no message within %v, want %s", within, want)
	case <-p.s.ctx.Done():
		p.s.fail("want %s: %w", want, context.Cause(p.s.ctx))
	}
	return nil
}

func (p *peer) write(b []byte) {
	kind := websocket.MessageText
	if p.encoding == relaypb.Binary {
		kind = websocket.MessageBinary
	}
	ctx, cancel := context.WithTimeout(p.s.ctx, p.s.patience)
	defer cancel()
	if err := p.ws.Write(ctx, kind, b); err != nil {
		p.s.fail("the client's connection has ended: %w", err)
	}
}

// closes ends the connection with a status.
func (p *peer) closes(code websocket.StatusCode, reason string) {
	p.s.note("close    %d %s", code, reason)
	go func() { _ = p.ws.Close(code, reason) }() // which waits for the client's answer
}

// cut ends the connection without a word.
func (p *peer) cut() {
	p.s.note("cut      %s", p.path)
	_ = p.ws.CloseNow()
}

// ends expects that the client leaves the connection.
func (p *peer) ends(within time.Duration) {
	late := time.After(within)
	for {
		select {
		case _, open := <-p.in:
			if !open {
				return
			}
		case <-late:
			p.s.fail("the client has kept the connection for %v", within)
		}
	}
}

func (s *trial) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		_ = p.ws.CloseNow()
	}
}
