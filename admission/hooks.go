package admission

import (
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Kind distinguishes the two kinds of intents.
type Kind string

// The kinds.
const (
	Move Kind = "move" // movement: smoothed, never recorded
	Act  Kind = "act"  // economic actions: admitted durably first
	Ask  Kind = "ask"  // for the outcome of an action
)

// Hooks are called as things happen, for metrics and traces. Any may be nil. They run on the caller's
// goroutine, at the same time from many, and must not block.
type Hooks struct {
	Admitted func(AdmitInfo)  // an Admit was answered
	Settled  func(SettleInfo) // a Resolve or Abandon was answered
	Done     func(DoneInfo)   // an intent left the gateway, with an outcome or an error
	Swept    func(SweepInfo)  // a sweep ended
}

// AdmitInfo describes an answered Admit.
type AdmitInfo struct {
	ActionID  string
	Duplicate bool           // the action was known
	Outcome   stream.Outcome // zero: open; Rejected with a Reason: the ledger rejected it
	Reason    Reason
	Took      time.Duration
	Err       error // not nil: no answer, or a *ReusedError
}

// SettleInfo describes an answered Resolve or Abandon.
type SettleInfo struct {
	ActionID string
	Asked    stream.Outcome // the caller's outcome
	Outcome  stream.Outcome // the action's outcome; if it differs, another call resolved the action first
	Refunded bool
	Took     time.Duration
	Err      error
}

// DoneInfo describes an intent that left the gateway.
type DoneInfo struct {
	Kind      Kind
	Tile      fence.TileID
	ActionID  string         // of an action
	First     bool           // this call admitted the action; other calls repeat it
	Outcome   stream.Outcome // zero with an error
	Replayed  bool           // the ledger had the outcome already
	Redirects int            // redirects met by this call
	Resubmits int            // submissions after the first, at most 1 in a tile
	Followed  bool           // a movement: it was sent to the tile that its actor went to, too
	Took      time.Duration
	Err       error
}

// SweepInfo describes one sweep over pending actions.
type SweepInfo struct {
	Found    int // pending actions picked up
	Resolved int // of these, now terminal
	Evidence int // of Resolved: those whose tile did not answer, but whose outcome the Reconciler found
	Refunded int // of Resolved: those that never happened, as the Reconciler found, with their cost given back
	Stuck    int // of Found: too old to be sent, and without evidence: see ErrExpired
	Left     int // of Found: left to the next sweep, because their tile did not take them, or not in its time
	Took     time.Duration
	Err      error // the listing failed
}
