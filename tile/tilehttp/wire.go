package tilehttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
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

// encodeIntent refuses names that JSON cannot carry: an encoder would replace their bytes, and two
// different action IDs could become one.
func encodeIntent(in *tile.Intent) ([]byte, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	if err := carriable(text{"action ID", in.ActionID}, text{"actor", in.Actor}); err != nil {
		return nil, err
	}
	return json.Marshal(wireIntent{Version: version, Tile: in.Tile, Action: in.ActionID, Actor: in.Actor, Body: in.Body})
}

// text is a field that JSON has to carry.
type text struct{ field, value string }

func carriable(fields ...text) error {
	for _, f := range fields {
		if !utf8.ValidString(f.value) || strings.ContainsRune(f.value, utf8.RuneError) {
			return &fence.ArgumentError{Field: f.field, Value: f.value, Want: "valid UTF-8"}
		}
	}
	return nil
}

// decodeIntent reads a request. Its error is a *fence.ArgumentError.
func decodeIntent(b []byte) (tile.Intent, error) {
	var w wireIntent
	if err := strictly(b, &w); err != nil {
		return tile.Intent{}, &fence.ArgumentError{Field: "request", Value: len(b), Want: "an intent as JSON: " + err.Error()}
	}
	if w.Version != version {
		return tile.Intent{}, &fence.ArgumentError{Field: "version", Value: w.Version, Want: fmt.Sprint(version)}
	}
	in := tile.Intent{Tile: w.Tile, ActionID: w.Action, Actor: w.Actor, Body: w.Body}
	if err := in.Validate(); err != nil {
		return tile.Intent{}, err
	}
	return in, carriable(text{"action ID", in.ActionID}, text{"actor", in.Actor})
}

// strictly decodes one JSON value and nothing else.
func strictly(b []byte, v any) error {
	if !utf8.Valid(b) {
		return errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
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
