package tile

import (
	"log/slog"

	"github.com/tilefence/tilefence/stream"
)

// MaxWhy is the most bytes of Result.Why.
const MaxWhy = stream.MaxRefusal

// Result is what became of an intent. What it says beside the outcome is for the intent's sender alone: watchers do not
// see it.
type Result struct {
	Outcome stream.Outcome

	// Why is what the rules have said about the outcome (Outputs.Why), at most MaxWhy bytes; usually empty. It is said
	// once, by the owner whose tick has decided the intent, and is not committed: the answer to a repeated ActionID has
	// the outcome, and no Why.
	Why string

	// Crossing says that the intent's actor has left the tile, in the tick that decided the intent or since, and where
	// it went.
	Crossing Crossing
}

// String is the outcome, why, and where the actor went.
func (r Result) String() string {
	s := r.Outcome.String()
	if r.Why != "" {
		s += ": " + r.Why
	}
	if !r.Crossing.IsZero() {
		s += ", crossed to " + r.Crossing.To.String()
	}
	return s
}

// LogValue implements slog.LogValuer with the form of String.
func (r Result) LogValue() slog.Value { return slog.StringValue(r.String()) }
