// Package recovery decides what the owner of a tile does after anything that keeps it from settling a tick as usual:
// the store has refused a batch, a stream is damaged, watchers were shown what the owner does not know.
//
// Decide is a pure function. Where the evidence does not suffice, the action is a question, and its answer is more
// evidence. Package tile carries the actions out on real back ends, and the model of internal/robustness/spec on its
// own state, so that the model checks the decisions that owners make.
//
// Whatever has happened, the authority is asked first, but for an install that was refused right after its epoch was
// granted. Its answer is the end of it in two cases:
//
//	another process holds the tile          StandDown
//	no answer                               Wait: neither serve nor stand down
//
// In the others the record is this owner's grant, or the authority has forgotten it: it was restored to an older state,
// and no process holds the tile by what it knows. Then the first line that applies counts:
//
//	installed anew, durable store later     Rebase: the state that it has would replace this owner's
//	installed anew                          Settle
//	damage; shown above                     Rebase: only this owner has all that was acknowledged
//	a later owner serves                    StandDown, although the authority does not know it
//	a later owner, not known to be dead     Wait
//	a later owner is dead                   TakeUp: what it has confirmed counts
//	an earlier owner went on, unconfirmed   Wait: every copy may have it any moment
//	an earlier owner went on, and serves    StandDown: every copy has lost what this owner installed
//	an earlier owner went on, and left      TakeUp
//	the authority has forgotten the grant   Rebase: an epoch that can be granted again proves nothing
//	the journal has lost the seal           WriteBase
//	the journal has another owner's state   TakeUp
//	no owner                                InstallAnew
//	behind, and the lost batches are kept   Reappend
//	behind; replay; forked                  Rebase
//	anything else                           Fail
//
// While it claims the tile, under an epoch that it does not serve yet, an owner may be refused, too. A store that knows
// a higher epoch is such a case, and the authority is asked first:
//
//	a later owner has committed             TakeUp
//	anything else                           ClaimAgain, above that epoch
//
// The other is a stream that does not end where the history ends that a rebase replaces:
//
//	no other owner has gone on              ClaimAgain
//	an earlier owner went on, unconfirmed   Wait, once the authority has answered
//	an earlier owner went on, and serves    StandDown
//	an earlier owner went on, and left      TakeUp
package recovery

import (
	"cmp"

	"github.com/tilefence/tilefence/internal/enum"
)

// Event is what has happened.
type Event uint8

// The events. The first five are refusals by the store.
const (
	NoOwner          Event = iota + 1 // there is no owner hash of this epoch
	Behind                            // the stream ends before this owner's history does
	Replay                            // an earlier owner has committed after this one had read the stream
	Forked                            // the stream has a history that this owner does not know
	Stale                             // the store knows a higher epoch
	Damaged                           // the stream has what cannot be read
	InstalledAnew                     // an install has come into a store where there was no owner hash
	ShownAbove                        // watchers were shown an epoch above this owner's
	JournalRestored                   // the journal has lost this owner's seal, or entries of it
	JournalTaken                      // the journal has a state that is later, or another one at the same place
	ReinstallBehind                   // this owner's install under a new epoch was refused: the stream ends before it
	ReinstallRefused                  // the same, for any other reason
	ClaimStale                        // this owner claims the tile, and a store knows a higher epoch
	ClaimBehind                       // the same by a rebase, and the stream does not end where it replaces
)

// String names the event.
func (e Event) String() string {
	return enum.Name(e, "event", "no owner", "behind", "replay", "forked", "stale", "damaged", "installed anew",
		"shown above", "journal restored", "journal taken", "reinstall behind", "reinstall refused", "claim stale",
		"claim behind")
}

// Refusal reports whether the store has refused a batch.
func (e Event) Refusal() bool { return e >= NoOwner && e <= Stale }

// Authority is what the authority's record says.
type Authority uint8

// The records.
const (
	Unasked    Authority = iota
	Ours                 // it is this owner's grant
	Superseded           // another process was granted the tile after this one
	Forgotten            // it is older than the grant, or there is none
	Silent               // it cannot be read
)

// Later is an owner whose epoch is above this one's, or the same at another contact. A refusal shows it.
type Later uint8

// What is known of it.
const (
	NoLater    Later = iota
	LaterSeen        // it is not known whether it lives
	LaterWaits       // the same, after a look: it needs more time
	LaterServes
	LaterDead
)

