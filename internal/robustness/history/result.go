package history

import (
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
)

// Outcome is the class of an answer.
type Outcome string

// The outcomes.
const (
	OK          Outcome = "ok"
	Unconfirmed Outcome = "unconfirmed" // on the master, not on enough replicas
	Refused     Outcome = "refused"     // by the store; Result.Reason
	Lost        Outcome = "lost"        // by the authority; Result.Grant is the holder
	NeverOwned  Outcome = "never owned"
	NotApplied  Outcome = "not applied" // nothing was, and nothing will be
	Unknown     Outcome = "unknown"     // the operation stays open
	Invalid     Outcome = "invalid"     // a malformed argument
	Failed      Outcome = "failed"      // anything else; the operation stays open, since nothing says otherwise
)

// Result is the answer to an operation.
type Result struct {
	Outcome   Outcome  `json:"outcome"`
	Reason    string   `json:"reason,omitempty"` // of a refusal: stale, replay, behind, forked, noowner, …
	Position  Position `json:"position,omitzero"`
	Duplicate bool     `json:"duplicate,omitempty"`
	Replicas  int      `json:"replicas,omitempty"`
	Current   *Owner   `json:"current,omitempty"` // the owner that a refusal names; Position is the head of the stream
	Grant     *Grant   `json:"grant,omitempty"`   // granted, looked up, or the holder of a lost claim
	Answer    string   `json:"answer,omitempty"`  // of an intent: its outcome
	Err       string   `json:"err,omitempty"`     // in words, for people
}

// Applied reports whether a write is in the store that answered.
func (r *Result) Applied() bool {
	return r != nil && (r.Outcome == OK || r.Outcome == Unconfirmed)
}

// Open reports whether the outcome leaves the operation open.
func (r *Result) Open() bool { return r == nil || r.Outcome == Unknown || r.Outcome == Failed }

// outcomes are the classes of package decision, by their number.
var outcomes = []Outcome{"", OK, Unconfirmed, Refused, Lost, NeverOwned, NotApplied, Unknown, Invalid, Failed}

// reasons are those of package decision, by their number.
var reasons = []string{"", "stale", "replay", "behind", "forked", "noowner", "regress", "uncommitted", "checksum"}

// resultOf is an answer with its error in words.
func resultOf(a decision.Answer, err error) Result {
	r := answered(&a)
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

// answered is an answer as a record keeps it.
func answered(a *decision.Answer) Result {
	r := Result{Outcome: outcomes[a.Outcome], Reason: reasons[a.Reason], Position: Position(a.At),
		Duplicate: a.Duplicate, Replicas: a.Copies}
	if a.Outcome == decision.Refused {
		current := OwnerOf(a.Current)
		r.Current = &current
	}
	if a.Outcome == decision.Lost || a.Grant.Epoch != 0 {
		row := GrantOf(a.Grant)
		r.Grant = &row
	}
	return r
}

// OwnerOf is an owner as a record keeps it.
func OwnerOf(o fence.Owner) Owner {
	return Owner{Epoch: o.Epoch, Contact: o.Contact, Position: Position(o.Position), Tick: o.Tick}
}

// GrantOf is a row as a record keeps it.
func GrantOf(g fence.Grant) Grant {
	if g.Epoch == 0 {
		return Grant{}
	}
	return Grant{Epoch: g.Epoch, Contact: g.Contact, ID: g.ID.String()}
}
