package tile

import (
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// State is where a TileProcessor is in its life:
//
//	Idle ──▶ Claiming ──▶ Replaying ──▶ Installing ──▶ Serving ◀──▶ Healing
//	            ▲             │              │            │            │
//	            └─────────────┴──────────────┘            ▼            │
//	              (start over, new epoch)             Draining         │
//	                                                      │            │
//	  any state but Idle ──▶ StoodDown               Stopped ◀─────────┘
//	  any state          ──▶ Stopped
//
// StoodDown is the end of a processor that was superseded; Stopped of one that drained or failed. Only
// a processor that is Serving or Draining commits ticks.
type State int

// The states. Zero is none of them.
const (
	Idle       State = 1  // Run was not called
	Claiming   State = 2  // asking the authority for an epoch
	Replaying  State = 3  // reading snapshot and tail into the rules
	Installing State = 4  // waiting until every replica knows the new epoch
	Serving    State = 5  // ticking
	Healing    State = 6  // repairing its history after a failover or a fork; no ticks
	Draining   State = 7  // last tick, snapshot, release
	StoodDown  State = 8  // superseded; everybody is redirected
	Stopped    State = 9  // drained or failed
	Following  State = 10 // warm follower: folds what the owner commits, silent
)

var stateNames = [...]string{"none", "idle", "claiming", "replaying", "installing", "serving", "healing", "draining", "stood down", "stopped", "following"}

// String returns the state's lower-case name.
func (s State) String() string {
	if s >= 0 && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", int(s))
}

// transitions is the diagram above.
var transitions = map[State][]State{
	Idle:       {Claiming, Stopped},
	Claiming:   {Replaying, StoodDown, Stopped},
	Replaying:  {Claiming, Installing, StoodDown, Stopped},
	Installing: {Claiming, Serving, StoodDown, Stopped},
	Serving:    {Healing, Draining, StoodDown, Stopped},
	Healing:    {Serving, Draining, StoodDown, Stopped},
	Draining:   {Healing, StoodDown, Stopped},
}

// transition enters another state. A transition outside the diagram is a bug in this package, found by
// its tests, so it panics.
func (p *TileProcessor) transition(to State) {
	p.mu.Lock()
	from := p.status.State
	if from == to {
		p.mu.Unlock()
		return
	}
	if !slices.Contains(transitions[from], to) {
		p.mu.Unlock()
		panic(fmt.Sprintf("tile: transition from %s to %s", from, to))
	}
	p.status.State = to
	p.status.Epoch = p.grant.Epoch
	p.status.Since = time.Now()
	epoch := p.grant.Epoch
	p.mu.Unlock()
	p.cfg.Logger.Info("tile state", "tile", p.tile, "from", from, "to", to, "epoch", epoch)
	p.cfg.Hooks.Transition(TransitionInfo{Tile: p.tile, From: from, To: to, Epoch: epoch})
}

// Status is a processor at one instant.
type Status struct {
	Tile     fence.TileID
	State    State
	Since    time.Time // when it entered State
	Epoch    fence.Epoch
	Contact  string
	Position fence.Position // last committed batch
	Tick     fence.Tick     // last tick played
	Queued   int            // intents waiting
	Heat     float64        // events a tick, exponentially weighted over about 20 ticks; also of a follower
	Owner    fence.Owner    // of a follower: the owner hash as last seen
	Pending  bool           // a batch's fate is unknown; the tile is frozen until it is known
	Kept     int            // batches kept for re-appending
	Missed   int64          // tick times missed since the start
	// Successor is who superseded this processor; zero unless StoodDown.
	Successor fence.Owner
}

// Status reports where the processor is. It may be called at any time, from any goroutine.
func (p *TileProcessor) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	s.Queued = len(p.queue)
	return s
}
