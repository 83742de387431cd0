package plan

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
	"github.com/tilefence/tilefence/tile"
)

// Limits.
const (
	MaxWords       = 2 << 10            // bytes of a request's words
	MaxBody        = tile.MaxIntentBody // bytes of a plan
	MaxOutstanding = 2048               // requests and answers of one tile; more are not taken
	MaxOfRequester = MaxOutstanding / 8 // of them, of one requester: the desk takes no more
	MaxAsks        = 256                // requests of one Turn
	MaxLetters     = 1000               // dead letters of one shard; the oldest make room
	MaxError       = 512                // bytes of a failure's text that are kept
	AnswerTTL      = 30 * time.Second   // how long an answer waits for the owner
)

// Tier says which requests go first. Zero is none.
type Tier int

// The tiers.
const (
	Player     Tier = 1 // a player waits for it
	Background Tier = 2 // no player waits
)

// String returns the tier's lower-case name.
func (t Tier) String() string { return enum.Name(t, "tier", "player", "background") }

// LogValue implements slog.LogValuer with the form of String.
func (t Tier) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Request asks for a plan. The game sets the first five fields; the desk and the store set the others.
type Request struct {
	Tile      fence.TileID
	Entity    string // which the plan is for: a name (tile.ValidateName). The intent of the plan has it as its Actor
	Requester string // the player to whom the call is charged; a name, or empty
	Tier      Tier
	Words     string // what the player said, UTF-8; at most MaxWords bytes

	ID      string        // names the request in every store and log; 1 to 64 bytes
	Epoch   fence.Epoch   // of the owner that asked for it, or adopted it
	Attempt int           // 1 in the first call
	Age     time.Duration // since it was queued, by the store's clock, when the store answered
	Running bool          // a worker has claimed it
}

// Validate checks what the game sets: nil, or a *fence.ArgumentError.
func (r *Request) Validate() error {
	if r.Tile == 0 {
		return &fence.ArgumentError{Field: "tile", Value: 0, Want: "an H3 index, not zero"}
	}
	if err := tile.ValidateName("entity", r.Entity); err != nil {
		return err
	}
	if r.Requester != "" {
		if err := tile.ValidateName("requester", r.Requester); err != nil {
			return err
		}
	}
	if r.Tier != Player && r.Tier != Background {
		return &fence.ArgumentError{Field: "tier", Value: r.Tier, Want: "plan.Player or plan.Background"}
	}
	if len(r.Words) > MaxWords {
		return &fence.ArgumentError{Field: "words", Value: len(r.Words),
			Want: fmt.Sprintf("at most %d bytes", MaxWords)}
	}
	return nil
}

// Usage is what a call consumed.
type Usage struct {
	Model                 string // as the provider names it, at most 128 bytes; empty: no event is stored
	Input, Output, Cached int64  // tokens, not negative; Cached are those of Input that the provider had in its cache
}

func (u *Usage) validate() error {
	switch {
	case len(u.Model) > 128:
		return &fence.ArgumentError{Field: "Model", Value: len(u.Model), Want: "at most 128 bytes"}
	case min(u.Input, u.Output, u.Cached) < 0 || max(u.Input, u.Output, u.Cached) > 1<<50:
		return &fence.ArgumentError{Field: "tokens", Value: *u, Want: "none negative, none over 2^50"}
	}
	return nil
}

// UsageEvent is one request's usage, as billing reads it.
type UsageEvent struct {
	Position  string // in the shard's events; the store's own form
	Request   string // its ID: the idempotency key, unique over all shards and for ever
	Tile      fence.TileID
	Entity    string
	Requester string
	Usage     Usage
	At        time.Time // when the result was stored, by the store's clock
}

// Letter is a request that failed in its last attempt.
type Letter struct {
	Request Request
	Error   string    // of the last attempt
	At      time.Time // when it died, by the store's clock
}
