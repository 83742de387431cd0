package tilehttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Path is where the client sends intents.
const Path = "/tilefence/v1/intent"

// MaxRequest is the most bytes a request may have: an intent of the largest size, its names escaped, and
// its body in base64, fit well within.
const MaxRequest = 16 << 10

// maxReply bounds what the client reads of an answer.
const maxReply = 64 << 10

const version = 1

type wireIntent struct {
	Version int          `json:"v"`
	Tile    fence.TileID `json:"tile"`
	Action  string       `json:"action,omitempty"`
	Actor   string       `json:"actor,omitempty"`
	Body    []byte       `json:"body,omitempty"`
}

type wireReply struct {
	Version int        `json:"v"`
	Outcome string     `json:"outcome,omitempty"`
	Error   *wireError `json:"error,omitempty"`
}

type wireError struct {
	Code    string       `json:"code"`
	Message string       `json:"message,omitempty"` // for people
	Tile    fence.TileID `json:"tile,omitempty"`
	Epoch   fence.Epoch  `json:"epoch,omitempty"`
	Contact string       `json:"contact,omitempty"`
	Field   string       `json:"field,omitempty"`
	Value   string       `json:"value,omitempty"`
	Want    string       `json:"want,omitempty"`
}

// The codes, and their statuses.
const (
	codeRedirect    = "redirect"
	codeUnresolved  = "unresolved"
	codeOverloaded  = "overloaded"
	codeInvalid     = "invalid"
	codeUnavailable = "unavailable"
	codeLost        = "lost"   // hand-overs only
	codeEnding      = "ending" // hand-overs only
)

var statuses = map[string]int{
	codeRedirect:    http.StatusMisdirectedRequest,
	codeUnresolved:  http.StatusConflict,
	codeOverloaded:  http.StatusTooManyRequests,
	codeInvalid:     http.StatusBadRequest,
	codeUnavailable: http.StatusServiceUnavailable,
	codeLost:        http.StatusConflict,
	codeEnding:      http.StatusServiceUnavailable,
}

// encodeIntent writes a request. It does not validate: the receiver does, and refuses the replacement character that
// JSON puts for bytes that are not UTF-8.
func encodeIntent(in *tile.Intent) ([]byte, error) {
	return json.Marshal(wireIntent{Version: version, Tile: in.Tile, Action: in.ActionID, Actor: in.Actor,
		Body: in.Body})
}

// decodeIntent reads a request without judging the intent. Its error is a *fence.ArgumentError.
func decodeIntent(b []byte) (tile.Intent, error) {
	var w wireIntent
	if err := decodeRequest(b, &w, &w.Version, "an intent"); err != nil {
		return tile.Intent{}, err
	}
	return tile.Intent{Tile: w.Tile, ActionID: w.Action, Actor: w.Actor, Body: w.Body}, nil
}

// decodeRequest reads one JSON object into v and checks its version. It ignores fields it does not know, which a newer
// release may send while an upgrade rolls. Its error is a *fence.ArgumentError.
func decodeRequest(b []byte, v any, got *int, what string) error {
	if !utf8.Valid(b) {
		return &fence.ArgumentError{Field: "request", Value: len(b), Want: what + " as JSON in UTF-8"}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return &fence.ArgumentError{Field: "request", Value: len(b), Want: what + " as one JSON object: " + err.Error()}
	}
	if *got != version {
		return &fence.ArgumentError{Field: "version", Value: *got, Want: fmt.Sprint(version)}
	}
	return nil
}

// encodeError says an error in terms of the wire.
func encodeError(err error) wireError {
	w := wireError{Code: codeUnavailable, Message: err.Error()}
	var redirect *tile.RedirectError
	var unresolved *tile.UnresolvedError
	var argument *fence.ArgumentError
	switch {
	// First, since it takes away what the others promise: that the intent is not resolved.
	case errors.As(err, &unresolved):
		w.Code, w.Tile, w.Epoch, w.Contact = codeUnresolved, unresolved.Tile, unresolved.Epoch, unresolved.Contact
	case errors.As(err, &redirect):
		w.Code, w.Tile, w.Epoch, w.Contact = codeRedirect, redirect.Tile, redirect.Epoch, redirect.Contact
	case errors.Is(err, tile.ErrOverloaded):
		w.Code = codeOverloaded
	case errors.As(err, &argument):
		w.Code, w.Field, w.Value, w.Want = codeInvalid, argument.Field, fmt.Sprint(argument.Value), argument.Want
	}
	return w
}

// decodeReply reads an answer: an outcome, the error the Submitter gave, or errNotOurs.
func decodeReply(b []byte, in *tile.Intent) (stream.Outcome, error) {
	var r wireReply
	if err := json.Unmarshal(b, &r); err != nil || r.Version != version || (r.Error == nil) == (r.Outcome == "") {
		return 0, errNotOurs
	}
	if r.Error == nil {
		o, err := stream.ParseOutcome(r.Outcome)
		if err != nil {
			return 0, errNotOurs
		}
		return o, nil
	}
	switch e := r.Error; e.Code {
	case codeRedirect:
		return 0, &tile.RedirectError{Tile: in.Tile, Epoch: e.Epoch, Contact: e.Contact}
	case codeUnresolved:
		return 0, &tile.UnresolvedError{Tile: in.Tile, Epoch: e.Epoch, Contact: e.Contact}
	case codeOverloaded:
		return 0, tile.ErrOverloaded
	case codeInvalid:
		return 0, &fence.ArgumentError{Field: e.Field, Value: e.Value, Want: e.Want}
	case codeUnavailable:
		return 0, errors.New(e.Message)
	}
	return 0, errNotOurs
}

// errNotOurs: the answer is none that a Handler gives; a proxy's perhaps.
var errNotOurs = errors.New("the answer is no tilefence answer")
