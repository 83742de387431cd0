package tilehttp

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/plainjson"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Path is where gateways connect.
const Path = "/tilefence/v1/intent"

// maxRequest is the most bytes of a hand-over or of one intent: an intent of the largest size, its names escaped, and
// its body in base64, fits well within.
const maxRequest = 16 << 10

// maxReply bounds what the client reads of the answer to a hand-over.
const maxReply = 64 << 10

const version = 1

// wireIntent is an intent; a gateway's message has it with an ID.
type wireIntent struct {
	Tile   fence.TileID `json:"tile"`
	Action string       `json:"action,omitempty"`
	Move   string       `json:"move,omitempty"` // tile.Intent.MoveID
	Actor  string       `json:"actor,omitempty"`
	Body   []byte       `json:"body,omitempty"`
	Server bool         `json:"server,omitempty"` // tile.OriginServer

	Admitted int64 `json:"admitted,omitempty"` // milliseconds since 1970; 0: not known
}

func (w *wireIntent) intent() tile.Intent {
	in := tile.Intent{Tile: w.Tile, ActionID: w.Action, MoveID: w.Move, Actor: w.Actor, Body: w.Body}
	if w.Server {
		in.Origin = tile.OriginServer
	}
	if w.Admitted != 0 {
		in.Admitted = time.UnixMilli(w.Admitted).UTC()
	}
	return in
}

// wireSent is an intent on a connection.
type wireSent struct {
	ID     uint64 `json:"id"`               // the gateway's, not 0
	Within int64  `json:"within,omitempty"` // milliseconds until the gateway gives up; 0: it does not
	wireIntent
}

// wireIntents is a gateway's message.
type wireIntents[T any] struct {
	Version int `json:"v"`
	Intents []T `json:"intents"`
}

// wireAnswers is a tile server's message.
type wireAnswers struct {
	Version int          `json:"v"`
	Answers []wireAnswer `json:"answers"`
	Drain   bool         `json:"drain"` // send no more on this connection
	Error   *wireError   `json:"error"` // the server could not read a message, and ends the connection
}

type wireAnswer struct {
	ID      uint64        `json:"id"`
	Outcome string        `json:"outcome,omitempty"`
	Why     string        `json:"why,omitempty"`     // at most tile.MaxWhy bytes
	Crossed *wireCrossing `json:"crossed,omitempty"` // beside an outcome, or the error of that name
	Error   *wireError    `json:"error,omitempty"`
}

// wireCrossing is a tile.Crossing.
type wireCrossing struct {
	To     fence.TileID `json:"to"`
	Entity string       `json:"entity"`
}

func crossingOf(c tile.Crossing) *wireCrossing {
	if c.IsZero() {
		return nil
	}
	return &wireCrossing{To: c.To, Entity: c.Entity}
}

func (w *wireCrossing) crossing() tile.Crossing {
	if w == nil {
		return tile.Crossing{}
	}
	return tile.Crossing{To: w.To, Entity: w.Entity}
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
	codeQuarantined = "quarantined"
	codeCrossed     = "crossed"
	codeUnavailable = "unavailable"
	codeLost        = "lost"   // hand-overs only
	codeEnding      = "ending" // hand-overs only
)

var statuses = map[string]int{
	codeRedirect:    http.StatusMisdirectedRequest,
	codeUnresolved:  http.StatusConflict,
	codeOverloaded:  http.StatusTooManyRequests,
	codeInvalid:     http.StatusBadRequest,
	codeQuarantined: http.StatusServiceUnavailable,
	codeCrossed:     http.StatusMisdirectedRequest,
	codeUnavailable: http.StatusServiceUnavailable,
	codeLost:        http.StatusConflict,
	codeEnding:      http.StatusServiceUnavailable,
}

// What a gateway's message consists of besides the intents' own objects.
const (
	intentsHead = `{"v":1,"intents":[`
	answersHead = `{"v":1,"answers":[`
	messageTail = `]}`
	sentHead    = len(`,{"id":,"within":,`) + 2*20 // the most that appendSent puts before an intent's own fields
	drainNotice = `{"v":1,"drain":true}`
)

// encodeIntent writes the fields of an intent as an object. It does not validate: the receiver does, and refuses the
// replacement character that JSON puts for bytes that are not UTF-8. Its error is a *fence.ArgumentError.
func encodeIntent(in *tile.Intent) ([]byte, error) {
	b := make([]byte, 0, 128+len(in.ActionID)+len(in.MoveID)+len(in.Actor)+base64.StdEncoding.EncodedLen(len(in.Body)))
	b = append(append(append(b, `{"tile":"`...), in.Tile.String()...), '"')
	if in.ActionID != "" {
		b = plainjson.AppendText(append(b, `,"action":`...), in.ActionID)
	}
	if in.MoveID != "" {
		b = plainjson.AppendText(append(b, `,"move":`...), in.MoveID)
	}
	if in.Actor != "" {
		b = plainjson.AppendText(append(b, `,"actor":`...), in.Actor)
	}
	if len(in.Body) > 0 {
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"body":"`...), in.Body), '"')
	}
	if in.Origin == tile.OriginServer {
		b = append(b, `,"server":true`...)
	}
	if ms := in.Admitted.UnixMilli(); !in.Admitted.IsZero() && ms != 0 {
		b = strconv.AppendInt(append(b, `,"admitted":`...), ms, 10)
	}
	b = append(b, '}')
	if len(b) > maxRequest {
		return nil, &fence.ArgumentError{Field: "request", Value: len(b), Want: tooLong}
	}
	return b, nil
}

