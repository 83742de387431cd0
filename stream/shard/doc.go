// Package shard divides tiles among several processes: bridges, or checkpointers, each of which works on a
// part of all tiles and takes over from the others when they die.
//
//	ranges, err := shard.Cut(allTiles, 32)
//	share, err := shard.NewShare(leases, "bridge", ranges, shard.Fixed(allTiles), b, nil) // b: a bridge.Bridge
//	go func() { errs <- share.Run(ctx) }()
//
// [Ranges] cut the tile IDs into shards. [Leases] are the book in which processes agree who holds which
// shard: memshard in one process, redisshard on Redis. A [Member] takes part; it calls a [Handler] for what
// it gains and loses. A [Share] is a Member and such a Handler: it keeps a [Target], such as a bridge, in
// step with the tiles of its shards, which it has from a [Lister] and from wake hints.
//
// # Guarantees
//
// While the store can be reached, a shard is never granted before whoever had it says that he has ceased,
// or was not heard for his TTL. So no two members that reach the store work on one shard, but for a Handler
// that overstays [MemberConfig.LostTimeout], and a process that was paused and has not noticed yet.
//
// Every shard has a holder, unless there is no member, at the latest one TTL and one heartbeat after a
// member has died (4 s with the defaults), and one heartbeat after one has left in good order. If all have
// died it is one TTL more, since that looks like an outage of the store.
//
// Members have the same number of shards, give or take one. Shards move only to that end.
//
// # What two workers on a shard would mean
//
// Nothing worse than double work. A bridge that forwards a tile which another forwards too publishes every
// frame twice, and watchers take the first; checkpoints are conditional on epoch and sequence. That is
// why leases here are for efficiency, not for safety, and why members rather work twice than not at all:
// while the store cannot be reached they keep what they have, for as long as it takes
// ([MemberConfig.StandDownAfter] changes that), and take nothing new. When it comes back, nothing moves.
// Do not use this package for work that must not be done twice: that takes a fencing token at the place
// where the work has its effect, such as a tile's epoch.
//
// # Failure
//
// No failure of the store ends Run; it is reported, counted, and tried again. A store that has lost its
// memory is told by the members what they hold, for one TTL, before it grants anything else. A Lister that
// fails is tried again after [ShareConfig.RetryList]; until then the tiles are those known.
//
// Members of one group have the same ranges; one that has others is refused with a *[RangesError], which
// ends its Run. To change the ranges, give the group a new name, and start the new members before the old
// ones are stopped: between the two, work is done twice.
//
// # Concurrency
//
// All types are safe for concurrent use. Run owns every goroutine it starts. A Handler is called from one
// goroutine at a time; a Target and a Lister too, but not in the same.
//
// # Testing
//
// Test against memshard. All waiting goes through package time, so a test can run under testing/synctest.
// shardtest.Run is the contract of Leases as tests.
package shard
