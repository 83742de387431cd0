// Package directory says where players are: which processes hold their sessions, and in which tile each player is.
//
//	d, err := directory.New(directory.NewMemory(), &directory.Config{End: handler.EndActor, Tell: handler.Tell})
//	go func() { errs <- d.Run(ctx) }()
//	tile, err := d.Where(ctx, "ann")                   // where a client that has just connected goes on
//	processes, err := d.Tell(ctx, "ann", []byte("hi")) // 0: not connected
//	processes, err = d.End(ctx, "ann")                 // everywhere
//
// The servers of the root package do that by themselves if Backends.Directory is set: gateways and relays enter their
// sessions, tile servers write who has arrived. Records are kept in a [Store]: [NewMemory] in one process,
// redisdirectory on Redis.
//
// # Guarantees
//
// A record is a hint. It leads clients, and nothing is decided by it: what a tile has is known to its owner alone.
//
//   - A session is found within 200 ms of its beginning, and is not found any more after its end. The sessions of a
//     process that dies are found for 30 s at most. After the store was lost, sessions are found again
//     within 10 s.
//   - A tile is written when the arrival of the player there is committed, within 200 ms. What is written late, or
//     twice, does not replace what is newer: see [Move]. If the writer dies first, the record is stale until the player
//     arrives in another tile, or acts: a gateway that sees an intent of the player applied writes its tile, unless the
//     record is newer ([Directory.Seen]).
//   - A message is handed to the connections that the player has, at most once to each. It may be lost with a process
//     or a connection, and a connection that reads too slowly takes none.
//   - Sessions that End does not reach at once are ended when their process renews its leases, within 10 s. A process
//     that cannot reach the store goes on serving; it ends them when it reaches the store again.
//
// Records of players who have not been seen for 30 days are forgotten, and so are those of a store that was
// lost: Where then answers that the tile is not known, and the game decides where such a player begins.
//
// # What is believed
//
// A process that can write to the store can send any player anywhere, as far as tiles let it in, and end all sessions.
//
// # Failure and concurrency
//
// No failure ends Run. What the store does not take is logged and counted; leases are renewed again, arrivals are
// written again as long as there is room for 16,384 of them. All types are safe for concurrent use. Run owns every
// goroutine that it starts.
//
// # Testing
//
// Test against [NewMemory], also under testing/synctest. All back ends pass one conformance suite.
package directory
