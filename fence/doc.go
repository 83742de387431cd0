// Package fence decides which process owns a tile, and refuses all others at the write itself.
//
// It is the lowest layer: identifiers, the two back-end interfaces an owner uses, and their errors. It links no
// driver and knows no geometry.
//
//	grant, err := authority.Claim(ctx, fence.Claim{Tile: tile, Contact: "10.0.0.7:7000", ID: fence.NewClaimID()})
//	receipt, err := store.Commit(ctx, fence.Commit{Tile: tile, Epoch: grant.Epoch, Contact: grant.Contact,
//		Prev: position, Tick: 1, Payload: payload, Install: true, Replicas: fence.AllReplicas})
//
// An Authority mints epochs, the fencing tokens: each higher than every earlier one of the tile, from one
// conditional update of the tile's row. Back ends: pgfence, sqlitefence, memfence. A Store keeps what
// owners commit, and takes nothing without an epoch. Back ends: redisfence, memfence. CommitFn
// stands between a tick loop and the store.
//
// Most programs do not call this package's methods themselves: tile.TileProcessor does, by the rules
// below. Use it directly to build another kind of owner.
//
// # Guarantees
//
//   - In a tile's stream epochs never decrease and each entry follows the one before it.
//   - The sequence only climbs: over takeovers, an expired owner hash, a failover, a rebase.
//   - A commit is appended once, however often it is presented.
//   - A writer that is refused as stale learns the epoch and the contact that replaced it.
//   - A missing owner hash, an empty contact, a malformed argument, a library of another version: refused,
//     nothing written.
//
// # What an owner has to do for it
//
// Keep a batch unchanged until its outcome is known. Serve only after an install that all replicas have
// confirmed. Ask the authority before standing down, and before installing again when the owner hash is
// missing. Re-append kept batches when the store is behind. Start over under a new epoch when the store
// has entries that were not replayed, and rebase when it holds another history. docs/protocol.md has the
// reasons.
//
// # Failures
//
// A write is applied (nil error), not applied (a *RefusedError, ErrNotApplied, ErrInvalidArgument), or
// unknown (ErrUnknownOutcome): present it again. ErrUnconfirmed is applied on the master alone, which a
// failover may undo.
//
// # Concurrency and testing
//
// Every implementation is safe for concurrent use. Test against memfence; fencetest holds the suites
// that all back ends pass, for back ends of your own.
package fence
