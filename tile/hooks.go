package tile

import (
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Hooks observe a TileProcessor; nil ones are ignored. They run on the tick loop, so they must be quick
// and must not call back into the processor.
type Hooks struct {
	// Transition: the processor's life entered another state.
	Transition func(TransitionInfo)
	// Ticked: a tick was played, its batch committed or still pending.
	Ticked func(TickInfo)
	// Committed: a batch or refresh is in the stream.
	Committed func(CommitInfo)
	// Refused: the store refused a batch, or could not be asked.
	Refused func(RefusalInfo)
	// Snapshotted: a snapshot and the trim behind it were attempted.
	Snapshotted func(SnapshotInfo)
	// Healed: the processor repaired its history after a failover or a fork.
	Healed func(HealInfo)
	// TookOver: a follower became the owner.
	TookOver func(TakeoverInfo)
	// Restored: coordination had lost the tile's history, and the tile goes on from what was left of it.
	Restored func(RestoredInfo)
	// RulesFailed: the game's rules panicked, or failed otherwise; RulesError says what becomes of the tile.
	RulesFailed func(*RulesError)
	// Quarantined: this processor has put its tile into quarantine, or found that it was put there meanwhile.
	Quarantined func(*QuarantinedError)
	// Impure: Resolve has changed the state (Config.CheckResolve).
	Impure func(ImpurityInfo)
	// Diverged: a follower's state is not the owner's.
	Diverged func(DivergenceInfo)
	// Forgotten: a batch that no replica has confirmed had to be dropped from memory.
	Forgotten func(fence.TileID, fence.Position)
}

// TransitionInfo is a change of state.
type TransitionInfo struct {
	Tile     fence.TileID
	From, To State
	Epoch    fence.Epoch
}

// TickInfo is one played tick.
type TickInfo struct {
	Tile    fence.TileID
	Tick    fence.Tick
	Intents int
	Events  int
	Late    time.Duration // how much after its due time the tick began
	Resolve time.Duration // in the game's rules
	Took    time.Duration // in all, commit included
	Missed  int           // tick times that passed while the previous tick ran or waited
	Pending bool          // the batch's fate is not known yet; the next tick presents it again
}

// CommitInfo is one commit that succeeded.
type CommitInfo struct {
	Tile     fence.TileID
	Position fence.Position
	Tick     fence.Tick
	Events   int
	Bytes    int           // of the payload
	Resolve  time.Duration // in the game's rules, before
	Took     time.Duration // from first presentation to the answer, retries included
	Refresh  bool          // nothing was appended
	Actions  []ActionInfo  // that the batch decides

	Departures int           // of entities for other tiles
	Arrivals   int           // of entities that were taken
	Arrived    []ArrivalInfo // those of them with which a player came
	Refused    int           // arrivals that were not
	Returns    int           // departures that were refused, and that the rules have taken back
	Parked     int           // departures that were refused, and with which the rules fail

	// Durability is the tile's class. Of Took, Committing was spent in calls of the coordination store, until the
	// batch was known to be on the master; a confirmation that came with that answer is part of it. Confirming is
	// what it took from then until enough replicas had it; zero if they had it at once, or no confirmation was asked
	// for. Journaling was spent in calls of the journal. What is left was waiting between attempts.
	Durability                         Durability
	Committing, Confirming, Journaling time.Duration
}

// ActionInfo is an action that a batch decides.
type ActionInfo struct {
	ActionID string
	Outcome  stream.Outcome
	Came     time.Time // when this processor was given it
}

// ArrivalInfo is a player who has arrived with an entity.
type ArrivalInfo struct {
	Actor string
	From  fence.TileID
	ID    stream.TransferID // the commit of From by which they left
}

// RefusalInfo is one commit attempt that did not succeed.
type RefusalInfo struct {
	Tile fence.TileID
	Err  error
}

// SnapshotInfo is one snapshot attempt.
type SnapshotInfo struct {
	Tile   fence.TileID
	At     fence.Position
	Bytes  int
	Encode time.Duration // on the tick loop
	Save   time.Duration // beside it
	Err    error         // of the snapshot or the trim

	Trimmed *stream.Trimmed // what the trim behind it did; nil if there was none
	Alarm   bool            // the stream takes three quarters or more of Config.MaxStreamBytes
}

// HealInfo is one repair.
type HealInfo struct {
	Tile       fence.TileID
	Reappended int            // batches appended again after a failover lost them
	Rebased    bool           // history was replaced by the owner's state, under a new epoch
	Rejoined   bool           // the state was replaced by the history of a later owner that the authority had forgotten
	Reclaimed  bool           // the epoch is new: the authority had granted the tile to a process that did not take it
	Voided     fence.Position // the foreign position a rebase voided
	At         fence.Position
}

// RestoredInfo is a tile that goes on although coordination had lost its history, and what of it is lost.
type RestoredInfo struct {
	Tile fence.TileID
	From fence.Position // where what it goes on from ends
	At   fence.Position // where it goes on; clients see the sequence jump

	// SnapshotTick is the tick of the state it goes on from. Of a WriteThrough tile that is the last entry's of the
	// journal; Taken is still when the snapshot before it was taken, by the clock of the store that took it.
	SnapshotTick fence.Tick
	Taken        time.Time

	// LostTicks are the ticks that were acknowledged and are lost, LostFor the time that they lasted. Unless Exact,
	// both are bounds: at most as many, if the clocks agree. They count every tick interval from Taken until now,
	// the time without an owner included. A follower knows better: it counts to the last tick that it
	// saw in the owner hash, and what can have come between then and when it found the hash gone. Ticks without
	// events are counted like others.
	LostTicks fence.Tick
	LostFor   time.Duration

	// Exact says that LostTicks is no bound: the owner hash was left, and names the last tick; or nothing is lost,
	// because the tile writes through (and its durable store was not restored to an older state), or because of
	// FromMemory.
	Exact bool

	// FromMemory says that the owner was alive, and restored the state that it has in memory: nothing is lost.
	FromMemory bool
}

// TakeoverInfo is one take-over by a follower, from the suspicion to Serving. Detection is Silent; the take-over
// itself is Minted, Replayed and Installed together.
type TakeoverInfo struct {
	Tile  fence.TileID
	Why   Suspicion
	Epoch fence.Epoch // minted
	Warm  bool        // only the missing tail was read; otherwise snapshot and tail

	Silent    time.Duration // how long the owner hash had not moved when the follower became suspicious
	Asked     time.Duration // from then to the question: the wait for a turn, and a look at the stream
	Minted    time.Duration // until the authority had answered
	Replayed  time.Duration // until the state was complete
	Installed time.Duration // until every replica had confirmed the epoch
}

// ImpurityInfo is a Resolve after which Snapshot gives other bytes than before.
type ImpurityInfo struct {
	Tile    fence.TileID
	Tick    fence.Tick
	Intents []Intent // that Resolve was given

	Before, After []byte // what Snapshot gave
	Offset        int    // of the first byte that differs

	// Unsteady says that Snapshot, called again, gives yet other bytes: the fault is there, and Resolve may have none.
	Unsteady bool
}

// DivergenceInfo is a follower whose state was not the owner's where both had folded the same batches. The follower
// goes on from the owner's last snapshot. It is reported after each snapshot of the owner until the states agree.
type DivergenceInfo struct {
	Tile fence.TileID
	At   fence.Position // where both states are from
	Tick fence.Tick

	// Own is what Snapshot gave here, and Stored what the owner saved, for the game to decode. Stored is nil if the
	// snapshot at At was not there any more, or not yet. Offset is of the first byte that differs; -1 without Stored.
	Own, Stored []byte
	Offset      int

	// Recoded says that Stored, once it is restored here, is encoded as Own: the owner is another version of the game
	// that encodes the same state otherwise, or Restore loses what Snapshot wrote. It is reported once for each owner,
	// whose states are then not compared any more.
	Recoded bool
}
