package tile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/history"
)

// MaxIntentBody is the most bytes an intent may carry.
const MaxIntentBody = 4 << 10

// MaxName is the most bytes of an action ID or an actor.
const MaxName = stream.MaxActionID

// Intent is what an actor wants to happen in a tile. The owner resolves it in one of its next ticks.
type Intent struct {
	Tile fence.TileID

	// ActionID is the idempotency key of an action that must happen at most once, a name (ValidateName) chosen by
	// the client. The tile records its outcome in the batch that holds its effects, and answers every
	// repetition with it. Empty for movement: repeating it is harmless, so nothing is recorded. If not, see MoveID.
	ActionID string

	// MoveID makes a movement happen once: a name that is the actor's own, and new for each. The tile remembers the
	// outcome for Limits.RememberFor, through a take-over too, and answers each repetition with it; but it is free, and
	// not in the ledger. Another tile does not know it: repeat it where it was sent, also if its actor has left. All
	// movements together may take half of the tile's memory of actions, and an actor an eighth of what is free. Beyond
	// that they are ErrOverloaded: send them later, or without it. Empty with an ActionID.
	MoveID string

	Actor  string // whose intent it is, as authenticated by the gateway; a name, or empty
	Origin Origin // of the intent: a player, by default, or the game's own servers
	Body   []byte // the game's own encoding; at most MaxIntentBody bytes

	// Admitted is when the action was admitted, by the ledger's clock; zero if that is not known. A tile decides no
	// action that was admitted more than RetryWindow ago: it may have decided it before and forgotten it since. Nor one
	// that was admitted so far ahead of its own clock that it could forget it while it is retried.
	Admitted time.Time

	// Deadline is when the sender stops waiting for the outcome, by this process's clock; zero: that is not known. A
	// tile does not resolve an intent that has waited for longer.
	Deadline time.Time
}

// Origin says where an intent comes from. Rules that grant rights go by it, and not by the actor's name, which
// authentication chooses: a player may have any name.
type Origin uint8

// The origins. Gateways give OriginServer to no intent that a client sends, and to none of the ledger's.
const (
	OriginPlayer Origin = 0 // a player, through a gateway: what is not marked otherwise has no rights
	OriginServer Origin = 1 // one of the game's own servers: a courier between tiles, a spawner, a finished plan
)

var originNames = [...]string{"player", "server"}

// String returns the origin's name: player or server.
func (o Origin) String() string { return enum.In(int(o), "origin", originNames[:], 0) }

// LogValue implements slog.LogValuer with the form of String.
func (o Origin) LogValue() slog.Value { return slog.StringValue(o.String()) }

var errNoTile = &fence.ArgumentError{Field: "tile", Value: 0, Want: "an H3 index, not zero"}

// Validate checks the intent without any I/O: nil, or a *fence.ArgumentError.
func (in *Intent) Validate() error {
	if in.Tile == 0 {
		return errNoTile
	}
	if in.ActionID != "" {
		if err := ValidateName("action ID", in.ActionID); err != nil {
			return err
		}
	}
	if in.MoveID != "" {
		if err := ValidateName("move ID", in.MoveID); err != nil {
			return err
		}
		if in.ActionID != "" {
			return &fence.ArgumentError{Field: "move ID", Value: in.MoveID, Want: "none, with an action ID"}
		}
	}
	if in.Actor != "" {
		if err := ValidateName("actor", in.Actor); err != nil {
			return err
		}
	}
	if in.Origin > OriginServer {
		return &fence.ArgumentError{Field: "origin", Value: in.Origin, Want: "OriginPlayer or OriginServer"}
	}
	if len(in.Body) > MaxIntentBody {
		return &fence.ArgumentError{Field: "body", Value: len(in.Body),
			Want: fmt.Sprintf("at most %d bytes", MaxIntentBody)}
	}
	return nil
}

// key is under what a tile remembers the intent's outcome; empty: it does not. That of a movement is of its actor too,
// so that no actor can take another's place, and is the name of no action.
func (in *Intent) key() string {
	if in.MoveID == "" {
		return in.ActionID
	}
	sum := sha256.Sum256([]byte(in.Actor + "\x00" + in.MoveID)) // neither has a control character
	return history.MoveMark + string(sum[:16])
}

// ValidateName checks an ID or a name that travels with an intent: 1 to MaxName bytes, as fence.IsName has it. It
// returns nil, or a *fence.ArgumentError with the field's name.
func ValidateName(field, s string) error {
	if !fence.IsName(s, MaxName) {
		want := fmt.Sprintf("1 to %d bytes of UTF-8 without control characters", MaxName)
		return &fence.ArgumentError{Field: field, Value: s, Want: want}
	}
	return nil
}

// ErrRedirect means: this processor does not own the tile. A *RedirectError names the owner. The intent was not
// resolved here and never will be; the same intent may be sent to the owner named.
var ErrRedirect = errors.New("tile is owned elsewhere")

// ErrOverloaded means: the tile's intent queue is full, or the tile cannot remember the outcome of another action
// (Limits.RememberFor). Backpressure: the intent was not decided and never will be; send it again later.
var ErrOverloaded = errors.New("tile is overloaded")

// RedirectError names a tile's owner, as far as it is known.
type RedirectError struct {
	Tile    fence.TileID
	Epoch   fence.Epoch // zero when unknown
	Contact string      // empty when unknown: ask the routing ladder
}

func (e *RedirectError) Error() string {
	if e.Contact == "" {
		return fmt.Sprintf("tile %s: this server does not own it, and knows of no other that does", e.Tile)
	}
	return fmt.Sprintf("tile %s: %v: epoch %d at %s", e.Tile, ErrRedirect, e.Epoch, e.Contact)
}

// Is matches ErrRedirect.
func (e *RedirectError) Is(target error) bool { return target == ErrRedirect }

// ErrUnresolved means: ownership changed while the intent was being committed, so this processor cannot say
// whether it was. A *UnresolvedError names the owner, which can: send it the same ActionID.
var ErrUnresolved = errors.New("handed over while being committed")

// UnresolvedError names the owner to ask, as far as it is known.
type UnresolvedError struct {
	Tile    fence.TileID
	Epoch   fence.Epoch // zero when unknown
	Contact string      // empty when unknown: ask the routing ladder
}

func (e *UnresolvedError) Error() string {
	if e.Contact == "" {
		return fmt.Sprintf("tile %s: its owner ended while the intent was being committed, and whether it was is not "+
			"known yet: send it again with the same ActionID", e.Tile)
	}
	return fmt.Sprintf("tile %s: %v: ask epoch %d at %q", e.Tile, ErrUnresolved, e.Epoch, e.Contact)
}

// Is matches ErrUnresolved.
func (e *UnresolvedError) Is(target error) bool { return target == ErrUnresolved }
