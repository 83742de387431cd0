package relay

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Hooks report what a Relay does, for metrics and alarms. Any of them may be nil. They are called from
// the goroutine that found it, several at once, and must not block or call the Relay back.
type Hooks struct {
	// ClientOpened is called when a connection was admitted. ClientClosed is called later for each of them.
	ClientOpened func(ClientOpenedInfo)

	// ClientClosed is called when a connection that was admitted has ended.
	ClientClosed func(ClientClosedInfo)

	// Queued is called when a batch that continues a tile's history was queued to the clients that watch the tile. The
	// tile waits for it.
	Queued func(QueuedInfo)

	// Repaired is called after each attempt of a cold read.
	Repaired func(RepairInfo)
}

// ClientOpenedInfo is one connection that was admitted.
type ClientOpenedInfo struct {
	Actor string    // empty: a stranger
	Began time.Time // when its handshake began
}

// ClientClosedInfo is one connection that has ended.
type ClientClosedInfo struct {
	Remote      string // address of the peer
	Actor       string // empty: a stranger
	Subprotocol string

	Code   int    // status with which the relay closed it (docs/wire.md); zero if the peer or the network ended it
	Reason string // in words
	Open   time.Duration
	Bytes  uint64 // written to it
}

// QueuedInfo is a batch on its way to clients.
type QueuedInfo struct {
	Tile     fence.TileID
	Position fence.Position
	Clients  int           // that are up to date; the others are sent it in a Sync
	Waited   time.Duration // since it came, for what it follows; zero: it was read from the store
}

// forgedInfo is a frame that the coordination store contradicts.
type forgedInfo struct {
	Tile     fence.TileID
	Position fence.Position // what the frame claims
	Known    fence.Epoch    // the highest epoch that the store knows
}

// RepairInfo is one attempt to bring a tile up to date from the store.
type RepairInfo struct {
	Tile fence.TileID
	// Kind is what was read: "load" (snapshot and tail, the first time), "tail" (what was missed), "full"
	// (snapshot and tail again), "snapshot" (a newer one, to shorten the tail).
	Kind     string
	Took     time.Duration
	Shared   bool  // Config.Views had it, or read it for all relays: this one has not read the store by itself
	Batches  int   // batches that were new
	Replaced bool  // clients must replace their state
	Err      error // nil: done
}
