package fence

import (
	"errors"
	"fmt"
)

// Refusals of the store: nothing was written. A *RefusedError carries the facts.
var (
	// ErrStale: a higher epoch owns the tile. Ask the authority, then redirect and stand down.
	ErrStale = errors.New("epoch is stale")
	// ErrReplay: an older owner committed past the position presented. Replay again, under a new epoch.
	ErrReplay = errors.New("the stream has entries this owner has not replayed")
	// ErrBehind: the stream ends before the position presented; a failover lost the rest. Re-append it.
	ErrBehind = errors.New("the stream ends before the presented position")
	// ErrForked: the stream holds something else at the position presented. Mint again and rebase.
	ErrForked = errors.New("the stream holds another history")
	// ErrNoOwner: there is no owner hash and the commit is no install. Ask the authority first.
	ErrNoOwner = errors.New("the tile has no owner hash")
	// ErrRegress: the write is older than what the store has.
	ErrRegress = errors.New("the sequence would go back")
	// ErrUncommitted: the snapshot names a position or tick that was never committed.
	ErrUncommitted = errors.New("never committed")
	// ErrChecksum: the blob did not arrive as it was sent.
	ErrChecksum = errors.New("checksum mismatch")
)

// Other classes.
var (
	// ErrInvalidArgument: the call was malformed; a *ArgumentError says which field and what it takes.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrUnconfirmed: applied on the master, not confirmed by enough replicas in time. Provisional.
	ErrUnconfirmed = errors.New("not confirmed by enough replicas")
	// ErrNotApplied: the store could not be asked, or refused before it ran anything. Safe to retry.
	ErrNotApplied = errors.New("not applied")
	// ErrUnknownOutcome: the request may or may not have been applied. Present the same request again.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrCorrupt: stored bytes are not what was written; a *CorruptError says which.
	ErrCorrupt = errors.New("stored data is corrupt")
	// ErrLost: the tile has another owner or epoch since the claim was made; a *LostError has its record.
	ErrLost = errors.New("claim lost")
	// ErrNeverOwned: the authority has no record of the tile: never owned, or released long ago and retired.
	ErrNeverOwned = errors.New("tile was never owned")
	// ErrFunctions: the store's function library is missing or is not the one this program needs.
	ErrFunctions = errors.New("store functions unusable")
	// ErrSetting: a server's settings would lose what it is given. A *SettingError says which.
	ErrSetting = errors.New("unsafe server setting")
	// ErrAlreadyRun: Run was called twice: make a new one. Every type of the module that runs once returns it.
	ErrAlreadyRun = errors.New("already run: make a new one")
)

// ArgumentError is a malformed argument, found before anything was sent or written.
type ArgumentError struct {
	Field string // the argument
	Value any    // what it was (a length, for bytes)
	Want  string // what it should be
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("invalid %s %q: want %s", e.Field, fmt.Sprint(e.Value), e.Want)
}

// Is makes every ArgumentError match ErrInvalidArgument.
func (e *ArgumentError) Is(target error) bool { return target == ErrInvalidArgument }

func argument(field string, value any, want string) error {
	return &ArgumentError{Field: field, Value: value, Want: want}
}

// RefusedError is a write the store refused. Nothing was written.
type RefusedError struct {
	Reason error // one of the refusal sentinels, which errors.Is matches
	Tile   TileID
	Epoch  Epoch // presented
	// Current is the store's owner hash and last position at the refusal: for ErrStale the successor and
	// its contact. Without an owner hash its Epoch is zero and its Position that of the stream.
	Current Owner
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("tile %s: write under epoch %d refused: %v", e.Tile, e.Epoch, e.Reason)
	if e.Current.Present() {
		s += fmt.Sprintf(" (owner: epoch %d at %s, position %s)", e.Current.Epoch, e.Current.Contact,
			e.Current.Position)
	}
	return s
}

// Unwrap gives the reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// UnconfirmedError is a write that is on the master, but on fewer replicas than asked. It is
// provisional: a failover may lose it. Present the same write again.
type UnconfirmedError struct {
	Tile    TileID
	Receipt Receipt // Receipt.Replicas confirmed
	Want    int     // replicas asked for
	Detail  string  // what is known of the reason, and what to do; empty: the replicas were too slow
}

func (e *UnconfirmedError) Error() string {
	s := fmt.Sprintf("tile %s: %s is on %d of %d replicas: %v", e.Tile, e.Receipt.Position, e.Receipt.Replicas, e.Want,
		ErrUnconfirmed)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is matches ErrUnconfirmed.
func (e *UnconfirmedError) Is(target error) bool { return target == ErrUnconfirmed }

// StoreError is a store or authority that could not be asked, or whose answer was lost.
type StoreError struct {
	Op      string // "commit", "snapshot", "claim", …
	Tile    TileID // zero for a call that is not about one tile
	Outcome error  // ErrNotApplied or ErrUnknownOutcome; errors.Is matches it
	Err     error  // the cause
}

func (e *StoreError) Error() string {
	if e.Tile == 0 {
		return fmt.Sprintf("%s: %v: %v", e.Op, e.Outcome, e.Err)
	}
	return fmt.Sprintf("tile %s: %s: %v: %v", e.Tile, e.Op, e.Outcome, e.Err)
}

// Unwrap gives the outcome and the cause.
func (e *StoreError) Unwrap() []error { return []error{e.Outcome, e.Err} }

// CorruptError is stored data that fails its own check.
type CorruptError struct {
	Tile   TileID
	What   string // "stream entry", "snapshot", "owner hash", …
	At     Position
	Detail string
}

func (e *CorruptError) Error() string {
	if e.At.IsZero() {
		return fmt.Sprintf("tile %s: %s is corrupt: %s", e.Tile, e.What, e.Detail)
	}
	return fmt.Sprintf("tile %s: %s at %s is corrupt: %s", e.Tile, e.What, e.At, e.Detail)
}

// Is matches ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// LostError is a claim that came too late: another claim has moved the tile, or the claim's own grant is
// no longer current.
type LostError struct {
	Tile    TileID
	Current Grant // the tile's record: its holder or, if it is not held, the epoch to claim it from
}

func (e *LostError) Error() string {
	if !e.Current.Held() {
		return fmt.Sprintf("tile %s: %v: released at epoch %d, held by no process", e.Tile, ErrLost, e.Current.Epoch)
	}
	return fmt.Sprintf("tile %s: %v to %s at epoch %d", e.Tile, ErrLost, e.Current.Contact, e.Current.Epoch)
}

// Is matches ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// FunctionsError is a function library that cannot be used.
type FunctionsError struct {
	Node   string // address of the server
	Detail string
}

func (e *FunctionsError) Error() string {
	return fmt.Sprintf("redis %s: %v: %s", e.Node, ErrFunctions, e.Detail)
}

// Is matches ErrFunctions.
func (e *FunctionsError) Is(target error) bool { return target == ErrFunctions }

// SettingError is a setting or a property of a server with which it would lose what it is given.
type SettingError struct {
	Node    string // address of the server
	Setting string // as in the server's configuration
	Value   string // what it is
	Detail  string // what would be lost, and what to do
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s: %v: %s is %s: %s", e.Node, ErrSetting, e.Setting, e.Value, e.Detail)
}

// Is matches ErrSetting.
func (e *SettingError) Is(target error) bool { return target == ErrSetting }
