package tilehttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/tile"
)

// HandoverPath is where the client sends hand-overs.
const HandoverPath = "/tilefence/v1/handover"

// Accepter takes tiles over from their owners: a tilehost.Host. It must be safe for concurrent use.
type Accepter interface {
	// Accept validates the hand-over, takes the tile over and returns when it is served. After ctx ends it may return
	// without.
	Accept(ctx context.Context, h tile.Handover) error
}

type wireHandover struct {
	Version  int          `json:"v"`
	Tile     fence.TileID `json:"tile"`
	Epoch    fence.Epoch  `json:"epoch"`
	Position string       `json:"position"`
	From     string       `json:"from"`
	To       string       `json:"to"`
}

type wireAccepted struct {
	Version int        `json:"v"`
	Serving bool       `json:"serving,omitempty"`
	Error   *wireError `json:"error,omitempty"`
}

// HandoverHandler serves hand-overs to a. It answers POST on whatever path it is mounted, refuses more than
// 16 KiB, and passes nothing to a that it cannot read. Of cfg, which may be nil, Keys, Contact and Logger
// count. Without Keys only processes that run tiles may reach it: any caller can move every tile to this process. Serve
// it on an internal port, like the intents.
func HandoverHandler(a Accepter, cfg *HandlerConfig) http.Handler {
	c := setting.Of(cfg)
	refusals := sampled.Logger(c.Logger)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST a hand-over", http.StatusMethodNotAllowed)
			return
		}
		if !fromProgram(w, r, "application/json") {
			return
		}
		b, err := readBody(w, r, maxRequest)
		if err == nil {
			if unproven := c.Keys.checkRequest(roleGiver, r.Header, c.Contact, b); unproven != nil {
				refusals.Warn("a hand-over was refused", "remote", r.RemoteAddr, "error", unproven)
				http.Error(w, unproven.Error(), http.StatusUnauthorized)
				return
			}
			var h tile.Handover
			if h, err = decodeHandover(b); err == nil {
				err = a.Accept(r.Context(), h)
			}
		}
		if err != nil {
			e := encodeRefusal(err)
			answer(w, r, c.Keys, statuses[e.Code], wireAccepted{Version: version, Error: &e})
			return
		}
		answer(w, r, c.Keys, http.StatusOK, wireAccepted{Version: version, Serving: true})
	})
}

// answer replies to a hand-over, with the proof that this process is a peer.
func answer(w http.ResponseWriter, r *http.Request, keys Keys, status int, a wireAccepted) {
	keys.signAccepted(r.Header, w.Header(), mustEncode(a))
	reply(w, status, a)
}

// Handover asks the process at h.To to take the tile over, and returns nil when it serves there; bound it by
// ctx. It is sent at most once.
//
// Errors: what the process's Accepter answered (*tile.RedirectError when the tile has moved on from the
// giver, *fence.LostError, tile.ErrHostEnded, tile.ErrOverloaded, *fence.ArgumentError), or an
// *UnavailableError. Unless that is fence.ErrNotApplied the tile may still be taken over.
func (c *Client) Handover(ctx context.Context, h tile.Handover) error {
	body, err := encodeHandover(&h)
	if err != nil {
		return err
	}
	status, b, err := c.post(ctx, h.To, request{path: HandoverPath, kind: "application/json", role: roleGiver,
		body: body, most: maxReply})
	if err != nil {
		return err
	}
	err = decodeAccepted(b, &h)
	for _, known := range []error{tile.ErrRedirect, fence.ErrLost, tile.ErrHostEnded, tile.ErrOverloaded,
		fence.ErrInvalidArgument} {
		if errors.Is(err, known) {
			return err
		}
	}
	if err != nil {
		return &UnavailableError{Contact: h.To, Outcome: fence.ErrUnknownOutcome,
			Err: fmt.Errorf("status %d: %w", status, err)}
	}
	return nil
}

