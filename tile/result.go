package tile

import (
	"log/slog"

	"github.com/tilefence/tilefence/stream"
)

// Result is what became of an intent. What it says beside the outcome is for the intent's sender alone: watchers do not
// see it.
type Result struct {
	Outcome stream.Outcome
}

// String is the outcome.
func (r Result) String() string { return r.Outcome.String() }

// LogValue implements slog.LogValuer with the form of String.
func (r Result) LogValue() slog.Value { return slog.StringValue(r.String()) }
