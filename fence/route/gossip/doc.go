// Package gossip is a route.Membership over a network: SWIM, by way of hashicorp/memberlist.
//
//	table := new(route.Table)
//	node, err := gossip.New("10.0.0.7:7000", table, &gossip.Config{
//		Bind: "10.0.0.7:7946", Seeds: []string{"10.0.0.8:7946"}, Timing: gossip.Fast(),
//		Notify: func(e route.Event) { events <- e },
//	})
//	go node.Run(ctx)
//	err = node.Announce(route.Entry{Tile: tile, Epoch: 12, Contact: "10.0.0.7:7000"})
//
// Members probe each other, tell each other which are alive, and carry the map from tiles to owners into each
// other's tables. An announcement travels at once in small packets; each member to which it is news passes it
// on. From time to time two members exchange their whole maps over TCP, which repairs lost packets, brings a
// new member up to date, and heals a partition.
//
// # Guarantees
//
// All tables become equal once announcements stop and the members can reach each other, and the highest
// epoch of each tile is what is left. How soon depends on Timing; the right to write depends on none of it.
//
// A member that is cut off comes back by itself: Run keeps trying the seeds that are missing, and the
// members that died within the last hour.
//
// # Worlds
//
// What keeps the members of two deployments apart is Config.SecretKeys, if each has its own, and Config.Label: no
// packet and no connection of another label is read. A label that is World.String has the name and the ID of
// the world, so that two deployments of one name, given each other's seeds, do not meet either. Neither refuses a
// process that is configured wrongly: it stays alone, and logs after a while that no seed answers. A label is not a
// secret.
//
// # Failures
//
// Bytes from a peer that are no message change nothing: they are refused, counted (Stats.Refused) and
// logged. A map that does not fit into one exchange (16 MiB; about three million tiles) travels in parts. A
// process that can send to the port can announce anything, so set Config.SecretKeys, or keep the port to
// trusted networks. False announcements misroute; they do not grant a tile.
//
// # Wire format, version 1
//
// Three things travel inside memberlist's own messages. A member's meta data is its contact and, after spaces, the
// number of its tiles and the microseconds that they take in a second. What the members exchange, whole maps and single
// announcements alike, is one message:
//
//	+---------+------+- - - - - - - - - - - - - - - - - - - - -+-------+
//	| version | kind | body                                    |  sum  |
//	|   1 B   | 1 B  |                                         |  4 B  |
//	+---------+------+- - - - - - - - - - - - - - - - - - - - -+-------+
//
// The version is 1. The sum is the CRC-32C of everything before it, big-endian: one flipped bit in an epoch
// would be believed by all members for ever. The body of kind 1, entries, is empty or
//
//	+-------+-------+---------+-----------+---------+---------+-----------+- - -
//	| shift | first |  epoch  |  contact  |  step   |  epoch  |  contact  | step …
//	|  1 B  |  8 B  | varint  |           | varint  | varint  |           |
//	+-------+-------+---------+-----------+---------+---------+-----------+- - -
//	                 ‾‾‾‾‾first entry‾‾‾‾‾ ‾‾‾‾‾‾‾‾second entry‾‾‾‾‾‾‾‾‾‾
//
// First is the lowest tile, big-endian. Each further tile is the one before plus step shifted left by shift
// (0 to 63) bits, step at least 1: H3 indexes of one resolution end in the same bits. An epoch is 1 to
// 2^53-1. A contact is a varint k: 0 says that the tile was released; up to the number of contacts the
// message has named so far, the k-th of them; one more, a new contact, whose length (1 byte, 1 to 255) and
// bytes (UTF-8 without a zero byte) follow. Varints are unsigned LEB128, minimally encoded.
//
// The body of kind 2, farewell, is the name of a member that leaves, 1 to 272 bytes of UTF-8. (memberlist
// does not distinguish members that leave from members that die.)
//
// # Concurrency and testing
//
// A Node is safe for concurrent use. For tests use a route.Group, which needs no ports and no time, and
// passes the same conformance suite.
package gossip
