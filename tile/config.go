package tile

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/turn"
)

// Config holds what has a default. The zero value is valid.
type Config struct {
	// TickInterval is the time between ticks. Default 500 ms (2 Hz); at least one millisecond.
	TickInterval time.Duration

	// SnapshotEvery is the number of ticks between snapshots. Each tile has its own place in the interval, so that
	// tiles that began together do not save all at once; the first one comes earlier by that. Default 60.
	SnapshotEvery int

	// ConfirmEvery is the number of ticks between commits that ask every replica to confirm. What is confirmed is
	// not kept in memory any longer. Each tile has its own place in the interval. Default 10.
	ConfirmEvery int

	// RefreshEvery is the number of ticks between refreshes of the owner hash while the tile has no events; other
	// quiet ticks cost no round trip. An idle owner learns that it was superseded at its next refresh, and a
	// tick with intents always asks. RefreshEvery tick intervals must be shorter than the followers' SuspectAfter and
	// well within the time to live of owner hashes: 15 s at most. Default 1.
	RefreshEvery int

	// CheckResolve is for development: it checks at every tick that Resolve leaves the state as it is, and reports by
	// Hooks.Impure and the log if it does not. It costs two calls of Snapshot for each of Resolve, on the tick loop.
	// Default false.
	CheckResolve bool

	// Commit appends and refreshes. Default Seams.Store.Commit. Every call that commits goes through it: the batches
	// of ticks, the installs of new epochs, batches appended again after a failover, and refreshes of the owner hash
	// (commits without events). A wrapper may record or delay them, but must pass each on to the same store. A rebase
	// replaces the history by a snapshot; it is another call, Store.Rebase, and does not go through Commit.
	Commit fence.CommitFn

	// Durability is what the owner waits for before it answers: see the classes. Default Checkpointed.
	Durability Durability

	// MixedBorders lets entities cross between this tile and tiles of the other kind of durability: those with a
	// journal (Durability.Durable) and those without one. When all of coordination is lost, what has crossed such a
	// border may be lost or in both tiles, as between two tiles without a journal. Default false: what such a tile
	// presents is refused, and waits there.
	MixedBorders bool

	// Replicas is how many replicas must have the batch of a Replicated or ReplicatedActions tile before it is
	// acknowledged. Default fence.AllReplicas; at least 1. A shard that never has as many freezes the tile. Other
	// classes ignore it. What AllReplicas is worth on a shard that has lost some is the store's: see
	// redisfence.Config.MinReplicas.
	Replicas int

	// TakeOver lets Run take a tile from the owner it finds. Default false: a tile that is held elsewhere
	// ends Run with a *fence.LostError.
	TakeOver bool

	// Follow makes Run begin as a warm follower: it keeps the tile's state up to date from the stream, serves
	// nothing and answers nothing, until TakeOver is called or the owner hash has been silent for
	// SuspectAfter. Then it claims the tile as with TakeOver set. Default false: Run claims at once.
	Follow bool

	// SuspectAfter is how long a follower watches an owner hash that does not move, or is gone, before it
	// tries to take over. It only decides when to ask: whether the tile changes hands is the authority's
	// conditional update. Time in which the store does not answer does not count. It must be longer than the
	// owner's RefreshEvery tick intervals, or an idle owner seems silent; for a WriteThrough tile by one more
	// JournalTimeout, for which an owner may wait. Default RefreshEvery+3 tick intervals, at least 500 ms, and
	// JournalTimeout more for WriteThrough; NeverSuspect leaves it to TakeOver. The longer it is, the less often
	// a quiet tile is read: every quarter of it, between one and eight tick intervals.
	SuspectAfter time.Duration

	// Pace, if set, is called by a follower before it asks the authority for the tile, and may block: it is how a
	// process keeps the take-over of many tiles at once from becoming a storm. done is called when the tile serves or
	// the attempt has failed, and may be nil. An error ends the attempt. A tilehost.Host sets it. Default: no wait.
	Pace func(ctx context.Context, s Status, why Suspicion) (done func(), err error)

	// Phase, if set, says when an owner's first tick is due, from now; the others follow at TickInterval. It is how a
	// process keeps the ticks of its tiles apart. done is called when the owner ends, and may be nil. A tilehost.Host
	// sets it. Default: a part of TickInterval that follows from the tile's number.
	Phase func(tile fence.TileID, interval time.Duration) (wait time.Duration, done func())

	Limits
	Timeouts

	// Logger takes what an operator should read. Default: nothing is logged.
	Logger *slog.Logger

	// Hooks observe; see Hooks.
	Hooks Hooks
}

