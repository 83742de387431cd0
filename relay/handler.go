package relay

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
)

// startGrace is how long a request may wait for Run to begin: a program starts both at about the same time.
const startGrace = time.Second

// Handler returns the handler that upgrades requests to client connections, for the path of your choice.
// It answers, in this order: 429 with Retry-After to one handshake or connection too many of an address; 503 with
// Retry-After unless Run runs (a request waits up to a second for it), while draining, when MaxClients are in their
// handshakes, and while the relay is late (Stats.Late); 400 to a request that offers no subprotocol of the relay, whose
// first subscription (the parameter "subscribe") cannot be read, or that is no handshake; 403 if Origins do not have
// its origin; 401 if Authenticate refuses it, 503 if that takes too long; 429 to one connection too many of an actor;
// 503 when MaxClients are connected, unless one of an actor or address that holds more makes place.
// The body of each says why in a line. A browser does not show its page the last four, so a request with an Origin is
// upgraded and closed instead: with 4003 if a token has expired, 1013 for 503 and 429, otherwise 1008, and the same
// words.
// A connection it has taken over belongs to the Relay:
// http.Server.Shutdown does not know of it, Run and Drain end it.
func (r *Relay) Handler() http.Handler {
	return http.HandlerFunc(r.handle)
}

func (r *Relay) handle(w http.ResponseWriter, req *http.Request) {
	sess, err := r.gate.Accept(req)
	if err != nil {
		r.refuse(w, req, err)
		return
	}
	r.awaitRun(req.Context())
	after := r.backlog.turns.Full(time.Now(), overload.Join)
	if after > 0 || !r.life.admit() {
		sess.Close()
		r.count.refused.Add(1)
		w.Header().Set("Retry-After", socket.RetryAfter(max(after, time.Second)))
		http.Error(w, "the relay takes no more clients; try another one", http.StatusServiceUnavailable)
		return
	}
	c, first, ok := r.accept(w, req, sess)
	if !ok {
		sess.Close()
		r.count.refused.Add(1)
		r.life.dismiss()
		return
	}
	r.count.connected.Add(1)
	r.serve(c, req, first)
}

// refuse answers a request that the gate turns away.
func (r *Relay) refuse(w http.ResponseWriter, req *http.Request, err error) {
	r.count.refused.Add(1)
	r.cfg.refusals.Info("client refused", "remote", req.RemoteAddr, "error", err)
	gate.Answer(w, err)
}

// awaitRun waits a little for Run, if it has not begun.
func (r *Relay) awaitRun(ctx context.Context) {
	select {
	case <-r.life.began:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, startGrace)
	defer cancel()
	select {
	case <-r.life.began:
	case <-ctx.Done():
	}
}

// accept decides over a request and upgrades it; ok is false when the response says why not. The response to a
// handshake that names the first subscription waits for what the client is sent then.
func (r *Relay) accept(
	w http.ResponseWriter, req *http.Request, sess *gate.Session,
) (c *client, first *relaypb.Subscribe, ok bool) {
	encoding, ok := offered(req)
	if !ok {
		http.Error(w, "offer the WebSocket subprotocol "+relaypb.Subprotocol+" or "+relaypb.SubprotocolJSON,
			http.StatusBadRequest)
		return nil, nil, false
	}
	first, err := firstSubscribe(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, nil, false
	}
	if first != nil {
		w.Header().Set(relaypb.SubscribedHeader, "1")
	}
	var refused error
	c = r.newClient(sess, encoding)
	offer := socket.Offer{Subprotocol: encoding.Subprotocol(), Origins: r.cfg.Origins, Deflate: true,
		Hold: first != nil}
	wire, err := socket.Accept(w, req, offer, r.cfg.inboundBytes, &r.count.bytesOut, func() error {
		refused = sess.Identify(req)
		return refused
	})
	if err != nil {
		r.cfg.refusals.Info("client refused", "remote", req.RemoteAddr, "error", cmp.Or(refused, err))
		if refused != nil {
			offer.Hold = false
			gate.Refuse(w, req, offer, refused)
		}
		return nil, nil, false
	}
	c.wire, c.form = wire, formOf(encoding, wire.Deflated)
	c.heartbeat = r.heartbeats[c.form]
	return c, first, true
}

// firstSubscribe is the subscription that a handshake names; nil: it names none.
func firstSubscribe(req *http.Request) (*relaypb.Subscribe, error) {
	if req.URL.RawQuery == "" {
		return nil, nil
	}
	value := req.URL.Query()[relaypb.SubscribeParam]
	if len(value) == 0 {
		return nil, nil
	}
	return relaypb.ParseSubscribe(value[0])
}

// offered picks the first subprotocol of the client's that the relay speaks.
func offered(req *http.Request) (relaypb.Encoding, bool) {
	for _, line := range req.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			if e, ok := relaypb.EncodingOf(strings.TrimSpace(name)); ok {
				return e, true
			}
		}
	}
	return 0, false
}
