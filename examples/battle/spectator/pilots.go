package spectator

import "github.com/tilefence/tilefence/fence"

// Pilots are the ships that planners fly, whose calls take seconds.
type Pilots struct {
	Ships   int     `json:"ships"`
	Workers int     `json:"workers"`
	Killed  int     `json:"killed"`  // of them, on purpose
	Running int     `json:"running"` // of Waits
	Applied uint64  `json:"applied"` // plans so far
	Refused uint64  `json:"refused"` // plans that the tile did not accept
	Stale   uint64  `json:"stale"`   // plans of an owner before the one that got them
	Dead    uint64  `json:"dead"`    // requests that failed in their last attempt
	Billed  int     `json:"billed"`  // requests that were charged
	Tokens  int64   `json:"tokens"`
	Waits   []Pilot `json:"waits"` // that wait for a plan, the oldest first
}

// Pilot is a ship that waits for a plan.
type Pilot struct {
	Tile    fence.TileID `json:"tile"`
	Ship    string       `json:"ship"`    // its actor
	Age     int64        `json:"age"`     // milliseconds since it asked
	Player  bool         `json:"player"`  // a player has asked: it goes first
	Running bool         `json:"running"` // a worker is at it
}
