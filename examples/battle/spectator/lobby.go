package spectator

import "github.com/tilefence/tilefence/fence"

// Lobby is the matchmaking of the battle: its queue, and the seats of the tiles.
type Lobby struct {
	Created   uint64 `json:"created"` // tickets so far: the sum of the next six
	Waiting   uint64 `json:"waiting"`
	Matching  uint64 `json:"matching"`  // compared by a worker, or matched and about to get seats
	Seated    uint64 `json:"seated"`    // so far
	Cancelled uint64 `json:"cancelled"` // so far
	TimedOut  uint64 `json:"timedOut"`  // so far

	Matches int64   `json:"matches"` // that got seats
	NoSeat  int64   `json:"noSeat"`  // that found none, and were dissolved
	Wait    Latency `json:"wait"`    // of tickets, until they had seats
	Workers int     `json:"workers"` // that make matches
	Killed  int64   `json:"killed"`  // of them, on purpose

	Longest *Ticket `json:"longest,omitempty"` // the ticket that waits longest
	Tiles   []Seats `json:"tiles"`             // in the order of the World; not those that never offered seats
}

// Ticket is a party that waits for a match.
type Ticket struct {
	ID      string   `json:"id"`
	Players []string `json:"players"`
	Rating  int      `json:"rating"`
	Waited  int64    `json:"waited"` // milliseconds
	Why     string   `json:"why"`    // one sentence: why it has no match
}

// Seats are those of one tile.
type Seats struct {
	Tile    fence.TileID `json:"tile"`
	Seats   int          `json:"seats"`
	Used    int          `json:"used"`    // held for players, or taken
	Serving bool         `json:"serving"` // its owner offers them
}
