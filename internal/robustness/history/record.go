package history

import (
	"encoding/json"

	"github.com/tilefence/tilefence/fence"
)

// Kind says what a record is about.
type Kind string

// Calls: the beginning of an operation. Return ends any of them.
const (
	Claim    Kind = "claim"    // Record.Claim
	Promote  Kind = "promote"  // Record.Claim
	Lookup   Kind = "lookup"   // the tile alone
	Release  Kind = "release"  // Record.Row is the grant given up
	Restore  Kind = "restore"  // Record.Row is the row the authority was restored to; its epoch is zero for none
	Commit   Kind = "commit"   // Record.Commit
	Rebase   Kind = "rebase"   // Record.Rebase
	Snapshot Kind = "snapshot" // Record.Snapshot
	Submit   Kind = "submit"   // Record.Intent
	Return   Kind = "return"   // Record.Result; Record.Op is the call's
)

// Observations.
const (
	Saw       Kind = "saw"       // an auditor saw Record.Entry in the stream for the first time
	SawOwner  Kind = "owner"     // an auditor saw Record.Owner, which differs from the one before
	Published Kind = "published" // a bridge handed Record.Entry over to fan-out
	Reset     Kind = "reset"     // a watcher replaced its state by the one at Record.Position
	Frame     Kind = "frame"     // a watcher took Record.Entry
	Held      Kind = "held"      // at quiescence a watcher or owner holds Record.Position, its state is Record.Digest
	Final     Kind = "final"     // at quiescence the tile is as Record.Final says
	Life      Kind = "life"      // a processor's life: Record.Life
	Sealed    Kind = "sealed"    // a claimant took a journal over, for the epoch of Record.Position
	Recovered Kind = "recovered" // a claimant read a journal, which ends at Record.Position
	Journaled Kind = "journaled" // a claimant's batch is in a journal
	Based     Kind = "based"     // a claimant laid a journal's base, the snapshot of Record.Snapshot
	Paid      Kind = "paid"      // at quiescence the ledger has Record.Payment
	Books     Kind = "books"     // at quiescence the ledger as a whole is as Record.Balance says
	Fault     Kind = "fault"     // the campaign injected or removed a fault: Record.Fault
)

// Record is one line of a history. Fields that its Kind does not name are zero.
type Record struct {
	At      int64        `json:"at"`               // monotonic clock of the machine, nanoseconds
	Process string       `json:"process"`          // one run of one program
	Client  string       `json:"client,omitempty"` // the client within the process; see the package comment
	Kind    Kind         `json:"kind"`
	Op      uint64       `json:"op,omitempty"` // joins a call to its return; unique in the process
	Tile    fence.TileID `json:"tile,omitempty"`

	Claim    *ClaimCall    `json:"claim,omitempty"`
	Commit   *CommitCall   `json:"commit,omitempty"`
	Rebase   *RebaseCall   `json:"rebase,omitempty"`
	Snapshot *SnapshotCall `json:"snapshot,omitempty"`
	Intent   *IntentCall   `json:"intent,omitempty"`
	Result   *Result       `json:"result,omitempty"`

	Asked    int64      `json:"asked,omitempty"` // when an auditor asked for what it saw, which may be as old; zero: At
	Entry    *Entry     `json:"entry,omitempty"`
	Owner    *Owner     `json:"owner,omitempty"`
	Row      *Grant     `json:"row,omitempty"`
	Position Position   `json:"position,omitzero"`
	Digest   string     `json:"digest,omitempty"` // of a state
	Life     *LifeEvent `json:"life,omitempty"`
	Final    *FinalTile `json:"final,omitempty"`
	Payment  *Payment   `json:"payment,omitempty"`
	Balance  *Balance   `json:"balance,omitempty"`
	Fault    *FaultInfo `json:"fault,omitempty"`
}

// Position is a fence.Position that JSON shows as epoch/seq/chain.
type Position fence.Position

// IsZero reports whether p is the beginning of a tile's history.
func (p Position) IsZero() bool { return p == Position{} }

// String returns epoch/seq/chain.
func (p Position) String() string { return fence.Position(p).String() }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Position) UnmarshalText(b []byte) error {
	v, err := fence.ParsePosition(string(b))
	*p = Position(v)
	return err
}

// ClaimCall is a fence.Claim without its tile.
type ClaimCall struct {
	Contact  string      `json:"contact"`
	ID       string      `json:"id"`
	Expected fence.Epoch `json:"expected,omitempty"`
	Floor    fence.Epoch `json:"floor,omitempty"`
}

// Grant is a fence.Grant without its tile. Epoch zero stands for no row.
type Grant struct {
	Epoch   fence.Epoch `json:"epoch"`
	Contact string      `json:"contact,omitempty"`
	ID      string      `json:"id,omitempty"`
}

// Owner is a fence.Owner without its tile.
type Owner struct {
	Epoch    fence.Epoch `json:"epoch"`
	Contact  string      `json:"contact,omitempty"`
	Position Position    `json:"position,omitzero"`
	Tick     fence.Tick  `json:"tick,omitempty"`
}

// CommitCall is a fence.Commit without its tile and payload.
type CommitCall struct {
	Epoch    fence.Epoch `json:"epoch"`
	Contact  string      `json:"contact"`
	Prev     Position    `json:"prev,omitzero"`
	Next     Position    `json:"next"` // where it takes the tile: Prev itself for a refresh
	Tick     fence.Tick  `json:"tick"`
	Events   int         `json:"events,omitempty"`
	Install  bool        `json:"install,omitempty"`
	Replicas int         `json:"replicas,omitempty"`
	Payload  string      `json:"payload,omitempty"` // digest
	Actions  []Action    `json:"actions,omitempty"` // what the batch decided
}

