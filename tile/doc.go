// Package tile runs tiles: it turns a game's rules into an owner that ticks, commits and, when somebody
// else takes over, steps aside.
//
//	p, err := tile.New(id, "10.0.0.7:7000", tile.Seams{Authority: authority, Store: store, Log: log}, rules, nil)
//	go func() { ended <- p.Run(ctx) }()
//	outcome, err := p.Submit(ctx, tile.Intent{Tile: id, ActionID: "a1", Actor: "ann", Body: body})
//
// A Host runs the tiles of a whole process, thousands of them, and moves them between processes.
//
// A game implements Rules: Resolve decides what happens in a tick, Apply folds what was committed. Package
// tile/region gives a tile's ground from H3; tile/tilehttp carries intents between processes.
//
// # Guarantees
//
//   - A tick's batch is in the stream, under this owner's epoch and after the position it was decided on,
//     or it has no effect. State changes only by folding committed batches.
//
//   - No tick is played while the fate of the one before is unknown: the tile freezes, it does not fork.
//
//   - An owner serves only after every replica has confirmed its epoch.
//
//   - An action (an Intent with an ActionID) has one outcome however often it is sent, across takeovers
//     and restores, while it is remembered (Config.RememberTicks).
//
//   - Submit's success means committed by the master and kept while this owner lives; every ConfirmEvery
//     ticks the replicas confirm what came before. If owner and master die together, the batches since the
//     last confirmation can be lost; if all of coordination is lost, those since the last checkpoint.
//
//   - A follower (Config.Follow) serves nothing, answers nothing and commits nothing. It takes the tile only by
//     the authority's conditional update, on the epoch it saw.
//
//   - Drain to a successor loses no intent: each is decided here before, or redirected after the successor serves.
//
// # Failures
//
// Refused as stale, the owner asks the authority: superseded, it redirects everybody and Run ends with a
// *SupersededError; not superseded, it carries on or mints a new epoch. A stream that a failover has cut
// short gets its missing batches back from memory; one that holds somebody else's entries is replaced by
// the owner's state under a new epoch. docs/protocol.md gives the rules and why each is there.
//
// # Concurrency
//
// A TileProcessor runs one goroutine, and others while a snapshot is being saved, or a checkpoint or a successor
// is asked. Rules and Hooks are called from the first alone. Submit, Status, Inspect and Superseded may be called from anywhere.
//
// # Testing
//
// Run a processor over fence/memfence and stream/memstream; under testing/synctest an hour of ticks
// takes a moment.
package tile
