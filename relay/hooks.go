package relay

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Hooks report what a Relay does, for metrics and alarms. Any of them may be nil. They are called from
// the goroutine that found it, several at once, and must not block or call the Relay back.
type Hooks struct {
	// ClientClosed is called when a connection that was admitted has ended.
	ClientClosed func(ClientClosedInfo)

	// Queued is called when a batch that continues a tile's history was queued to the clients that watch the tile. The
	// tile waits for it.
	Queued func(QueuedInfo)

	// Gap is called when a live frame, or a comparison with the store, shows that a tile's history does
	// not continue where the relay stands.
	Gap func(GapInfo)

	// Repaired is called after each attempt of a cold read.
	Repaired func(RepairInfo)

	// SlowClient is called when a client's queue is full and a tile's frames are dropped for it: once for
	// each time the tile falls behind, not for each frame.
	SlowClient func(SlowClientInfo)
}

// ClientInfo is one connection.
type ClientInfo struct {
	Remote      string // address of the peer
	Actor       string // empty: a stranger
	Subprotocol string
}

// ClientClosedInfo is one connection that has ended.
type ClientClosedInfo struct {
	ClientInfo
	Code   int    // status with which the relay closed it; zero if the peer or the network ended it
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

// GapInfo is a place where what came does not follow what the relay holds.
type GapInfo struct {
	Tile fence.TileID
	Have fence.Position
	Got  fence.Position // of the frame, or of the store
	// By is how it was found: "frame" (a message was lost), "rebase", "check" (by the periodic comparison),
	// "mark" (the store has removed what the relay had not seen; of Got only the sequence is known).
	By string
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

// SlowClientInfo is one tile falling behind for one client.
type SlowClientInfo struct {
	Remote string
	Tile   fence.TileID
	Queued int // bytes waiting for the client
}
