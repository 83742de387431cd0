package spectator

import (
	"context"

	"github.com/tilefence/tilefence/fence"
)

// API is what the page asks of the servers behind it. Its methods are called from many goroutines at
// once; Status and Events for every watcher about twice a second, so they must be cheap.
type API interface {
	// Status says how things stand now.
	Status() Status

	// Events lists what has happened after the event with that ID, oldest first; after zero means as far
	// back as is remembered. More than 200 are cut to the last 200.
	Events(after uint64) []Event

	// TakeOver makes somebody else take a tile from its owner and returns once that has begun, without
	// waiting until it is done. The text of an error is shown to the person who asked. It is only called
	// with tiles of the World.
	TakeOver(ctx context.Context, tile fence.TileID) error
}

// Status is the servers' side of the story at one instant. Rates are per second, averaged as the server
// likes; zero numbers are shown as zero, absent latencies as unknown.
type Status struct {
	At       int64   `json:"at"`       // server clock when this was sent, milliseconds since 1970; set by the handler
	Commits  float64 `json:"commits"`  // batches committed a second, over all tiles
	Events   float64 `json:"events"`   // game events committed a second
	Watchers int     `json:"watchers"` // WebSockets the relays hold
	Bots     int     `json:"bots"`     // players driven by the servers
	Gaps     uint64  `json:"gaps"`     // gaps that the servers' own clients and relays have met
	Repairs  uint64  `json:"repairs"`  // of those, closed again

	Latency Latency      `json:"latency"` // commit to client, as the bots measure it
	Tiles   []TileStatus `json:"tiles"`
}

// Latency summarises a distribution of durations in milliseconds. No samples: unknown.
type Latency struct {
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Samples int     `json:"samples"` // how many it is drawn from
}

// TileStatus is one tile as the servers see it.
type TileStatus struct {
	Tile  fence.TileID `json:"tile"`
	Owner string       `json:"owner"` // contact of the owner, empty when there is none
	Epoch fence.Epoch  `json:"epoch"`
	Seq   fence.Seq    `json:"seq"`
	Tick  fence.Tick   `json:"tick"`
	Since int64        `json:"since"` // when this owner took it, milliseconds since 1970; zero: unknown
	Moves int          `json:"moves"` // how often the tile has changed hands since the servers started

	// Processors are those that own the tile, want it, or lost it a short while ago.
	Processors []Processor `json:"processors"`

	// Digest is the game's digest of the owner's state (game.Rules.Digest) right after the batch with
	// sequence DigestSeq: the page shows that its own state has the same. Empty: not known.
	Digest    string    `json:"digest,omitempty"`
	DigestSeq fence.Seq `json:"digestSeq,omitempty"`
}

// Processor is one process's part in one tile.
type Processor struct {
	Contact string      `json:"contact"`
	State   string      `json:"state"` // tile.State's name, such as "serving" or "stood down"
	Epoch   fence.Epoch `json:"epoch"` // that it holds or held
}

// Kind classifies an event, and decides how the page shows it.
type Kind string

// The kinds. The page shows any other like KindNote.
const (
	KindInstalled Kind = "installed"  // Owner has installed itself under Epoch
	KindRefused   Kind = "refused"    // a commit of Owner under Epoch was refused as stale
	KindStoodDown Kind = "stood-down" // Owner, which held Epoch, has stood down
	KindFault     Kind = "fault"      // something broke, or was broken on purpose
	KindNote      Kind = "note"
)

// Event is one thing worth a line in the history.
type Event struct {
	ID    uint64       `json:"id"` // ascending from 1
	At    int64        `json:"at"` // server clock, milliseconds since 1970
	Kind  Kind         `json:"kind"`
	Tile  fence.TileID `json:"tile,omitempty"`
	Owner string       `json:"owner,omitempty"` // contact of the process it is about
	Epoch fence.Epoch  `json:"epoch,omitempty"`
	Text  string       `json:"text"` // one short sentence, shown as it is
}

// Report is the body of GET /api/status.
type Report struct {
	// Instance differs from one Handler to the next: with another instance event IDs start over, and with
	// in-memory back ends the epochs do.
	Instance string  `json:"instance"`
	Status   Status  `json:"status"`
	Events   []Event `json:"events"` // after the ID asked for, oldest first
}
