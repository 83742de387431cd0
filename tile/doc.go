// Package tile runs tiles: it turns a game's rules into an owner that ticks, commits and, when another processor takes
// over, redirects its clients and ends.
//
//	p, err := tile.New(id, "10.0.0.7:7000", tile.Seams{Authority: authority, Store: store, Log: log}, rules, nil)
//	go func() { ended <- p.Run(ctx) }()
//	outcome, err := p.Submit(ctx, tile.Intent{Tile: id, ActionID: "a1", Actor: "ann", Body: body})
//
// A game implements Rules: Resolve decides what happens in a tick, Apply folds what was committed. Package
// tile/tilehost runs thousands of tiles in one process and moves them between processes; tile/tilehttp carries intents
// between processes; tile/region gives a tile's ground from H3.
//
// # Guarantees
//
//   - A tick's batch is in the stream, under this owner's epoch and after the position it was decided on,
//     or it has no effect. State changes only by folding committed batches.
//
//   - No tick is played while the outcome of the one before is unknown: the tile freezes, it does not fork.
//
//   - An owner serves only after every replica has confirmed its epoch.
//
//   - An action (an Intent with an ActionID) has one outcome however often it is sent, across takeovers
//     and restores, while it is remembered (Config.RememberFor). An action whose outcome could not be remembered is
//     refused before it is decided (ErrOverloaded).
//
//   - Submit's success means committed by the master and kept while this owner lives. What survives when the
//     owner dies as well is the tile's Durability, below.
//
//   - A follower (Config.Follow) serves nothing, answers nothing and commits nothing. It takes the tile only by
//     the authority's conditional update, on the epoch it saw.
//
//   - An entity that departs for another tile (TransferRules) arrives once or comes back once, whatever process, master
//     or message is lost. If every copy of a tile's history may be, both tiles need a journal: WriteBehind or
//     WriteThrough.
//
//   - Drain to a successor loses no intent: each is decided here before, or redirected after the successor serves.
//
// # Durability
//
// Each tile chooses what its owner waits for before it answers: the master (Checkpointed, the default), the replicas
// (Replicated; ReplicatedActions for actions only) or a journal in the durable store (WriteThrough). A WriteBehind tile
// waits for the master, and tells other tiles only what its journal has. Durability says what each may lose, and its
// price.
//
// A tile that waits for replicas or for its journal is frozen: it answers no client and plays no tick. Other tiles do
// not notice. Its owner hash goes on moving, so that followers do not suspect the owner.
//
// A WriteThrough batch is committed, then appended to the journal, then acknowledged. A successor seals the journal
// under its epoch before it reads checkpoint and journal, so that an owner which a paused master still believes
// acknowledges nothing that the successor does not know of. What the durable store has and the stream has not, the
// successor restores. Before it serves it writes a snapshot of its state, at the position it serves from: what is
// acknowledged is always the checkpoint and the entries after it.
//
// A tile that goes on from its durable state because coordination had lost its history reports what was lost at most:
// Hooks.Restored, and the log.
//
// Followers are alike in all classes. They read the stream, and so may hold a batch that is not acknowledged yet; the
// next owner either finds it committed, and it counts, or replaces it. A follower of a WriteThrough tile does not ask
// for the tile while it cannot reach the journal.
//
// # Failures
//
// An owner whose commit is refused as stale redirects its clients to the owner that the refusal names, and asks the
// authority. Superseded, it ends, and Run returns a *SupersededError; not superseded, it serves again or mints a new
// epoch. If a failover has cut the stream short, the owner appends the missing batches again from memory; if the stream
// holds entries that it does not know, it replaces them by its state under a new epoch. docs/protocol.md gives the
// rules and why each is there.
//
// # Concurrency
//
// A TileProcessor runs one goroutine, and others while a snapshot is being saved, a checkpoint or a successor is asked,
// or its rules look at other tiles. Rules and Hooks are called from the first alone. Submit, Status, Inspect and
// Superseded may be called from anywhere.
//
// # Testing
//
// Package tile/tiletest holds a game's Rules to what they promise, and kills owners in a few lines. For all else run a
// processor over fence/memfence and stream/memstream; under testing/synctest an hour of ticks takes a moment.
//
// Rules that break their promises are found while they run as well. A follower compares its state with the owner's
// after each of the owner's snapshots (Hooks.Diverged); Config.CheckResolve is for development.
//
// # Inside
//
// The package's files depend on each other in one direction. From the bottom up:
//
//   - vocabulary: intent, takeover, rules (and their failures), durability, seams, state, hooks, config;
//   - inbox, where other goroutines leave intents (queue) and calls, and read the status;
//   - base (commits and journal), ownership (the authority);
//   - border and neighbor, where entities come from other tiles and leave for them, and sight, what the rules see of
//     those tiles;
//   - acquisition, the one way to become the owner, and what its refusals mean: install, quarantine, restore (from the
//     stream, a checkpoint or memory), acquire (an epoch, a history from a source, an install);
//   - the owner: pending (a batch until its outcome is known), heartbeat, snapshots, owner (forms and folds batches),
//     decide, repair, reconcile (what a refusal means), recordcheck, tick, handover, serve;
//   - follower, which keeps up with another owner, and suspicion, when it asks for the tile;
//   - processor, which is one and then the other.
//
// Below them, and without a processor, stand internal/history (the game's state and the position where it ends, the
// outcomes that are remembered, batches for re-appending), internal/durable (checkpoint and journal),
// internal/transfer (what is under way between this tile and others), internal/rim (what is read of the tiles that it
// looks at), internal/watch (what a follower sees of the owner), internal/turn (at which ticks each tile does what) and
// internal/retry.
package tile