// Earlier is an owner whose epoch is not above this one's, and that has committed since this one took the tile.
type Earlier uint8

// What is known of it.
const (
	NoEarlier          Earlier = iota
	EarlierSeen                // it is not known whether every copy has what it has committed
	EarlierUnconfirmed         // not every copy has, or the copies do not answer
	EarlierServes              // every copy has
	EarlierLeft                // every copy has, and its owner hash is gone
)

// Durable is the durable store's state beside this owner's, for an owner that has installed itself anew.
type Durable uint8

// The states.
const (
	DurableUnasked Durable = iota
	DurableNotLater
	DurableLater // it is of a later epoch
)

// Evidence is what an owner knows when it decides.
type Evidence struct {
	Event     Event
	Authority Authority
	Later     Later
	Earlier   Earlier
	Durable   Durable
	Kept      bool // this owner has every batch that the stream has lost
}

// Action is what to do.
type Action uint8

// The actions. After the first four there is more evidence, and Decide is called again.
const (
	AskAuthority Action = iota + 1
	AskDurable          // whether the durable store has a later state
	WatchLater          // whether the later owner moves its hash
	AskCopies           // whether every copy has what the earlier owner has committed
	Wait                // for the next attempt: what is not known now will be
	StandDown           // the tile is another's
	Settle              // acknowledge the batch
	InstallAnew         // present the batch as an install
	Reappend            // append again what the stream has lost
	Rebase              // take a new epoch, and replace the history by this owner's state
	TakeUp              // take a new epoch, and begin from the state that the stores have
	ClaimAgain          // take a new epoch above all that was seen, and begin from the same state
	WriteBase           // make this owner's state the base of the journal
	Fail                // end with the error: it is the program's fault
)

// String names the action.
func (a Action) String() string {
	return enum.Name(a, "action", "ask the authority", "ask the durable store", "watch the later owner",
		"ask the copies", "wait", "stand down", "settle", "install anew", "re-append", "rebase", "take up",
		"claim again", "write the base", "fail")
}

// Decide returns what to do next.
func Decide(e *Evidence) Action {
	switch e.Event { // the epoch was granted just now
	case ReinstallBehind:
		return Rebase
	case ReinstallRefused, JournalTaken:
		return TakeUp
	case ClaimBehind:
		if a := earlier(e.Earlier); a != Wait {
			return cmp.Or(a, ClaimAgain)
		}
	}
	switch e.Authority {
	case Unasked:
		return AskAuthority
	case Superseded:
		return StandDown
	case Silent:
		return Wait
	}
	switch e.Event {
	case InstalledAnew:
		return installedAnew(e.Durable)
	case Damaged, ShownAbove:
		return Rebase
	case ClaimStale:
		if e.Later != NoLater {
			return TakeUp
		}
		return ClaimAgain
	}
	if a := another(e); a != 0 {
		return a
	}
	if e.Authority == Forgotten {
		return Rebase
	}
	return ours(e)
}

// installedAnew decides for a batch that is in the store as an install.
func installedAnew(d Durable) Action {
	switch d {
	case DurableUnasked:
		return AskDurable
	case DurableLater:
		return Rebase
	}
	return Settle
}

// another decides where there is, or may be, another owner; 0: there is none.
func another(e *Evidence) Action {
	switch e.Later {
	case LaterSeen:
		return WatchLater
	case LaterWaits:
		return Wait
	case LaterServes:
		return StandDown
	case LaterDead:
		return TakeUp
	}
	return earlier(e.Earlier)
}

// earlier decides where an owner of an earlier epoch may have gone on; 0: none has.
func earlier(e Earlier) Action {
	switch e {
	case EarlierSeen:
		return AskCopies
	case EarlierUnconfirmed:
		return Wait
	case EarlierServes:
		return StandDown
	case EarlierLeft:
		return TakeUp
	}
	return 0
}

// ours decides for a tile that is this owner's, by all that is known.
func ours(e *Evidence) Action {
	switch e.Event {
	case JournalRestored:
		return WriteBase
	case NoOwner:
		return InstallAnew
	case Behind:
		if e.Kept {
			return Reappend
		}
		return Rebase
	case Replay, Forked:
		return Rebase
	}
	return Fail
}
