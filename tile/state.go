package tile

import (
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

// State is where a TileProcessor is in its life:
//
//	            (lost the race, or the attempt failed)
//	          ┌────────────┬─────────────┬──────────────┐
//	          ▼            │             │              │
//	Idle ▶ Following ▶ Claiming ──▶ Replaying ──▶ Installing ──▶ Serving ◀──▶ Healing
//	  │                  ▲ ▲             │              │          ▲ │           │
//	  └──────────────────┘ └─────────────┴──────────────┘          │ ▼           │
//	   (without Follow)       (start over, new epoch)           Draining ◀───────┘
//	                                                                 │
//	  any state from Claiming on ──▶ StoodDown                       ▼
//	  any state                  ──▶ Stopped                      Stopped
//
// Following is a warm follower's, which goes back there whenever it does not get the tile; a processor without
// Config.Follow never enters it. Draining ends in Stopped, or in Serving again when the successor named to
// Drain did not take the tile. StoodDown is the end of a processor that was superseded once it served (without
// Config.Follow, also while it booted); Stopped of one that drained, handed its tile over or failed. Only a
// processor that is Serving or Draining commits ticks.
type State int

// The states, in the order of life. Zero is none of them.
const (
	Idle       State = 1  // Run was not called
	Following  State = 2  // warm follower: folds what the owner commits, silent
	Claiming   State = 3  // asking the authority for an epoch
	Replaying  State = 4  // reading what it lacks into the rules: snapshot and tail, or the tail alone
	Installing State = 5  // waiting until every replica knows the new epoch
	Serving    State = 6  // ticking
	Healing    State = 7  // repairing its history after a failover or a fork; no ticks
	Draining   State = 8  // last tick, then snapshot and release, or hand-over
	StoodDown  State = 9  // superseded; clients are redirected
	Stopped    State = 10 // drained, handed over or failed
)

var stateNames = [...]string{"none", "idle", "following", "claiming", "replaying", "installing", "serving", "healing",
	"draining", "stood down", "stopped"}

// String returns the state's lower-case name.
func (s State) String() string { return enum.In(s, "state", stateNames[:], 0) }

// LogValue implements slog.LogValuer with the form of String.
func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// transitions is the diagram above.
var transitions = map[State][]State{
	Idle:       {Following, Claiming, Stopped},
	Following:  {Claiming, Stopped},
	Claiming:   {Following, Replaying, StoodDown, Stopped},
	Replaying:  {Following, Claiming, Installing, StoodDown, Stopped},
	Installing: {Following, Claiming, Serving, StoodDown, Stopped},
	Serving:    {Healing, Draining, StoodDown, Stopped},
	Healing:    {Serving, Draining, StoodDown, Stopped},
	Draining:   {Healing, Serving, StoodDown, Stopped},
}

// Status is a processor at one instant.
type Status struct {
	Tile    fence.TileID
	State   State
	Since   time.Time // when it entered State
	Epoch   fence.Epoch
	Contact string
	// Durability is the tile's class, from the first.
	Durability Durability
	Position   fence.Position // last committed batch
	Confirmed  fence.Position // of an owner, up to where every replica is known to have its history
	// UnderWay is how many departures are not settled: committed here, and not known to be decided where they go.
	UnderWay int
	// Border is what crosses all of its borders together.
	Border BorderStatus
	// Sights is how many tiles an owner with Sighted rules looks at, StaleSights of how many its Rim is not fresh.
	Sights, StaleSights int

	Tick   fence.Tick // last tick played
	Queued int        // intents waiting
	Heat   float64    // events and outcomes a tick, weighted over about 20 ticks; also of a follower
	// Work is how long a tick of an owner takes this process: its rules, its batch and its snapshot, without waiting
	// for the store; weighted over about 20.
	Work time.Duration
	// Owner is, of a follower, the owner hash as last seen, kept when that expires. Of an owner that the store
	// has refused, it is the successor that the store named, until the authority confirms or contradicts it.
	Owner   fence.Owner
	Pending bool      // a batch's fate is unknown; the tile is frozen until it is known
	Frozen  time.Time // since when; zero unless Pending
	Kept    int       // batches kept for re-appending
	// Unjournaled is how many batches of a WriteBehind tile wait for the journal.
	Unjournaled int
	StreamFull  bool    // the tile stalls, see Config.MaxStreamBytes
	Missed      int64   // tick times missed since the start
	Missing     float64 // of the tick times of late, which part is missed: weighted over about 20
	// Dilation is how many tick intervals a tick of an owner lasts, if its time was dilated (Limits.MaxDilation).
	Dilation float64
	// Silent is, of a follower, how long the owner hash has not been seen to move.
	Silent time.Duration
	// Forgotten counts the batches dropped from memory (Config.KeepBytes) before every replica was known to
	// have them. A failover that loses one of them ends in a rebase.
	Forgotten int64
	Failures  int64       // of the rules since the start
	Failure   *RulesError // the last of them
	FailedAt  time.Time
	// Ended is why the tile's last processor ended, or could not begin, until one serves or follows again; nil: it did
	// not end, or was asked to. Only a tilehost.Host knows.
	Ended error
	// Quarantine is set if the tile is quarantined, as far as this processor knows: it has ended.
	Quarantine *QuarantinedError
	// Successor is the owner that superseded this processor, or took the tile from its hand; zero unless StoodDown or
	// Stopped. Its epoch is zero when only the contact could be found out.
	Successor fence.Owner
}

// BorderStatus is what is known of the entities that cross a tile's border: with one other tile, or with all together.
type BorderStatus struct {
	Peer fence.TileID // with all together, that of the oldest

	UnderWay int           // departures that are not settled; those that are parked not included
	Oldest   fence.Tick    // for how many ticks the oldest of them has been under way
	For      time.Duration // and how long so many ticks take, undilated
	Parked   int           // departures that came back, and with which the rules fail
	Refused  int           // arrivals that were refused, and that the peer has not settled
	Waiting  int           // arrivals that wait for a tick; always 0 with all together
	// Closed is since when the border is closed: the peer has not answered, or see Unconfirmed. Zero: it is open.
	Closed time.Time
	// Unconfirmed is since when nothing departs for any tile, because the tile's replicas, or its journal, have not
	// confirmed what has departed, or what was decided. Zero: they have, or will within moments.
	Unconfirmed time.Time
}
