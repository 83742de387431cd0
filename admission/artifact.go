package admission

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Reason says why the ledger itself rejected an action. Zero: it did not.
type Reason uint8

// The reasons. They are part of the stored artifact.
const (
	ReasonBalance  Reason = 1 // the balance was below the cost
	ReasonCooldown Reason = 2 // the account was cooling down
)

// String returns "balance", "cooldown", or "" for none.
func (r Reason) String() string {
	switch r {
	case 0:
		return ""
	case ReasonBalance:
		return "balance"
	case ReasonCooldown:
		return "cooldown"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// LogValue implements slog.LogValuer with the form of String.
func (r Reason) LogValue() slog.Value { return slog.StringValue(r.String()) }

// ParseReason reads the form String writes.
func ParseReason(s string) (Reason, error) {
	for r := Reason(0); r <= ReasonCooldown; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return 0, &fence.ArgumentError{Field: "reason", Value: s, Want: "balance, cooldown or nothing"}
}

// Artifact is the ledger's record of one action, and the only source of its answer. It is written in the
// same step as the spend. Its life:
//
//	            ┌ affordable ──► open ──┬ Resolve ──► applied, fizzled, rejected, redirected
//	Admit (new) ┤      cost is spent    └ Abandon ──► rejected, redirected    cost is given back
//	            └ not affordable ────────────────────► rejected               nothing was spent
//
// Each arrow is one conditional write, so that exactly one is taken in any race. Nothing leaves a terminal
// outcome. While open, Attempt and Withdraw count the attempts that may have delivered the action. All times are the
// store's clock (Store.Now), in whole milliseconds, UTC.
type Artifact struct {
	ActionID    string
	AdmissionID AdmissionID
	Fingerprint Fingerprint

	// The action, as it was admitted. What is forwarded comes from here, never from a later retry.
	Actor    string
	Asset    string
	Cost     Amount
	Cooldown time.Duration
	Tile     fence.TileID
	Body     []byte

	Outcome  stream.Outcome // zero while open
	Reason   Reason         // why the ledger rejected it; zero otherwise
	Refunded bool           // the cost was given back

	// Attempts is how many attempts may have delivered the action to a tile: all that were begun less those
	// withdrawn. Admitting it is the first.
	Attempts int
	// AttemptID names the attempt begun last; empty when that one was withdrawn.
	AttemptID AttemptID

	Admitted  time.Time
	Attempted time.Time // begin of the last attempt
	Resolved  time.Time // zero while open

	// Why is what the tile's rules have said about the outcome: tile.Result.Why, of the call that has had the tile's
	// answer. Not stored: an artifact that is read has none.
	Why string

	// Duplicate says that the artifact was there before the call that returned it. Not stored.
	Duplicate bool

	// Crossing says where the actor went, if the call that returned the artifact has learned it from the tile. Not
	// stored.
	Crossing tile.Crossing
}

// Open reports whether the action has no outcome yet.
func (a Artifact) Open() bool { return a.Outcome == 0 }

// Spent is what the action has taken from its account and not given back.
func (a Artifact) Spent() Amount {
	if a.Reason != 0 || a.Refunded {
		return 0
	}
	return a.Cost
}

// CooldownUntil is when the account may spend again as far as this action goes; zero if it set none.
func (a Artifact) CooldownUntil() time.Time {
	if a.Cooldown == 0 || a.Reason != 0 {
		return time.Time{}
	}
	return a.Admitted.Add(a.Cooldown)
}

// Intent is what the tile gets.
func (a Artifact) Intent() tile.Intent {
	return tile.Intent{Tile: a.Tile, ActionID: a.ActionID, Actor: a.Actor, Body: a.Body, Admitted: a.Admitted}
}

// Account is one owner's holding of one asset.
type Account struct {
	Owner string
	Asset string

	Balance       Amount
	Version       uint64    // raised by one with every change; zero: never touched
	CooldownUntil time.Time // spends are refused before it; zero: never set
}

// Credit mints units into an account.
type Credit struct {
	ID     string // idempotency key of the mint, 1 to tile.MaxName bytes of UTF-8; never reused
	Owner  string // 1 to tile.MaxName bytes of UTF-8
	Asset  string // 1 to tile.MaxName bytes of UTF-8
	Amount Amount // 1 to MaxAmount
	At     time.Time
}

// Validate checks the credit without any I/O: nil, or a *fence.ArgumentError.
func (c *Credit) Validate() error {
	for _, f := range []struct{ field, value string }{{"credit ID", c.ID}, {"owner", c.Owner}, {"asset", c.Asset}} {
		if err := validateName(f.field, f.value); err != nil {
			return err
		}
	}
	if c.Amount == 0 || c.Amount > MaxAmount {
		return &fence.ArgumentError{Field: "amount", Value: c.Amount, Want: "from 1 to 2^53-1"}
	}
	return nil
}