// Limits bound what a tile keeps, and for how long. Zero fields mean their defaults.
type Limits struct {
	// QueueLimit is how many intents may wait for a tick, those included that a tick has taken and not answered. A tick
	// takes three quarters of them at most. If the limit is reached, the actor with the most waiting intents loses its
	// newest ones to actors with fewer; what finds no room is refused with ErrOverloaded. Intents of OriginServer may
	// fill half, and are not lost to players'. Default 4096.
	QueueLimit int

	// MaxDilation is how many tick intervals a tick may last at most, in a tile whose ticks take longer than they may:
	// its time is dilated. Ticks, and all that is counted in ticks, slow down together, none is missed, and the usual
	// pace comes back by itself; see Dilatable. Followers wait as much longer before they suspect an owner. Default
	// 1: ticks that take too long are followed by fewer ticks, and the others are missed.
	MaxDilation int

	// RememberFor is how long the outcome of an action is remembered for its retries. An action retried later
	// could be applied again, so it must be longer than RetryWindow, by more than the clocks of gateways differ.
	// It is counted in ticks, rounded up, so a change of TickInterval scales it for what is remembered already.
	// Default 10 min. A tile remembers at most 131,072 outcomes (218 actions a second for ten minutes), which take at
	// most 8 MiB of a snapshot, or what the game's own state leaves; an action past that is refused with ErrOverloaded
	// before it is decided.
	RememberFor time.Duration

	// RetryWindow is for how long after its admission a gateway may send an action to this tile: the longest
	// admission.GatewayConfig.RetryWindow in use, or what your own senders do. Set it to switch to a shorter
	// RememberFor. Default DefaultRetryWindow.
	RetryWindow time.Duration

	// KeepBytes bounds the batches kept for re-appending after a failover, each counted with 160 bytes beside its
	// payload. Past it the oldest is forgotten: Hooks.Forgotten, Status.Forgotten, and one warning in the log until
	// all is confirmed again. A failover that loses as much is then healed by a rebase. It also bounds what waits for
	// the journal of a WriteBehind tile. Default 8 MiB.
	KeepBytes int

	// MarkLease is how long a consumer that has stopped moving holds the trim floor. Default 2 min, and at least that:
	// a bridge renews the marks of a quiet tile every 40 s.
	MarkLease time.Duration

	// MaxStreamBytes is the memory that the tile's stream may take in the coordination store. The owner trims before
	// it grows by an eighth of that, whatever SnapshotEvery. From three quarters on it raises an alarm
	// (SnapshotInfo.Alarm, and an error in the log). Past it, consumers lose their hold on the stream, the one
	// furthest behind first, and have to resync. When even that does not help, because no snapshot can be saved, the
	// tile stalls: it keeps its owner hash, commits no events, and lets intents wait (Status.StreamFull). An owner
	// counts what it commits itself until its first trim measures the rest. Default 16 MiB
	// (stream.DefaultMaxBytes), at least 8 MiB: eight of the largest batches.
	MaxStreamBytes int64
}

