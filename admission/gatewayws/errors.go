package gatewayws

import (
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/tile"
)

// Code classifies an error for clients. The package comment has the table.
type Code string

// The codes.
const (
	CodeMalformed   Code = "malformed"
	CodeInvalid     Code = "invalid"
	CodeRefused     Code = "refused"
	CodeReused      Code = "reused"
	CodeExpired     Code = "expired"
	CodeUnknown     Code = "unknown"
	CodePending     Code = "pending"
	CodeLimited     Code = "limited"
	CodeBusy        Code = "busy"
	CodeOverloaded  Code = "overloaded"
	CodeQuarantined Code = "quarantined"
	CodeCrossed     Code = "crossed"
	CodeUnavailable Code = "unavailable"
	CodeDraining    Code = "draining"
	CodeInternal    Code = "internal"
)

// Retryable reports whether the same frame may be sent again.
func (c Code) Retryable() bool {
	switch c {
	case CodePending, CodeLimited, CodeBusy, CodeOverloaded, CodeQuarantined, CodeUnavailable,
		CodeDraining, CodeInternal:
		return true
	}
	return false
}

// Status codes with which the server closes, besides those of the WebSocket protocol. A relay has the same.
const (
	CloseExpired = 4003 // the session has expired: connect again with a new token
	CloseEnded   = 4004 // the game ended the session: connect again, which it may refuse
)

// ErrDisconnected means that the connection ended before an answer came. Dial again, and repeat actions
// with the same action ID.
var ErrDisconnected = errors.New("disconnected from the gateway")

// Error is a gateway's error as a client gets it. errors.Is finds the class it had in the gateway:
// admission.ErrPending, ErrExpired, ErrLimited, ErrDeclined, ErrReused and ErrUnknownAction, tile.ErrOverloaded,
// tile.ErrQuarantined, tile.ErrCrossed, fence.ErrInvalidArgument.
type Error struct {
	Code       Code
	Message    string // for people
	Retryable  bool
	RetryAfter time.Duration         // how long to wait at least; zero: not said
	Admission  admission.AdmissionID // if the action is admitted
	Crossing   tile.Crossing         // where the actor went, if it has left the tile
}

func (e *Error) Error() string { return fmt.Sprintf("gateway: %s: %s", e.Code, e.Message) }

// Is matches the classes above.
func (e *Error) Is(target error) bool {
	switch e.Code {
	case CodeMalformed, CodeInvalid:
		return target == fence.ErrInvalidArgument
	case CodeRefused:
		return target == admission.ErrDeclined
	case CodeReused:
		return target == admission.ErrReused
	case CodeExpired:
		return target == admission.ErrExpired || target == admission.ErrPending
	case CodeUnknown:
		return target == admission.ErrUnknownAction
	case CodePending:
		return target == admission.ErrPending
	case CodeLimited:
		return target == admission.ErrLimited
	case CodeOverloaded:
		return target == tile.ErrOverloaded
	case CodeCrossed:
		return target == tile.ErrCrossed
	case CodeQuarantined:
		return target == tile.ErrQuarantined || target == admission.ErrPending && e.Admission != ""
	}
	return false
}

// unbegun is the client's error for an intent that got no turn.
func unbegun(err error) *Error {
	e := &Error{Code: CodeOverloaded, Message: "the intent did not begin in time", Retryable: true}
	if late, ok := errors.AsType[*overload.RefusedError](err); ok {
		e.Message, e.RetryAfter = "the gateway has too much to do just now", late.After
	}
	return e
}

// describe turns a gateway's error into the client's. A message is passed on only if it is about what the client
// sent: clients do not learn what is wrong behind the gateway.
func describe(err error) *Error {
	e := &Error{Code: CodeInternal, Message: "internal error", Crossing: crossingOf(err)}
	var pending *admission.PendingError
	if errors.As(err, &pending) {
		e.Admission = pending.Artifact.AdmissionID
	}
	var limited *admission.LimitError
	errors.As(err, &limited)
	var refused *admission.DeclinedError
	var argument *fence.ArgumentError
	switch {
	case errors.Is(err, admission.ErrExpired):
		e.Code, e.Message = CodeExpired, "the action is admitted, but too old to be delivered"
	case errors.Is(err, tile.ErrQuarantined):
		e.Code, e.Message = CodeQuarantined, "the tile is out of order, and its operators know"
		e.RetryAfter = 30 * time.Second // after which hosts ask for it again
	case pending != nil:
		e.Code, e.Message = CodePending, "the action is admitted; ask again for its outcome"
	case !e.Crossing.IsZero():
		e.Code, e.Message = CodeCrossed, "you have left this tile: send the intent to tile "+e.Crossing.To.String()
	case limited != nil && limited.Scope != admission.ScopeActor && limited.Scope != "":
		e.Code, e.Message, e.RetryAfter = CodeOverloaded, tooMany(limited.Scope), limited.RetryAfter
	case limited != nil:
		e.Code, e.Message, e.RetryAfter = CodeLimited, "too fast", limited.RetryAfter
	case errors.As(err, &refused):
		e.Code, e.Message = CodeRefused, refused.Err.Error()
	case errors.Is(err, admission.ErrReused):
		e.Code, e.Message = CodeReused, "the action ID was used for another request"
	case errors.Is(err, admission.ErrUnknownAction):
		e.Code, e.Message = CodeUnknown, "no such action of yours was admitted"
	case errors.Is(err, tile.ErrOverloaded):
		e.Code, e.Message, e.RetryAfter = CodeOverloaded, "the tile is overloaded", time.Second // some ticks
	// Before arguments, since these did not come from the client.
	case errors.Is(err, route.ErrNoRoute), errors.Is(err, admission.ErrForward), isStore(err):
		e.Code, e.Message = CodeUnavailable, "not reachable just now"
	case errors.As(err, &argument):
		e.Code, e.Message = CodeInvalid, argument.Error()
	}
	e.Retryable = e.Code.Retryable()
	return e
}

// tooMany says of what there is too much.
func tooMany(s admission.Scope) string {
	if s == admission.ScopeLedger {
		return "the ledger has too many actions just now"
	}
	return "the tile has too many intents just now"
}

// crossingOf is where an error says that the actor went.
func crossingOf(err error) tile.Crossing {
	if e, ok := errors.AsType[*tile.CrossedError](err); ok {
		return e.Crossing
	}
	return tile.Crossing{}
}

func isStore(err error) bool {
	var s *fence.StoreError
	return errors.As(err, &s)
}