var tooLong = "at most " + strconv.Itoa(maxRequest) + " bytes"

// appendSent appends an encoded intent with its ID, and the time left for it if that is not zero, to a message.
func appendSent(message []byte, id uint64, within time.Duration, intent []byte) []byte {
	if len(message) > len(intentsHead) {
		message = append(message, ',')
	}
	message = strconv.AppendUint(append(message, `{"id":`...), id, 10)
	if within > 0 {
		ms := int64(max(1, within/time.Millisecond))
		message = strconv.AppendInt(append(message, `,"within":`...), ms, 10)
	}
	return append(append(message, ','), intent[1:]...)
}

// decodeIntents reads a gateway's message. An intent that cannot be read is given to refuse. The error is a
// *fence.ArgumentError for a message that is nothing of this protocol, or has an intent without an ID.
func decodeIntents(b []byte, refuse func(id uint64, err error)) ([]wireSent, error) {
	if intents, plain := plainIntents(b); plain {
		return intents, nil
	}
	var m wireIntents[wireSent]
	if err := decodeRequest(b, &m, &m.Version, "intents"); err != nil {
		return decodeEach(b, err, refuse)
	}
	for i := range m.Intents {
		if m.Intents[i].ID == 0 {
			return nil, errNoID
		}
	}
	return m.Intents, nil
}

// plainIntents reads a gateway's message as appendSent writes it; plain is false for any other.
func plainIntents(b []byte) (intents []wireSent, plain bool) {
	r := plainjson.Read(b)
	r.Want(intentsHead)
	for more := true; more && !r.Failed(); more = r.Has(",") {
		var w wireSent
		r.Want(`{"id":`)
		w.ID = r.Number()
		if r.Has(`,"within":`) {
			w.Within = int64(r.Number())
		}
		r.Want(`,"tile":`)
		if w.Tile.UnmarshalText(r.Text()) != nil || w.ID == 0 {
			return nil, false
		}
		if r.Has(`,"action":`) {
			w.Action = string(r.Text())
		}
		if r.Has(`,"move":`) {
			w.Move = string(r.Text())
		}
		if r.Has(`,"actor":`) {
			w.Actor = string(r.Text())
		}
		if r.Has(`,"body":`) {
			w.Body = r.Bytes()
		}
		w.Server = r.Has(`,"server":true`)
		if r.Has(`,"admitted":`) {
			w.Admitted = int64(r.Number())
		}
		r.Want("}")
		intents = append(intents, w)
	}
	r.Want(messageTail)
	return intents, r.Done()
}

// decodeAnswers reads a tile server's message. The answers are appended to others.
func decodeAnswers(b []byte, answers []wireAnswer) (wireAnswers, error) {
	if answers, plain := plainAnswers(b, answers); plain {
		return wireAnswers{Version: version, Answers: answers}, nil
	}
	var m wireAnswers
	if err := json.Unmarshal(b, &m); err != nil || m.Version != version {
		return m, errors.Join(errNotOurs, err)
	}
	return m, nil
}

// plainAnswers reads a message that has nothing but outcomes, as encodeAnswer writes them; plain is false for any
// other.
func plainAnswers(b []byte, answers []wireAnswer) (_ []wireAnswer, plain bool) {
	r := plainjson.Read(b)
	r.Want(answersHead)
	for more := true; more && !r.Failed(); more = r.Has(",") {
		r.Want(`{"id":`)
		a := wireAnswer{ID: r.Number()}
		r.Want(`,"outcome":`)
		a.Outcome = string(r.Text())
		if r.Has(`,"why":`) {
			a.Why = string(r.Text())
		}
		r.Want("}")
		answers = append(answers, a)
	}
	r.Want(messageTail)
	return answers, r.Done()
}

var errNoID = &fence.ArgumentError{Field: "id", Value: 0, Want: "a number from 1 to 2^64-1 with each intent"}

// decodeEach reads the intents of a message one by one, after all of them together gave an error.
func decodeEach(b []byte, whole error, refuse func(uint64, error)) (good []wireSent, err error) {
	var m wireIntents[json.RawMessage]
	if decodeRequest(b, &m, &m.Version, "intents") != nil {
		return nil, whole
	}
	for _, raw := range m.Intents {
		var w wireSent
		if err = json.Unmarshal(raw, &w); err == nil && w.ID != 0 {
			good = append(good, w)
			continue
		}
		var id struct {
			ID uint64 `json:"id"`
		}
		if json.Unmarshal(raw, &id) != nil || id.ID == 0 {
			return nil, errNoID
		}
		refuse(id.ID, unreadable(err))
	}
	return good, nil
}

