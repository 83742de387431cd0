package relay

import (
	"sync/atomic"
	"time"
)

// Stats is what a Relay holds now and has done since it was made. The values are read one after
// another, so that they may be a few events apart.
type Stats struct {
	ClientStats
	FrameStats
	RepairStats
}

// ClientStats is about connections and what clients do.
type ClientStats struct {
	Clients       int // connections now
	Tiles         int // tiles watched now
	Subscriptions int // tiles watched now, each client counted

	Late  uint64        // half seconds in which each frame, or each Sync, waited for more than 50 ms
	Delay time.Duration // the least that any of those waited in the last half second

	Connected   uint64 // connections admitted
	Refused     uint64 // connections refused: authorization, origin, limits, overload, not running
	SlowDrops   uint64 // times a tile fell behind for a client because its queue was full
	SlowCloses  uint64 // clients closed because they were too slow for too long
	IdleCloses  uint64 // clients closed because they did not answer pings
	Resyncs     uint64 // Resyncs asked for by clients
	BadMessages uint64 // messages from clients that broke the protocol
	Stale       uint64 // CODE_STALE sent: this relay has less than the client holds
	Unknown     uint64 // CODE_UNKNOWN_EPOCH sent: the store knows no epoch as high as the client's floor
}

// FrameStats is about what goes in and out.
type FrameStats struct {
	FramesIn   uint64 // frames received from the fan-out
	FramesOut  uint64 // frames queued to clients
	SyncsOut   uint64 // Syncs queued to clients, other than those that open areas
	Opened     uint64 // Syncs queued to clients that open areas
	BytesOut   uint64 // bytes written to clients, WebSocket headers included
	Duplicates uint64 // frames received again, or older than what is held
	StaleDrops uint64 // frames of a lower epoch than the tile's: a superseded owner's
	Corrupt    uint64 // frames that could not be read or whose chain is not their content's
	Forged     uint64 // frames of an epoch that the coordination store, read after they came, did not know
}

// RepairStats is about keeping up with the store.
type RepairStats struct {
	Gaps          uint64 // times a history did not continue where the relay stood
	Caught        uint64 // batches that the periodic comparison found before the fan-out brought them
	Repairs       uint64 // cold reads done
	Shared        uint64 // of them, those that Config.Views answered
	RepairsFailed uint64 // attempts that failed
	Replaced      uint64 // repairs after which clients had to replace their state
	LowerEpoch    uint64 // answers of the store refused because they were of a lower epoch than the tile's
	MarksFailed   uint64 // marks that could not be written
	MarksRefused  uint64 // marks refused because the tile has stream.MaxRelayMarks relays
	Outrun        uint64 // marks answered with "resync": the stream was trimmed further than the relay's snapshot
}

// counters are the running totals behind Stats.
type counters struct {
	connected, refused                                         atomic.Uint64
	framesIn, framesOut, syncsOut, opened, bytesOut            atomic.Uint64
	duplicates, staleDrops, corrupt, forged                    atomic.Uint64
	gaps, caught, repairs, repairsFailed, replaced, lowerEpoch atomic.Uint64
	shared                                                     atomic.Uint64
	markFails, marksRefused, outrun                            atomic.Uint64
	slowDrops, slowCloses, idleCloses, resyncs, badMessages    atomic.Uint64
	stale, unknown                                             atomic.Uint64
	subscriptions                                              atomic.Int64
}

// stats are the figures of a relay with so many clients and tiles.
func (c *counters) stats(clients, tiles int) Stats {
	return Stats{
		ClientStats{
			Clients: clients, Tiles: tiles, Subscriptions: int(c.subscriptions.Load()),
			Connected: c.connected.Load(), Refused: c.refused.Load(),
			SlowDrops: c.slowDrops.Load(), SlowCloses: c.slowCloses.Load(), IdleCloses: c.idleCloses.Load(),
			Resyncs: c.resyncs.Load(), BadMessages: c.badMessages.Load(), Stale: c.stale.Load(),
			Unknown: c.unknown.Load(),
		},
		FrameStats{
			FramesIn: c.framesIn.Load(), FramesOut: c.framesOut.Load(), SyncsOut: c.syncsOut.Load(),
			Opened: c.opened.Load(), BytesOut: c.bytesOut.Load(), Duplicates: c.duplicates.Load(),
			StaleDrops: c.staleDrops.Load(), Corrupt: c.corrupt.Load(),
			Forged: c.forged.Load(),
		},
		RepairStats{
			Gaps: c.gaps.Load(), Caught: c.caught.Load(), Repairs: c.repairs.Load(), Shared: c.shared.Load(),
			RepairsFailed: c.repairsFailed.Load(), Replaced: c.replaced.Load(), LowerEpoch: c.lowerEpoch.Load(),
			MarksFailed: c.markFails.Load(), MarksRefused: c.marksRefused.Load(), Outrun: c.outrun.Load(),
		},
	}
}
