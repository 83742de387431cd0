package checkpoint

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
)

// Config holds a Checkpointer's options. The zero value of each field means its default.
type Config struct {
	// Cadence is how often a tile is looked at, give or take a tenth: tiles are spread over it, so that they
	// do not reach the store together. Default 5 s.
	Cadence time.Duration

	// Collector removes quiet tiles from the coordination store: one whose owner hash is gone, and whose whole history
	// is in the durable store, goes away CollectAfter later, unless an owner comes back. Its checkpoint stays, and is
	// what its next owner begins from: owners must be given the same store (tile.Seams.Checkpoint). A tile whose owner
	// died after its last snapshot stays until an owner has run it again, and so does one that is not at rest
	// (Unsettled). Default nil: nothing is removed.
	Collector stream.Collector

	// CollectAfter is how long a tile stays quiet before it goes. Default 24 h; at least a minute.
	CollectAfter time.Duration

	// Unsettled says whether a tile is not at rest although it has no owner, by its history: a snapshot and the entries
	// after it. tile.Unsettled is one. It is asked once for each position at which a tile without an owner is found. A
	// tile that is not at rest, or of which that is not known, is not given to Collector. Default nil: all are at rest.
	Unsettled func(tile fence.TileID, s *fence.Snapshot, tail []fence.Entry) (bool, error)

	// Wake is called with tiles that Unsettled has said not to be at rest, at each look that finds them without an
	// owner: it may ask a tile server to begin them. Several goroutines may call it, and each look waits for it.
	// Default nil.
	Wake func(ctx context.Context, tiles []fence.TileID)

	// Concurrency is how many tiles are worked on at once. Tiles whose last attempt failed have as many
	// slots of their own, so that a store which fails or hangs for some tiles does not delay the others.
	// Each slot may hold one snapshot in memory, and so may each call of CheckpointNow: at the default,
	// 16 snapshots of at most fence.MaxSnapshot bytes. Looking for what has changed needs no slot. Default
	// 8.
	Concurrency int

	// RetryMax bounds the wait after a failed attempt at a tile: it doubles from 1 s, or RetryMax if that is
	// shorter, with every failure in a row, less up to half of it at random. Default 30 s.
	RetryMax time.Duration

	// Drain bounds what Run still does after its context is cancelled: attempts under way, and one last
	// pass over all tiles. Default 10 s.
	Drain time.Duration

	// Logger gets failures (warnings), snapshots that must not be written (errors), and the drain. Nil
	// discards.
	Logger *slog.Logger

	Hooks Hooks

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	Timeout   time.Duration       // of one attempt at one tile: reading, writing and marking
	RetryMin  time.Duration       // the first wait after a failed attempt
	Truncated func(truncatedInfo) // a journal was truncated, or could not be
}

// Hooks are called as things happen, for metrics and alarms. Each may be nil. They are called from the
// Checkpointer's goroutines, several at once, and hold up the tile they report on.
//
// Lag, in each info, is how long ago the store was last known to hold the tile's latest snapshot: since
// the tile was added, if it never was. It uses this process's monotonic clock.
type Hooks struct {
	Durable func(DurableInfo) // a snapshot is in the durable store
	Skipped func(SkippedInfo) // a snapshot must not be written
	Failed  func(FailedInfo)  // an attempt failed and will be repeated
	Drained func(DrainedInfo) // the last pass of Run has ended
}

// DurableInfo is a snapshot that is in the durable store.
type DurableInfo struct {
	Tile     fence.TileID
	Position fence.Position // what is durable: the snapshot that was read, or a later one the store had
	Bytes    int            // of the snapshot that was read
	Took     time.Duration  // the write
	Lag      time.Duration  // that ended with it
}

// SkippedInfo is a snapshot that must not be written. The tile is looked at again at the cadence.
type SkippedInfo struct {
	Tile fence.TileID
	// Err is a *fence.CorruptError for a damaged snapshot, a *FloorError for one of an older epoch than seen
	// before, or an *OlderError that does not cover the snapshot.
	Err error
	Lag time.Duration
}

// FailedInfo is a failed attempt at a tile.
type FailedInfo struct {
	Tile     fence.TileID
	Stage    Stage
	Err      error
	Failures int           // in a row, this one included
	Retry    time.Duration // until the next attempt
	Lag      time.Duration
}

// truncatedInfo is a journal that was truncated, or could not be.
type truncatedInfo struct {
	Tile     fence.TileID
	UpTo     fence.Seq // the entries at or below it are covered by the checkpoint
	Err      error     // nil: they are removed; otherwise a later attempt will
	Failures int       // in a row
}

// DrainedInfo is the end of Run.
type DrainedInfo struct {
	Tiles  int           // looked at
	Behind int           // of them, how many may have a newer snapshot than their checkpoint
	Took   time.Duration // from the cancellation
}

// Stage is what an attempt was doing.
type Stage uint8

// The stages. Zero is no stage.
const (
	Reading Stage = 1 // the coordination store
	Writing Stage = 2 // the durable store
	Marking Stage = 3 // the watermark; the snapshot is durable
)

// String returns the stage's lower-case name.
func (s Stage) String() string { return enum.Name(s, "stage", "reading", "writing", "marking") }

// LogValue implements slog.LogValuer with the form of String.
func (s Stage) LogValue() slog.Value { return slog.StringValue(s.String()) }

// withDefaults returns a checked copy in which no field is nil or zero.
func (cfg *Config) withDefaults() (Config, error) {
	c := setting.Of(cfg)
	var s setting.Check
	s.Duration("Cadence", &c.Cadence, 5*time.Second)
	s.Duration("RetryMax", &c.RetryMax, 30*time.Second)
	c.tuning.Timeout = cmp.Or(c.tuning.Timeout, 30*time.Second)
	c.tuning.RetryMin = cmp.Or(c.tuning.RetryMin, min(time.Second, c.RetryMax))
	s.Duration("Drain", &c.Drain, 10*time.Second)
	s.From(time.Minute, "CollectAfter", &c.CollectAfter, 24*time.Hour)
	s.Number("Concurrency", &c.Concurrency, 8)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, s.Err
}
