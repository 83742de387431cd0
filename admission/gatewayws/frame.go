package gatewayws

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/plainjson"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Subprotocol is the WebSocket subprotocol of this package, version 1.
const Subprotocol = "tilefence.intent.v1.json"

// maxID is the most bytes of a frame's id.
const maxID = 64

// intentFrame travels from the client. It is not the form in which a gateway sends intents to tile servers (package
// tilehttp), although both name tile, action and body: that one carries what a client must not name (the actor, the
// origin, the time of admission), and many intents in a message. A decoder for both would read these fields from
// strangers too. What they share is package plainjson.
type intentFrame struct {
	ID     string           `json:"id"`
	Tile   fence.TileID     `json:"tile,omitzero"`
	Kind   admission.Kind   `json:"kind"`
	Action string           `json:"action,omitempty"`
	Move   string           `json:"move,omitempty"`
	Asset  string           `json:"asset,omitempty"`
	Cost   admission.Amount `json:"cost,omitempty"`
	Body   []byte           `json:"body,omitempty"`
	Token  string           `json:"token,omitempty"`
	Within int64            `json:"within,omitempty"` // milliseconds; after them the client needs no answer
}

// Kinds that are no intents.
const (
	kindRefresh admission.Kind = "refresh" // gives the connection a new token
	kindWhere   admission.Kind = "where"   // asks where the actor is
)

// answerFrame travels to the client.
type answerFrame struct {
	ID        string                `json:"id"`
	Outcome   string                `json:"outcome,omitempty"`
	Why       string                `json:"why,omitempty"`
	Admission admission.AdmissionID `json:"admission,omitempty"`
	Reason    string                `json:"reason,omitempty"`
	Refunded  bool                  `json:"refunded,omitempty"`
	At        int64                 `json:"at,omitempty"` // milliseconds since 1970
	Crossed   *crossedFrame         `json:"crossed,omitempty"`
	Error     *errorFrame           `json:"error,omitempty"`
	Session   *sessionFrame         `json:"session,omitempty"`
	Where     *whereFrame           `json:"where,omitempty"`
}

// whereFrame says where the actor is: as the answer to where, and beside the outcome of a movement that named no tile.
type whereFrame struct {
	Tile fence.TileID `json:"tile,omitzero"` // zero: it is not known
}

// serverFrame is an answer, or a message of the game for the player, which has no id.
type serverFrame struct {
	answerFrame
	Message []byte `json:"message,omitzero"`
}

// crossedFrame is a tile.Crossing, beside an outcome or an error.
type crossedFrame struct {
	To     fence.TileID `json:"to"`
	Entity string       `json:"entity"`
}

func crossed(c tile.Crossing) *crossedFrame {
	if c.IsZero() {
		return nil
	}
	return &crossedFrame{To: c.To, Entity: c.Entity}
}

func (f *crossedFrame) crossing() tile.Crossing {
	if f == nil {
		return tile.Crossing{}
	}
	return tile.Crossing{To: f.To, Entity: f.Entity}
}

// sessionFrame says how long the connection lasts: first of all, without an id, if it does not last for ever, and as
// the answer to a refresh.
type sessionFrame struct {
	ExpiresIn int64 `json:"expires_in,omitempty"` // milliseconds; 0: it does not expire
}

type errorFrame struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"`
	Retryable  bool   `json:"retryable"`
	RetryAfter int64  `json:"retry_after,omitempty"` // milliseconds
}

// decodeIntent reads a client's message. With an error, the frame has the id if that could be read. It ignores fields
// it does not know, which a newer client may send; the gateway validates the intent.
func decodeIntent(b []byte) (intentFrame, error) {
	f, plain := plainIntent(b)
	if !plain {
		if !utf8.Valid(b) {
			return f, errors.New("the message is not UTF-8")
		}
		if err := json.Unmarshal(b, &f); err != nil {
			return intentFrame{ID: idOf(b)}, fmt.Errorf("send one JSON object: %w", err)
		}
	}
	switch {
	case f.ID == "" || len(f.ID) > maxID:
		return intentFrame{}, fmt.Errorf("id must have 1 to %d bytes", maxID)
	case f.Kind != admission.Move && f.Kind != admission.Act && f.Kind != admission.Ask && f.Kind != kindRefresh &&
		f.Kind != kindWhere:
		return intentFrame{ID: f.ID}, fmt.Errorf("kind must be %q, %q, %q, %q or %q", admission.Move, admission.Act,
			admission.Ask, kindRefresh, kindWhere)
	}
	return f, nil
}

// plainIntent reads a movement or an action as a Client writes it; plain is false, and the frame empty, for any other
// message.
func plainIntent(b []byte) (f intentFrame, plain bool) {
	r := plainjson.Read(b)
	r.Want(`{"id":`)
	f.ID = string(r.Text())
	r.Want(`,"tile":`)
	if f.Tile.UnmarshalText(r.Text()) != nil {
		return intentFrame{}, false
	}
	r.Want(`,"kind":`)
	f.Kind = admission.Kind(r.Text())
	if r.Has(`,"action":`) {
		f.Action = string(r.Text())
	}
	if r.Has(`,"body":`) {
		f.Body = r.Bytes()
	}
	if r.Has(`,"within":`) {
		f.Within = int64(min(r.Number(), 1<<32))
	}
	r.Want("}")
	if !r.Done() {
		return intentFrame{}, false
	}
	return f, true
}