// Refresh reports whether the commit appends nothing.
func (c *CommitCall) Refresh() bool { return c.Payload == "" && !c.Install }

// Action is the outcome of one action, as a batch carries it.
type Action struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
}

// RebaseCall is a fence.Rebase without its tile and state.
type RebaseCall struct {
	Epoch    fence.Epoch `json:"epoch"`
	Contact  string      `json:"contact"`
	Next     Position    `json:"next"`
	Tick     fence.Tick  `json:"tick"`
	Replicas int         `json:"replicas,omitempty"`
	Replaces *Position   `json:"replaces,omitempty"` // where the history ends that it is for; nil: any
	State    string      `json:"state"`              // the blob's checksum
	Game     string      `json:"game,omitempty"`     // that of the game's part of it, if it is known
}

// Born reports whether the rebase is for a tile of which the store has nothing.
func (r *RebaseCall) Born() bool { return r.Replaces != nil && r.Replaces.IsZero() }

// SnapshotCall is a fence.SnapshotWrite without its tile and state.
type SnapshotCall struct {
	Position Position   `json:"position"`
	Tick     fence.Tick `json:"tick"`
	State    string     `json:"state"`          // the blob's checksum
	Game     string     `json:"game,omitempty"` // that of the game's part of it, if it is known
}

// IntentCall is an intent on its way to a tile.
type IntentCall struct {
	Action  string `json:"action,omitempty"`
	Contact string `json:"contact,omitempty"` // where it was sent
}

// Entry is a fence.Entry without its payload.
type Entry struct {
	Position Position   `json:"position"`
	Prev     Position   `json:"prev,omitzero"`
	Tick     fence.Tick `json:"tick"`
	Events   int        `json:"events,omitempty"`
	At       int64      `json:"at,omitempty"` // owner's clock, milliseconds since 1970
	Rebase   bool       `json:"rebase,omitempty"`
	Payload  string     `json:"payload,omitempty"` // digest
	Actions  []Action   `json:"actions,omitempty"`
	Damage   string     `json:"damage,omitempty"` // why the entry does not verify
}

// LifeEvent is a change in a processor's life.
type LifeEvent struct {
	State     string      `json:"state"` // tile.State in words
	Epoch     fence.Epoch `json:"epoch,omitempty"`
	Contact   string      `json:"contact,omitempty"`
	Successor *Owner      `json:"successor,omitempty"` // of an end by a *tile.SupersededError
	Err       string      `json:"err,omitempty"`       // of an end
	Ended     bool        `json:"ended,omitempty"`     // Run has returned
	Handed    bool        `json:"handed,omitempty"`    // of an end: the tile went to the successor that was named
	Rejoined  Position    `json:"rejoined,omitzero"`   // where it goes on with the stores' state in place of its own
}

// FinalTile is a tile after everything has come to rest.
type FinalTile struct {
	End     Position `json:"end"`             // where the stream ends
	Owner   Owner    `json:"owner"`           // the owner hash
	Row     Grant    `json:"row"`             // the authority's row
	Entries []Entry  `json:"entries"`         // what the stream still holds, in order
	State   string   `json:"state,omitempty"` // digest of the state it folds to
	// Applied lists the actions whose effects are in the final state, in order, if the game can tell.
	Applied []string `json:"applied,omitempty"`
	// Here lists the travellers in the final state, and Born those that began in the tile, if its state has Begun. Both
	// are empty where the fault may have lost every copy of a history: then nothing is promised of what crosses.
	Here  []string `json:"here,omitempty"`
	Born  []string `json:"born,omitempty"`
	Begun bool     `json:"begun,omitempty"`
	// Coins is how many those here have, Given how many those born were given, and Arrived how often one came from
	// another tile.
	Coins   int `json:"coins,omitempty"`
	Given   int `json:"given,omitempty"`
	Arrived int `json:"arrived,omitempty"`
	// Class is the tile's durability class; empty is the default one. It says which batches wait for what.
	Class string `json:"class,omitempty"`
	// Kept says that by the tile's durability class an answer outlives every owner and every failover.
	Kept bool `json:"kept,omitempty"`
}

// Payment is an action that a player paid for, as the ledger has it, and as the player was answered.
type Payment struct {
	Action   string `json:"action"`
	Cost     uint64 `json:"cost,omitempty"`
	Outcome  string `json:"outcome,omitempty"` // empty: the action is open
	Reason   string `json:"reason,omitempty"`  // why the ledger refused it; nothing was spent
	Refunded bool   `json:"refunded,omitempty"`
	Told     string `json:"told,omitempty"` // the outcome that the player was answered; empty: none
}

// Balance is what the ledger's audit says of all accounts.
type Balance struct {
	Credited    uint64   `json:"credited"`
	Held        uint64   `json:"held"`
	Spent       uint64   `json:"spent"`
	Unexplained int64    `json:"unexplained,omitempty"` // changes of accounts that no record explains
	Damaged     []string `json:"damaged,omitempty"`
}

// FaultInfo is one thing the campaign did. A fault that lasts has two records, the second with Over set.
type FaultInfo struct {
	Name   string `json:"name"` // such as "pause master"
	Target string `json:"target,omitempty"`
	Over   bool   `json:"over,omitempty"`

	// Failover says that another copy of the store may have become the one that answers, or that several
	// may answer: what a master said before it may be undone.
	Failover bool `json:"failover,omitempty"`
	// Loses says that every copy of what the store had may be lost.
	Loses bool `json:"loses,omitempty"`
}

// MarshalLine encodes the record as one line, with its newline.
func (r *Record) MarshalLine() ([]byte, error) {
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}
