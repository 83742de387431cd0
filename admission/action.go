package admission

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// Amount counts units of an asset: cards, coins in their smallest denomination, charges.
type Amount uint64

// MaxAmount is the largest amount and the largest balance: 2^53 - 1, exact in every JSON reader.
const MaxAmount Amount = fence.MaxNumber

// Action is one economic action as a client asks for it: it spends something and wants something to
// happen in a tile. Everything but the ID may be wrong or hostile; the ID decides what it is a retry of.
type Action struct {
	// ID is the client's idempotency key, a name (fence.IsName) of 1 to 64 bytes. One ID names
	// one action in the whole ledger, for all clients, so a client takes a new random UUID for each
	// action and the same one for each retry.
	ID string

	Actor string       // the authenticated player, whose account pays; 1 to tile.MaxName bytes of UTF-8
	Asset string       // what is spent: a card kind, a currency; 1 to tile.MaxName bytes of UTF-8
	Cost  Amount       // units spent; zero spends nothing, but still honours the cooldown
	Tile  fence.TileID // where it happens
	Body  []byte       // the game's own encoding, at most tile.MaxIntentBody bytes

	// Cooldown is for how long the account refuses the next spend after this one; zero leaves the account
	// free. Whole milliseconds; the rest is cut off.
	Cooldown time.Duration

	// Fingerprint identifies the request, to tell a retry from another action under the same ID. Zero lets
	// the ledger compute it from all other fields. A gateway that prices actions itself sets it to the
	// fingerprint of what the client sent, so that a price changed between two tries makes no new request.
	Fingerprint Fingerprint
}

// Validate checks the action without any I/O: nil, or a *fence.ArgumentError.
func (a *Action) Validate() error {
	if err := validateName("asset", a.Asset); err != nil {
		return err
	}
	return a.validateRequest()
}

// validateRequest checks what a client must send even when the gateway sets the price and chooses the asset.
func (a *Action) validateRequest() error {
	for _, f := range []struct{ field, value string }{{"action ID", a.ID}, {"actor", a.Actor}} {
		if err := validateName(f.field, f.value); err != nil {
			return err
		}
	}
	if a.Asset != "" {
		if err := validateName("asset", a.Asset); err != nil {
			return err
		}
	}
	switch {
	case a.Cost > MaxAmount:
		return &fence.ArgumentError{Field: "cost", Value: a.Cost, Want: "at most 2^53-1"}
	case a.Cooldown < 0 || a.Cooldown > maxCooldown:
		return &fence.ArgumentError{Field: "cooldown", Value: a.Cooldown, Want: "from 0 to 100 years"}
	}
	in := a.intent()
	return in.Validate()
}

// maxCooldown keeps the sum with a date far away from any overflow.
const maxCooldown = 100 * 365 * 24 * time.Hour

func (a *Action) intent() tile.Intent {
	return tile.Intent{Tile: a.Tile, ActionID: a.ID, Actor: a.Actor, Body: a.Body}
}

// Fingerprint is a SHA-256 over a request's fields.
type Fingerprint [sha256.Size]byte

// IsZero reports whether no fingerprint is set.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// String returns lower-case hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// LogValue implements slog.LogValuer with the form of String.
func (f Fingerprint) LogValue() slog.Value { return slog.StringValue(f.String()) }

// fingerprintVersion is hashed first. Another list of fields takes another version, and with it every
// retry across the change is refused as another request.
const fingerprintVersion = 1

// fingerprintOf hashes everything that makes a request what it is: actor, asset, cost, cooldown, tile and
// body, each with its length, so that no two requests run together. The ID is not part of it.
func fingerprintOf(a Action) Fingerprint {
	b := make([]byte, 0, 64+len(a.Actor)+len(a.Asset)+len(a.Body))
	b = append(b, fingerprintVersion)
	for _, field := range [][]byte{[]byte(a.Actor), []byte(a.Asset), a.Body} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(field)))
		b = append(b, field...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(a.Cost))
	b = binary.BigEndian.AppendUint64(b, uint64(a.Cooldown.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(a.Tile))
	return sha256.Sum256(b)
}

// AdmissionID names one admission: a random (version 4) UUID in its usual form. It tells the call that
// wrote an artifact from one that found it.
type AdmissionID string

// AttemptID names one attempt to deliver an action. The first attempt has its admission's ID.
type AttemptID string

// NewActionID returns a random ID for a new action, for clients written in Go.
func NewActionID() string { return rand.Text() }

// ValidateActor checks a name that authentication gave, before anything is done under it: nil, or a
// *fence.ArgumentError.
func ValidateActor(actor string) error { return validateName("actor", actor) }

// validateName applies the one rule for names, which is the tile's.
func validateName(field, s string) error { return tile.ValidateName(field, s) }
