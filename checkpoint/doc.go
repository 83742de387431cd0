// Package checkpoint copies tiles' snapshots from the coordination store to durable storage, and reads
// them back when the coordination store is lost. It also keeps the journals of write-through tiles there.
//
//	store, err := sqlitecheckpoint.Open(ctx, "checkpoints.db") // or dynamocheckpoint.New
//	c, err := checkpoint.New(log, store, nil, tiles, nil)
//	err = c.Run(ctx) // until ctx is cancelled; then one last pass
//
// A Checkpointer is deliberately simple: on a cadence it reads each tile's snapshot and writes it to a
// Store. It replays nothing and knows nothing of the game. It reads the coordination store's state and
// writes there only its own watermark, stream.Checkpointed, so it can never stand in the way of a commit.
//
// It looks at many tiles in one round trip a node. A tile that does nothing costs a share of it, and a
// tile that plays on has its snapshot fetched only when there is a new one, if the log is a stream.Inspector,
// as the Logs of this module are.
//
// # Guarantees
//
//   - A checkpoint never regresses: neither its epoch nor its sequence. The Store enforces it in the write
//     itself, so any number of Checkpointers may work on one tile.
//   - What Get returns is whole: the blob matches the checksum the owner gave it. A snapshot that does not
//     is never written.
//   - What a rebase has laid is written once an owner has served on it: before, it may be on a master that is being
//     replaced (ErrUnserved).
//   - The watermark moves only after the Store has confirmed the write. The stream is therefore not
//     trimmed past a checkpoint, as long as the watermark's lease is alive.
//   - One tile's trouble is its own: a write that fails or hangs is retried with jittered exponential
//     backoff, and failing tiles share slots of their own.
//   - A coordination node that hangs delays the tiles of other nodes by 2 s for each call that meets it. Its own tiles
//     fail in that call, and are tried again apart from the others.
//   - A journal is truncated up to what the Store has confirmed, and never past it.
//
// # What may be lost
//
// If the whole coordination store is lost, every tick after the last checkpoint is lost with it. That
// window is the owner's snapshot interval plus the cadence plus however long the durable store has been
// failing; Lag in every hook is the part of it that this package can see. Ownership loses nothing: a
// restored tile continues under a higher epoch and a higher sequence, see Restore.
//
// # Journals
//
// A tile that writes through loses none of its acknowledged ticks: its owner appends every batch to a journal before it
// acknowledges it, so what the checkpoint lacks is in the journal's tail. The owner seals the journal for its epoch
// when it takes the tile over; an earlier owner can then append no more. Each append also names the position that it
// follows, so that a journal that was restored to an older state refuses it. Give New the journal, and the Checkpointer
// removes the entries that a checkpoint covers.
//
// # When the durable store fails
//
// The lag grows, the Failed hook and Stats say so, and nothing else happens: ticks, commits and delivery do
// not notice, except that tiles which write through cannot acknowledge. While a tile's checkpoint is behind,
// its watermark is not renewed, so a store that stays down longer than the watermark's lease stops holding the
// stream's tail back, and the stream cannot grow without bound. Alarm on Stats.Lag well before it reaches the
// lease (see stream.TrimRequest): it is about one cadence when all is well, and half the lease leaves time to
// act.
//
// # Concurrency
//
// A Checkpointer's methods may be called from any goroutine. Run owns every goroutine it starts. Hooks
// are called from those goroutines, several at once, and should return quickly. Stores are safe for
// concurrent use, by any number of processes.
//
// # Back ends and tests
//
// dynamocheckpoint keeps checkpoints and journals in DynamoDB, sqlitecheckpoint in a file or in memory through SQL,
// memcheckpoint in maps. All pass checkpointtest.Run and checkpointtest.RunJournal, which are the contracts of Store
// and JournalStore as tests. In your own tests use memcheckpoint.New: it needs no driver and works inside a
// testing/synctest bubble, where the cadence costs no time.
package checkpoint