// idOf finds the id in a message that is otherwise wrong, so that the client can tell which one it was.
func idOf(b []byte) string {
	var f struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(b, &f); err != nil || len(f.ID) > maxID {
		return ""
	}
	return f.ID
}

// Answer is the outcome of an intent.
type Answer struct {
	Outcome stream.Outcome // final
	Why     string         // what the game's rules say about it, at most tile.MaxWhy bytes; see tile.Result.Why

	// Crossing says that the actor has left the tile that the request named, and where it went. An answer to an action
	// says so once; that to a repetition may not.
	Crossing tile.Crossing
	// Tile is where the gateway has sent a movement that named no tile.
	Tile fence.TileID

	// Of actions only:
	Admission admission.AdmissionID // the ledger's own name of the action
	Reason    admission.Reason      // why the ledger rejected it; zero otherwise
	Refunded  bool                  // the cost was given back
	At        time.Time             // when the ledger recorded the outcome, by its own clock; the same in every answer

	session *sessionFrame // of a refresh
	where   *whereFrame   // of a question where the actor is
}

// answerOf is the answer about an action that has an outcome.
func answerOf(a admission.Artifact) Answer {
	return Answer{Outcome: a.Outcome, Why: a.Why, Crossing: a.Crossing, Admission: a.AdmissionID, Reason: a.Reason,
		Refunded: a.Refunded, At: a.Resolved}
}

func (a Answer) frame(id string) answerFrame {
	if a.session != nil || a.where != nil {
		return answerFrame{ID: id, Session: a.session, Where: a.where}
	}
	f := answerFrame{ID: id, Outcome: a.Outcome.String(), Why: a.Why, Admission: a.Admission, Reason: a.Reason.String(),
		Refunded: a.Refunded, Crossed: crossed(a.Crossing)}
	if !a.At.IsZero() {
		f.At = a.At.UnixMilli()
	}
	if a.Tile != 0 {
		f.Where = &whereFrame{a.Tile}
	}
	return f
}

// append writes the frame as encoding/json does.
func (f *answerFrame) append(dst []byte) []byte {
	if f.Outcome != "" && (*f == answerFrame{ID: f.ID, Outcome: f.Outcome}) { // a movement's
		dst = plainjson.AppendText(append(dst, `{"id":`...), f.ID)
		return append(plainjson.AppendText(append(dst, `,"outcome":`...), f.Outcome), '}')
	}
	b, err := json.Marshal(f)
	if err != nil { // a struct of strings and numbers
		panic(err)
	}
	return append(dst, b...)
}

// decodeAnswer reads a server's message: the id, and the answer or an *Error; or what the game tells the player.
func decodeAnswer(b []byte) (id string, a Answer, told []byte, err error) {
	var f serverFrame
	if err := json.Unmarshal(b, &f); err != nil {
		return "", Answer{}, nil, &Error{Code: CodeMalformed, Message: err.Error()}
	}
	if f.Message != nil {
		return "", Answer{}, f.Message, nil
	}
	a, err = f.answer()
	return f.ID, a, nil, err
}

func (f *answerFrame) answer() (a Answer, err error) {
	if f.Error != nil {
		e := f.Error.decode(f.Admission)
		e.Crossing = f.Crossed.crossing()
		return Answer{}, e
	}
	if f.Session != nil || f.Where != nil && f.Outcome == "" {
		return Answer{session: f.Session, where: f.Where}, nil
	}
	a = Answer{Why: f.Why, Crossing: f.Crossed.crossing(), Admission: f.Admission, Refunded: f.Refunded}
	if f.Where != nil {
		a.Tile = f.Where.Tile
	}
	if f.At > 0 {
		a.At = time.UnixMilli(f.At).UTC()
	}
	var err1, err2 error
	a.Outcome, err1 = stream.ParseOutcome(f.Outcome)
	a.Reason, err2 = admission.ParseReason(f.Reason)
	if err1 != nil {
		return Answer{}, &Error{Code: CodeMalformed, Message: err1.Error()}
	}
	if err2 != nil {
		a.Reason = 0 // a reason of a later release; the outcome is what counts
	}
	return a, nil
}

func (e *Error) frame(id string) answerFrame {
	return answerFrame{ID: id, Admission: e.Admission, Crossed: crossed(e.Crossing), Error: &errorFrame{
		Code: e.Code, Message: e.Message, Retryable: e.Retryable,
		RetryAfter: int64((e.RetryAfter + time.Millisecond - 1) / time.Millisecond)}}
}

func (f *errorFrame) decode(a admission.AdmissionID) *Error {
	return &Error{Code: f.Code, Message: f.Message, Retryable: f.Retryable, Admission: a,
		RetryAfter: time.Duration(max(0, min(f.RetryAfter, 1<<32))) * time.Millisecond}
}
