// Package share divides tiles among several processes that do the same work, bridges or checkpointers, and moves
// the tiles of a process that dies to the others.
//
//	s, err := share.New(members, "bridge", share.Fixed(tiles), target, nil) // target: a bridge.Bridge
//	go func() { errs <- s.Run(ctx) }()
//
// The processes of a group are on a list of living members ([Members]: [Memory] in one process, redisshare on
// Redis), on which each writes itself with every heartbeat. Of the members that it sees there, a member works on
// the tiles for which its own score is the highest (rendezvous hashing, see docs/wire.md). So a member that comes or
// goes moves only the tiles that it takes or had, and nothing else has to be agreed on.
//
// # Guarantees
//
// Every tile has a living member that works on it, with these delays (the defaults in brackets):
//
//   - The tiles of a member that dies are taken over within one TTL and one heartbeat (4 s).
//   - The tiles of a member that leaves in good order are taken over with the next heartbeat of the others (1 s).
//   - A member that cannot reach the list keeps what it has. After an outage of the list, and after the list was
//     lost, nothing moves: the members find each other again first. A member that dies or leaves meanwhile is
//     replaced within four heartbeats of the end of the outage.
//   - A process that starts while the list cannot be reached works on all tiles after its first failed heartbeat.
//
// Tiles are divided by chance: with n members and many tiles, each member has close to one n-th of them.
//
// # Two members on one tile
//
// Two members may work on one tile: for one heartbeat whenever a tile moves, and for longer while one of them
// cannot reach the list. That does no harm to the work this package is for: a bridge that forwards a tile twice
// publishes every frame twice, and watchers take the first; checkpoints are conditional on epoch and sequence.
// Do not use this package for work that must not be done twice. Such work takes a fencing token, such as a
// tile's epoch, at the place where it has its effect.
//
// # What is believed
//
// The list says who lives, and a process that can write there can add members that work on nothing: their tiles have
// no member for as long as it goes on. A list of more than 1,024 members counts as a heartbeat that failed. Keep the
// list where only members can write: checkpointers, whose work is what survives, on the coordination cluster.
//
// # Failure and concurrency
//
// No failure ends Run. A heartbeat that fails is logged, counted and followed by the next; a [Lister] that fails is
// called again a second later, and goes on where it was. [Recorded] asks for what was added, every 10 s, and for 10,000
// of all records: so its cost does not grow with the world. A tile that is new is found at once; one that was retired
// is given up after two rounds over all records, half an hour with a million.
//
// All types are safe for concurrent use. Run owns every goroutine it starts.
//
// # Testing
//
// Test against [Memory]. All waiting goes through package time, so that a test can run under testing/synctest.
// All back ends pass one conformance suite.
package share
