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
// alive and carries what they announce into the table of each: package gossip does so over a network, Group
// within one process.
//
// # Guarantees
//
// A route is a hint: the fence decides who owns a tile, at the write. A wrong route costs a round trip. Where a process
// that lies would gain by being believed, as with money, Router.Confirmed names the owner that the store names.
//
//   - Tables that have learned the same entries are equal, in whatever order and however often they came, as long as
//     there is room for all of them: learning is a join-semilattice, see Entry.Supersedes.
//   - An announcement of a higher epoch replaces the tile's entry in every table it reaches; so an owner that
//     was superseded corrects the tables by announcing its successor.
//   - After Router.Correct the next Route does not repeat the contact unless another source, or a later
//     announcement, names it again.
//
// # Failures
//
// A *NoRouteError: no source names an owner of the tile, or the store could not be asked. A stale answer is no
// error; Router.Stats counts them by source.
//
// A table keeps one entry for every tile that was ever announced to it, 50 to 90 bytes each, up to Table.MaxTiles.
// Released tiles stay too while there is room: without their entry an old announcement would be believed again.
//
// # Concurrency and testing
//
// Everything is safe for concurrent use. A look-up in a Table takes less than 1 us and allocates nothing. Test
// against a Group, which works inside testing/synctest and passes the same conformance suite as gossip.
package route