// unreadable says what is wrong with an intent that JSON could not decode.
func unreadable(err error) error {
	if argument, ok := errors.AsType[*fence.ArgumentError](err); ok {
		return argument
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
		return &fence.ArgumentError{Field: field, Value: wrong.Value, Want: "a value of the field's type"}
	}
	return &fence.ArgumentError{Field: "body", Value: err.Error(), Want: "base64"}
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

// encodeAnswer writes the answer to the intent of an ID.
func encodeAnswer(id uint64, r tile.Result, err error) []byte {
	if err == nil && !r.Outcome.Valid() {
		err = errNoOutcome
	}
	if err != nil {
		e := encodeError(err)
		if crossed, ok := errors.AsType[*tile.CrossedError](err); ok {
			r.Crossing = crossed.Crossing
		}
		return mustEncode(wireAnswer{ID: id, Crossed: crossingOf(r.Crossing), Error: &e})
	}
	if !r.Crossing.IsZero() {
		return mustEncode(wireAnswer{ID: id, Outcome: r.Outcome.String(), Why: r.Why, Crossed: crossingOf(r.Crossing)})
	}
	b := strconv.AppendUint(append(make([]byte, 0, 64), `{"id":`...), id, 10)
	b = plainjson.AppendText(append(b, `,"outcome":`...), r.Outcome.String())
	if r.Why != "" {
		b = plainjson.AppendText(append(b, `,"why":`...), r.Why)
	}
	return append(b, '}')
}

var errNoOutcome = errors.New("the tile gave no outcome")

// mustEncode encodes a struct of strings and numbers, which cannot fail.
func mustEncode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// encodeError says an error in terms of the wire.
func encodeError(err error) wireError {
	w := wireError{Code: codeUnavailable, Message: cut(err.Error())}
	var redirect *tile.RedirectError
	var unresolved *tile.UnresolvedError
	var argument *fence.ArgumentError
	switch {
	// First, since it takes away what the others promise: that the intent is not resolved.
	case errors.As(err, &unresolved):
		w.Code, w.Tile, w.Epoch, w.Contact = codeUnresolved, unresolved.Tile, unresolved.Epoch, unresolved.Contact
	case errors.As(err, &redirect):
		w.Code, w.Tile, w.Epoch, w.Contact = codeRedirect, redirect.Tile, redirect.Epoch, redirect.Contact
	case errors.Is(err, tile.ErrCrossed):
		w.Code = codeCrossed
	case errors.Is(err, tile.ErrOverloaded):
		w.Code = codeOverloaded
	case errors.Is(err, tile.ErrQuarantined):
		w.Code = codeQuarantined
	case errors.As(err, &argument):
		w.Code, w.Field, w.Value, w.Want = codeInvalid, argument.Field, cut(fmt.Sprint(argument.Value)), argument.Want
	}
	return w
}

// cut keeps a text that was made from what a peer sent from becoming longer than an answer may be.
func cut(s string) string {
	const most = 512
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// decode says what an answer means for an intent that was sent to contact: an outcome, or the error that Forward
// returns.
func (a *wireAnswer) decode(contact string, id fence.TileID) (tile.Result, error) {
	outcome, cause := stream.ParseOutcome(a.Outcome)
	crossing := a.Crossed.crossing()
	switch e := a.Error; {
	case e == nil && cause == nil:
		return tile.Result{Outcome: outcome, Why: fence.AsName(a.Why, tile.MaxWhy), Crossing: crossing}, nil
	case e == nil || a.Outcome != "":
		cause = errNotOurs
	case e.Code == codeRedirect:
		return tile.Result{}, &tile.RedirectError{Tile: id, Epoch: e.Epoch, Contact: e.Contact}
	case e.Code == codeUnresolved:
		return tile.Result{}, &tile.UnresolvedError{Tile: id, Epoch: e.Epoch, Contact: e.Contact}
	case e.Code == codeCrossed && crossing.To != 0:
		return tile.Result{}, &tile.CrossedError{Tile: id, Crossing: crossing}
	case e.Code == codeOverloaded:
		return tile.Result{}, tile.ErrOverloaded
	case e.Code == codeQuarantined:
		return tile.Result{}, &tile.QuarantinedError{Tile: id}
	case e.Code == codeInvalid:
		return tile.Result{}, &fence.ArgumentError{Field: e.Field, Value: e.Value, Want: e.Want}
	case e.Code == codeUnavailable:
		cause = errors.New(e.Message)
	default:
		cause = fmt.Errorf("%w: code %q", errNotOurs, e.Code)
	}
	return tile.Result{}, &UnavailableError{Contact: contact, Outcome: fence.ErrUnknownOutcome, Err: cause}
}

// errNotOurs: the answer is none that a Handler gives.
var errNotOurs = errors.New("the answer is no tilefence answer")
