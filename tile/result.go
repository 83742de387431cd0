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
}

// String is the outcome, and why.
func (r Result) String() string {
	if r.Why == "" {
		return r.Outcome.String()
	}
	return r.Outcome.String() + ": " + r.Why
}

// LogValue implements slog.LogValuer with the form of String.
func (r Result) LogValue() slog.Value { return slog.StringValue(r.String()) }
