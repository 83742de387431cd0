// Package route answers which process owns a tile, without asking the authority.
//
// A Router has three sources, each asked only when the one before it does not know or was found wrong:
//
//	gossip    the Table of this process: what owners have announced, in memory
//	store     one read of the tile's owner hash, which every tick refreshes
//	redirect  a process that was asked and does not own the tile names the owner it knows
//
// A gateway routes like this:
//
//	table := new(route.Table)                            // fed by a Membership, such as a gossip.Node
//	router, err := route.NewRouter(table, store, nil)
//	contact, err := router.Route(ctx, tile)
//	router.Correct(contact, route.Entry{Tile: tile, Epoch: 12, Contact: "10.0.0.8:7000"}) // a redirect said so
//
// A Table is one process's copy of the map from tiles to owners. A Membership says which processes are
// alive and carries what they announce into everybody's table: package gossip does it over a network, and
// Group within one process.
//
// # Guarantees
//
// None of this decides who owns a tile: the fence does, at the write. A wrong answer costs a round trip.
//
//   - Tables that have learned the same entries are equal, in whatever order and however often they came:
//     learning is a join-semilattice, see Entry.Supersedes.
//   - What was announced at a higher epoch replaces what was known of the tile, everywhere it arrives; so an
//     owner that was superseded puts the tables right by announcing its successor.
//   - After Router.Correct the next Route does not repeat the contact unless another source, or a later
//     announcement, names it again.
//
// # Failures
//
// A *NoRouteError: nobody is known to own the tile, or the store could not be asked. Stale answers are no
// errors; Router.Stats counts them by source.
//
// A table keeps one entry for every tile that was ever announced to it, 50 to 90 bytes each, released ones
// included: without them an old announcement would come back.
//
// # Concurrency and testing
//
// Everything is safe for concurrent use. Readers of a Table take no lock and allocate nothing. Test
// against a Group, which works inside testing/synctest; routetest.Run is the suite for a Membership of
// your own.
package route
