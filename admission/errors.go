package admission

import (
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Classes of errors; the pointer types below carry the facts.
var (
	// ErrReused: the action or credit ID was used before, for another request. A *ReusedError says which.
	ErrReused = errors.New("ID was used for another request")
	// ErrUnknownAction: the ledger has no artifact of that action ID.
	ErrUnknownAction = errors.New("action is not in the ledger")
	// ErrContested: the action cannot be abandoned, since another attempt may have delivered it.
	ErrContested = errors.New("another attempt may have delivered the action")
	// ErrExpired: the action was not delivered within the gateway's RetryWindow, and is not sent any more. A sweep
	// settles it if there is evidence, see Reconciler.
	ErrExpired = errors.New("action is too old to be delivered")
	// ErrBalanceLimit: the credit, or what would be given back, would lift the balance above MaxAmount.
	ErrBalanceLimit = errors.New("balance would exceed the limit")
	// ErrPending: the action is admitted and has no outcome yet. A *PendingError says why. The same call
	// with the same action ID goes on where this one stopped.
	ErrPending = errors.New("action is pending")
	// ErrLimited: the intent is above a rate of the gateway's. A *LimitError says of which, and when to come back.
	ErrLimited = errors.New("rate limit exceeded")
	// ErrDeclined: the game declined the intent before it was admitted or sent. A *DeclinedError says why.
	ErrDeclined = errors.New("intent declined")
	// ErrForward: the tile's owner gave no outcome. A *ForwardError has the contact and the cause.
	ErrForward = errors.New("intent got no outcome")
)

// ReusedError is an action or credit ID presented with another request than the first time. Nothing was
// spent or minted by this call, and the first request stands.
type ReusedError struct {
	What string // "action" or "credit"
	ID   string
}

func (e *ReusedError) Error() string {
	return fmt.Sprintf("%s %q: %v: take a new ID for a new request", e.What, e.ID, ErrReused)
}

// Is matches ErrReused.
func (e *ReusedError) Is(target error) bool { return target == ErrReused }

// PendingError is an action that is durably admitted, its cost spent, and whose outcome is not known to
// the ledger. Retry with the same action ID; the answer will be the one outcome, spent once.
type PendingError struct {
	Artifact Artifact
	Err      error // the cause
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("action %q: %v after attempt %d: %v", e.Artifact.ActionID, ErrPending, e.Artifact.Attempts,
		e.Err)
}

// Is matches ErrPending.
func (e *PendingError) Is(target error) bool { return target == ErrPending }

// Unwrap gives the cause.
func (e *PendingError) Unwrap() error { return e.Err }

// LimitError is an intent above a rate of its actor or its tile, or of take-overs, by more than it may wait; or one
// beyond what the ledger can do. It was not sent, and, but for take-overs, not admitted either.
type LimitError struct {
	Actor      string
	Kind       Kind
	Tile       fence.TileID
	Scope      Scope
	RetryAfter time.Duration // when there will be room
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s by %q to tile %s: %v of %s: retry after %v", e.Kind, e.Actor, e.Tile, ErrLimited, e.Scope,
		e.RetryAfter)
}

// Is matches ErrLimited.
func (e *LimitError) Is(target error) bool { return target == ErrLimited }

// DeclinedError is an intent that the game's own check (PriceFunc or GatewayConfig.CheckMove) declined.
// Nothing was admitted or sent.
type DeclinedError struct {
	Kind Kind
	Err  error // the check's error
}

func (e *DeclinedError) Error() string { return fmt.Sprintf("%s: %v: %v", e.Kind, ErrDeclined, e.Err) }

// Is matches ErrDeclined.
func (e *DeclinedError) Is(target error) bool { return target == ErrDeclined }

// Unwrap gives the check's error.
func (e *DeclinedError) Unwrap() error { return e.Err }

// ForwardError is an intent that was sent to a tile's owner and got no outcome. Unless the cause is
// tile.ErrOverloaded, tile.ErrQuarantined, tile.ErrRedirect or tile.ErrCrossed, the owner may or may not resolve it.
type ForwardError struct {
	Tile    fence.TileID
	Contact string
	Err     error
}

func (e *ForwardError) Error() string {
	return fmt.Sprintf("tile %s at %s: %v: %v", e.Tile, e.Contact, ErrForward, e.Err)
}

// Is matches ErrForward.
func (e *ForwardError) Is(target error) bool { return target == ErrForward }

// Unwrap gives the cause.
func (e *ForwardError) Unwrap() error { return e.Err }
