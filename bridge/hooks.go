package bridge

import (
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

// Hooks report what a Bridge does, beside what its Stats count and its log reports. Any of them may be nil. They are
// called one at a time from Run, and must not block: the next pass waits for them.
type Hooks struct {
	// Pass is called after each pass.
	Pass func(PassInfo)
	// Published is called for each tile of which a pass handed something over.
	Published func(PublishedInfo)
	// Failed is called for each call to the log or the publisher that failed, and is to be tried again.
	Failed func(FailureInfo)
}

// PassInfo is one pass: one read, and at most one publish.
type PassInfo struct {
	Tiles   int           // tiles read
	Entries int           // entries they had
	Sent    int           // messages handed over
	Unsent  int           // messages that were not, for sure
	Bytes   int           // of the messages handed over
	Read    time.Duration // spent in Log.Read
	Publish time.Duration // spent in Publish
	Retry   bool          // of tiles whose last pass failed
}

// PublishedInfo is what one pass handed over of one tile.
type PublishedInfo struct {
	Tile    fence.TileID
	Last    fence.Position // of the last batch
	Batches int
	Earlier []fence.Position // of the batches before the last; nil if there is none
	Bytes   int
	// Lag is the time from the first batch's commit, by the owner's clock, to the end of the publish, by
	// this process's: only as exact as the two clocks agree. Negative differences are zero.
	Lag time.Duration
}

// dropReason says why an entry was not forwarded.
type dropReason uint8

// The reasons.
const (
	// superseded: its epoch is below the current owner's (without an owner hash: below the highest seen).
	// It was committed legitimately, just before a takeover, and reaches watchers as state.
	superseded dropReason = iota + 1
	// fenced: its epoch is the owner hash's, but below one this bridge has already seen. The store has
	// regressed, and a newer owner exists.
	fenced
	// unvouched: its epoch is above the current owner's, which no owner hash vouches for.
	unvouched
	// repeated: forwarded before, under the same epoch, and met again because a failover took back what
	// was read; see regressInfo.
	repeated
)

// String returns the reason's lower-case name.
func (r dropReason) String() string {
	return enum.Name(r, "reason", "superseded", "fenced", "unvouched", "repeated")
}

// LogValue implements slog.LogValuer with the form of String.
func (r dropReason) LogValue() slog.Value { return slog.StringValue(r.String()) }

// dropInfo is an entry that was not forwarded.
type dropInfo struct {
	Tile     fence.TileID
	Position fence.Position
	Reason   dropReason
}

// deadLetterInfo is a poison entry: unreadable, not what its chain says, or not a batch.
type deadLetterInfo struct {
	Tile   fence.TileID
	Epoch  fence.Epoch // zero if unreadable
	Seq    fence.Seq
	Reason string
	// Err is nil if the entry is now among the tile's dead letters; else it is why it could not be put
	// there, the last of several times, and the bridge has gone on without.
	Err error
}

// gapInfo is a break in a tile's stream: entries trimmed before they were read, or another history.
// Relays notice by themselves; the bridge forwards what there is.
type gapInfo struct {
	Tile fence.TileID
	Have fence.Position // the last entry read; only Seq is known after a restart
	Next fence.Position // the entry that does not follow it
	Prev fence.Position // the position that entry follows
}

// regressInfo is a tile of which a failover has taken back entries that were read: its history ends before
// them, or is another one. Reading goes back to what is there now; nothing that this bridge has forwarded is
// forwarded again under the same epoch.
type regressInfo struct {
	Tile fence.TileID
	Read fence.Seq      // what was read
	Last fence.Position // where the history ends now, by the owner hash
}

// lostInfo is a tile of which entries were trimmed before they were read: no bridge had moved its watermark for
// longer than the trim's lease, or the stream was at its bound of memory. The bridge goes on with the
// oldest entry there is; relays notice the gap and resync by themselves.
type lostInfo struct {
	Tile    fence.TileID
	Read    fence.Seq // what was read; zero if no watermark says, because its lease has run out
	Trimmed fence.Seq // entries below it are gone
}

// Op is a call that can fail.
type Op string

// The calls.
const (
	OpResume     Op = "resume" // Log.Marks
	OpRead       Op = "read"
	OpPublish    Op = "publish"
	OpMark       Op = "mark"
	OpDeadLetter Op = "dead letter"
)

// FailureInfo is a failed call.
type FailureInfo struct {
	Op    Op
	Tiles int          // tiles that have to try again
	Tile  fence.TileID // one of them
	Err   error
}