// Timeouts bound single steps of a processor. Zero fields mean their defaults; at least one millisecond.
type Timeouts struct {
	// CommitTimeout bounds one attempt to commit. Default the tick interval, at least 100 ms.
	CommitTimeout time.Duration

	// JournalTimeout bounds one attempt to append to the journal. Default CommitTimeout.
	JournalTimeout time.Duration

	// RulesTimeout is how long the game's Resolve, or Apply, may take in an owner, in time that the process runs. Then
	// the owner rejects the intents of the tick, and gives the tile up with a *RulesError of ErrHangs; the goroutine
	// that runs the rules is left behind. A call that takes as long while the history is read has the tile
	// quarantined, or keeps a follower from following. After 2 s that is announced by Status.Failure and a line in
	// the log. A Resolve with several intents may take a quarter of TickInterval longer for each beyond the first,
	// since the processor chose their number. Default 20 tick intervals (times MaxDilation), at least 10 s.
	RulesTimeout time.Duration

	// BootTimeout bounds how long a store or authority may be unreachable while the tile boots before Run
	// gives up. Default 10 s.
	BootTimeout time.Duration

	// DrainTimeout bounds the last tick and its confirmation by every replica after Run's context ends, and then
	// again snapshot and release. Default 5 s.
	DrainTimeout time.Duration
}

// Defaults of Config that gateways share.
const (
	// DefaultRetryWindow is for how long gateways retry an admitted action by default.
	DefaultRetryWindow = 5 * time.Minute
	// DefaultRememberFor is for how long tiles remember an action's outcome by default.
	DefaultRememberFor = 10 * time.Minute
)

const minStreamBytes = 8 * fence.MaxPayload

// WithDefaults returns a copy of the configuration with its defaults filled in; those of a nil one. The error is a
// *fence.ArgumentError that names the first field whose value is not valid, or what the seams lack.
func (c *Config) WithDefaults(s Seams) (Config, error) {
	d := setting.Of(c)
	if s.Authority == nil || s.Store == nil || s.Log == nil {
		return d, &fence.ArgumentError{Field: "seams", Value: s, Want: "an authority, a store and a log"}
	}
	var check setting.Check
	setting.Least(&check, 1, "SnapshotEvery", &d.SnapshotEvery, 60)
	setting.Least(&check, 1, "RefreshEvery", &d.RefreshEvery, 1)
	setting.Least(&check, 1, "ConfirmEvery", &d.ConfirmEvery, 10)
	setting.Least(&check, 1, "QueueLimit", &d.QueueLimit, 4096)
	setting.Least(&check, 1, "MaxDilation", &d.MaxDilation, 1)
	setting.Least(&check, 1, "KeepBytes", &d.KeepBytes, 8<<20)
	const ms = time.Millisecond
	setting.Least(&check, ms, "TickInterval", &d.TickInterval, 500*ms)
	setting.Least(&check, ms, "CommitTimeout", &d.CommitTimeout, max(d.TickInterval, 100*ms))
	setting.Least(&check, ms, "JournalTimeout", &d.JournalTimeout, d.CommitTimeout)
	setting.Least(&check, ms, "BootTimeout", &d.BootTimeout, 10*time.Second)
	setting.Least(&check, ms, "RulesTimeout", &d.RulesTimeout,
		max(10*time.Second, 20*time.Duration(max(1, d.MaxDilation))*d.TickInterval))
	setting.Least(&check, ms, "DrainTimeout", &d.DrainTimeout, 5*time.Second)
	setting.Least(&check, 2*time.Minute, "MarkLease", &d.MarkLease, 2*time.Minute)
	setting.Least(&check, ms, "RetryWindow", &d.RetryWindow, DefaultRetryWindow)
	setting.Least(&check, minStreamBytes, "MaxStreamBytes", &d.MaxStreamBytes, int64(stream.DefaultMaxBytes))
	d.RememberFor = cmp.Or(d.RememberFor, DefaultRememberFor)
	silence := max(d.quiet()+3*d.TickInterval, 500*ms)
	d.SuspectAfter = cmp.Or(d.SuspectAfter, silence+d.journalWait())
	d.Replicas = cmp.Or(d.Replicas, fence.AllReplicas)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	if d.Commit == nil {
		d.Commit = s.Store.Commit
	}
	if d.Phase == nil {
		d.Phase = func(id fence.TileID, interval time.Duration) (time.Duration, func()) {
			return turn.Phase(id, interval), nil
		}
	}
	for _, err := range []error{check.Err, d.validateDurability(&s), d.validateTimes()} {
		if err != nil {
			return d, err
		}
	}
	return d, (&stream.TrimRequest{Tile: 1, Lease: d.MarkLease, MaxBytes: d.MaxStreamBytes}).Validate()
}

