package admission

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// MinRetention is how long an action's outcome is kept at least after it was recorded. A client that asks again within
// that time gets the first answer. A gateway's RetryWindow is never longer.
const MinRetention = 24 * time.Hour

// Store keeps accounts, artifacts and credits. Each method is one atomic step; nothing is ever half done,
// and what a method has answered survives the crash of everything. Arguments come from an
// AdmissionLedger, which has validated them. Implementations are safe for concurrent use, by many
// processes too. admissiontest.Run states the contract as tests.
//
// Errors common to all methods: a *fence.StoreError with fence.ErrNotApplied when nothing was written, or
// fence.ErrUnknownOutcome when the answer was lost. An implementation retries what is worth it (conflicts,
// throttling, lost answers) within ctx before it gives up. Every method may be called again with the same
// arguments, and then does nothing twice.
type Store interface {
	// Now is the store's clock, in whole milliseconds, UTC. All processes on a store read the same clock, so that the
	// clock of one gateway does not decide when a cooldown is over. Every time that a method is given comes from it.
	Now(ctx context.Context) (time.Time, error)

	// Admit writes the artifact a and spends its cost, unless the action has an artifact already; then it
	// returns that one and changes nothing. a is open, with Attempts 1 and its
	// AdmissionID as AttemptID.
	//
	// The spend takes a.Cost from the account (a.Actor, a.Asset) if the balance covers it and
	// its cooldown is over at a.Admitted, and sets the next cooldown if a.Cooldown is not zero. If not,
	// the artifact is written as rejected, with the reason (balance first), in a step that is atomic with
	// the account still being unable to pay. An account never credited has balance zero.
	Admit(ctx context.Context, a Artifact) (Artifact, error)

	// Attempt begins an attempt of an open action: Attempts rises by one and AttemptID and Attempted are
	// set, unless this attempt is the last one already. A terminal artifact is returned unchanged.
	// ErrUnknownAction when there is none.
	Attempt(ctx context.Context, actionID string, attempt AttemptID, at time.Time) (Artifact, error)

	// Withdraw takes an attempt back that has certainly delivered nothing: Attempts falls by one and
	// AttemptID becomes empty, if the action is open and this is its last attempt. Otherwise nothing
	// changes and it is no error, since counting too many is safe. ErrUnknownAction when there is none.
	Withdraw(ctx context.Context, actionID string, attempt AttemptID) error

	// Settle gives an open action its outcome. A terminal artifact is returned unchanged: the first
	// settlement wins. With s.Refund the cost and the action's own cooldown are given back in the same step.
	// ErrUnknownAction when there is none; ErrContested, with the artifact, when s.Sole is
	// set and the open action has or had another attempt that may have delivered it; ErrBalanceLimit,
	// with the artifact, when the cost cannot be given back because the balance would exceed MaxAmount.
	Settle(ctx context.Context, s Settlement) (Artifact, error)

	// Lookup reads an artifact, seeing every write that was answered before. ErrUnknownAction when there
	// is none.
	Lookup(ctx context.Context, actionID string) (Artifact, error)

	// Pending lists open actions whose last attempt was at from or later, and before the given time, the longest
	// untouched first, at most limit. It may lag behind other writes by seconds.
	Pending(ctx context.Context, from, before time.Time, limit int) ([]PendingAction, error)

	// Credit adds to an account's balance once per credit ID. The same credit again changes nothing;
	// another credit under the ID is a *ReusedError. ErrBalanceLimit when the balance would exceed MaxAmount.
	Credit(ctx context.Context, c Credit) error

	// Balance reads an account, seeing every write that was answered before. One never touched is empty.
	Balance(ctx context.Context, owner, asset string) (Account, error)

	// Scan calls visit with every account, artifact and credit, in any order, until it returns an error. A record that
	// cannot be read is visited as a *fence.CorruptError. What is written meanwhile may be seen or not. visit makes no
	// call of the Store.
	Scan(ctx context.Context, visit func(Record) error) error
}

// PendingAction is an open action in the list of them.
type PendingAction struct {
	ActionID  string
	Tile      fence.TileID // zero: the list does not have it
	Attempted time.Time    // when the last attempt began
}

// Record is one record of a Store: an Account, an Artifact, a Credit or a *fence.CorruptError.
type Record any

// Settlement is the end of an action.
type Settlement struct {
	ActionID string
	Outcome  stream.Outcome // terminal
	At       time.Time

	// Refund gives back the cost and the cooldown in the same step.
	Refund bool
	// Sole, if not empty, makes a refund an abandonment: it takes effect only while Attempts is 1 and AttemptID is
	// Sole.
	Sole AttemptID
}

// Op names the settlement for errors: "resolve", "refund" or "abandon".
func (s *Settlement) Op() string {
	switch {
	case s.Sole != "":
		return "abandon"
	case s.Refund:
		return "refund"
	}
	return "resolve"
}