func encodeHandover(h *tile.Handover) ([]byte, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(wireHandover{Version: version, Tile: h.Tile, Epoch: h.Epoch, Position: h.Position.String(),
		From: h.From, To: h.To})
}

// decodeHandover reads a request. Its error is a *fence.ArgumentError.
func decodeHandover(b []byte) (tile.Handover, error) {
	var w wireHandover
	if err := decodeRequest(b, &w, &w.Version, "a hand-over"); err != nil {
		return tile.Handover{}, err
	}
	at, err := fence.ParsePosition(w.Position)
	if err != nil {
		return tile.Handover{}, err
	}
	return tile.Handover{Tile: w.Tile, Epoch: w.Epoch, Position: at, From: w.From, To: w.To}, nil
}

// encodeRefusal says an Accepter's error in terms of the wire.
func encodeRefusal(err error) wireError {
	lost, isLost := errors.AsType[*fence.LostError](err)
	switch {
	case isLost:
		return wireError{Code: codeLost, Message: err.Error(), Tile: lost.Tile, Epoch: lost.Current.Epoch,
			Contact: lost.Current.Contact}
	case errors.Is(err, tile.ErrHostEnded):
		return wireError{Code: codeEnding, Message: err.Error()}
	}
	return encodeError(err)
}

// decodeAccepted reads an answer: nil, the error the Accepter gave, or errNotOurs.
func decodeAccepted(b []byte, h *tile.Handover) error {
	var a wireAccepted
	if err := json.Unmarshal(b, &a); err != nil || a.Version != version || (a.Error == nil) != a.Serving {
		return errNotOurs
	}
	if a.Serving {
		return nil
	}
	switch e := a.Error; e.Code {
	case codeRedirect:
		return &tile.RedirectError{Tile: h.Tile, Epoch: e.Epoch, Contact: e.Contact}
	case codeLost:
		return &fence.LostError{Tile: h.Tile, Current: fence.Grant{Tile: h.Tile, Epoch: e.Epoch, Contact: e.Contact}}
	case codeEnding:
		return tile.ErrHostEnded
	case codeOverloaded:
		return tile.ErrOverloaded
	case codeInvalid:
		return &fence.ArgumentError{Field: e.Field, Value: e.Value, Want: e.Want}
	case codeUnavailable:
		return errors.New(e.Message)
	}
	return errNotOurs
}

// request is what one tile server asks another.
type request struct {
	path, kind, role string
	body             []byte
	most             int // bytes of the answer
}

// post sends a request once and reads the whole answer. Its error is an *UnavailableError.
func (c *Client) post(ctx context.Context, contact string, r request) (status int, b []byte, err error) {
	url, err := c.cfg.urlAt(contact, r.path)
	if err != nil {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: fence.ErrNotApplied, Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(r.body))
	if err != nil {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: fence.ErrNotApplied, Err: err}
	}
	req.Header.Set("Content-Type", r.kind)
	c.cfg.Keys.signRequest(r.role, req.Header, contact, r.body)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: sent(err), Err: err}
	}
	defer resp.Body.Close() //nolint:errcheck // what was read is checked by itself
	// Read to the end, or the connection could not be used again.
	b, err = io.ReadAll(io.LimitReader(resp.Body, int64(r.most)+1))
	if err != nil || len(b) > r.most {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: fence.ErrUnknownOutcome,
			Err: errors.Join(errNotOurs, err)}
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: fence.ErrNotApplied,
			Err: errors.New(cut(strings.TrimSpace(string(b))))}
	}
	if err = c.cfg.Keys.checkAccepted(req.Header, resp.Header, b); err != nil {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	return resp.StatusCode, b, nil
}

// sent reports whether a failed request may have been received: not if there was no connection, or one to another
// whose certificate is not believed.
// The transport sends a POST on another connection only when it has written nothing on the first.
func sent(err error) error {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &op) && op.Op == "dial" || errors.As(err, &certificate) {
		return fence.ErrNotApplied
	}
	return fence.ErrUnknownOutcome
}