// validateDurability validates the class and what it needs.
func (c *Config) validateDurability(s *Seams) error {
	switch {
	case c.Durability < Checkpointed || c.Durability > WriteBehind:
		return &fence.ArgumentError{Field: "Durability", Value: c.Durability,
			Want: "Checkpointed, Replicated, ReplicatedActions, WriteBehind or WriteThrough"}
	case c.Replicas < fence.AllReplicas:
		return &fence.ArgumentError{Field: "Replicas", Value: c.Replicas, Want: "fence.AllReplicas, or at least 1"}
	case c.Durability.Durable() && s.Journal == nil:
		return &fence.ArgumentError{Field: "seams.Journal", Value: "nil",
			Want: "a journal: WriteThrough and WriteBehind append every batch to it"}
	case c.Durability.Durable() && s.Checkpoint == nil:
		return &fence.ArgumentError{Field: "seams.Checkpoint", Value: "nil",
			Want: "what reads the checkpoints of the journal's store: WriteThrough and WriteBehind begin from them"}
	}
	return nil
}

// validateTimes validates spans that depend on each other.
func (c *Config) validateTimes() error {
	quiet := c.quiet()
	silence := quiet + c.journalWait()
	switch {
	case c.RememberFor <= c.RetryWindow:
		return &fence.ArgumentError{Field: "RememberFor", Value: c.RememberFor,
			Want: "longer than RetryWindow, " + c.RetryWindow.String() + ": an action retried later is applied twice"}
	case c.RefreshEvery*c.MaxDilation > 1 && quiet > fence.DefaultTTL/2:
		return &fence.ArgumentError{Field: "RefreshEvery", Value: c.RefreshEvery,
			Want: "at most 15 s worth of ticks, of those that MaxDilation allows"}
	case c.SuspectAfter <= silence:
		return &fence.ArgumentError{Field: "SuspectAfter", Value: c.SuspectAfter,
			Want: "longer than RefreshEvery tick intervals (times MaxDilation, and JournalTimeout for WriteThrough), " +
				silence.String()}
	}
	return nil
}

// quiet is how long an owner that is well may take to move its owner hash.
func (c *Config) quiet() time.Duration {
	return time.Duration(c.RefreshEvery*max(1, c.MaxDilation)) * c.TickInterval
}

// lifeless is for how long an owner hash must not have moved before its owner is taken for dead on another sign: one
// tick more than an idle owner takes to move it.
func (c *Config) lifeless() time.Duration {
	return min(c.quiet()+c.TickInterval, c.SuspectAfter)
}

// lookEvery is how often an owner looks whether the authority's record is its grant: two looks before a gateway settles
// what was pending, and not before a claimant that still tries has given up.
func (c *Config) lookEvery() time.Duration {
	return max(c.RetryWindow/5, c.BootTimeout, c.TickInterval)
}

// journalWait is how long the journal may keep an owner from refreshing its owner hash.
func (c *Config) journalWait() time.Duration {
	if c.Durability == WriteThrough {
		return c.JournalTimeout
	}
	return 0
}

// rememberTicks is RememberFor in ticks, rounded up. No tick is shorter than TickInterval.
func (c *Config) rememberTicks() fence.Tick {
	return fence.Tick((c.RememberFor + c.TickInterval - 1) / c.TickInterval)
}
