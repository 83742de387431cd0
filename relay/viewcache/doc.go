// Package viewcache lets many relays share what each of them would read from the coordination store for a client that
// joins: a tile's snapshot and tail. One relay reads, the others are given the result, so that a storm of joins does
// not reach the servers that commits wait for.
//
//	store, err := redisviewcache.New(client, fence.World{}, 0) // a Redis of their own; NewMemory within one process
//	views, err := viewcache.New(store, log, [][]byte{key}, nil) // the same for all relays
//	r, err := relay.New(broker, log, relay.Public, &relay.Config{Views: views})
//
// # Versions
//
// A version of a tile's view is named by the position at which it ends: epoch, sequence and chain. Nobody counts
// versions, so that the count cannot restart, skip or collide, whatever becomes of the cache. A version consists of two
// values, the snapshot it begins with, which the versions after it share, and the tail of batches since then.
//
//	absent ──lock──▶ being read ──put──▶ newest ──a newer one is put──▶ superseded ──60 s──▶ absent
//	   ▲                 │                  │                               │
//	   │            its holder dies         │ evicted, flushed, damaged     │ evicted: before any newest one
//	   └─────────────────┴──────────────────┴───────────────────────────────┘
//
// The lock is of one tile, lasts a second, and is renewed while its holder reads; the store grants it only to a caller
// that has seen the newest version, so that a version is read once. A caller that does not get it is given the newest
// version there is, or waits for it. A rebuild reads only what follows the newest version; if the log does not continue
// that, because of a rebase, a trim or a fork, it reads snapshot and tail.
//
// # Guarantees
//
//   - Every view handed out is one that a relay of the deployment read from the log: a value has a tag that only a
//     relay with a key can make (HMAC-SHA256), over its tile, its position and its content, and the chain over all
//     batches is computed anew. What fails that is logged (sampled), counted (Stats.Corrupt), removed, and read again.
//     A process that can write to the store and has no key can remove views and give back old ones, which a relay
//     completes as it does any view.
//   - A version of impossible numbers freezes nothing: without a tag it is removed, and a stamp or token of the future
//     is as good as none.
//   - A version is never replaced by an older one. Epoch and sequence are compared in the step that stores; among equal
//     numbers, which only another history can have, the later read wins, by the token of its lock.
//   - No time decides what is right. The lease, the grace and Config.Fresh decide who reads, and when.
//   - The cache may be flushed, evicted, restored, restarted or cut off at any moment. Joins are then slower: by
//     Config.Timeout for those under way, and for one read a second while it lasts; by a second if a rebuilder dies.
//   - The values take no more than the budget of redisviewcache.New, and the store evicts by itself: superseded
//     versions first, then tiles that were not used for long.
//
// Within the budget, a tile takes its newest version and the tails that superseded ones had, one for each
// Config.Fresh of the last 60 s at most. A tile that is read and changes every second thus keeps 60 tails: with
// snapshots of 64 KiB and two batches of 200 bytes a second, Redis has 13 times one copy of each view
// (TestMemoryIsWhatIsSaid).
//
// It does not promise that a view is the newest, or that a log is read only once: after a flush, with the lock of a
// process that was paused, or if the store does not work, more than one relay reads. A relay completes a view with the
// frames of its own subscription, and notices by its own comparisons if the log has another history; it then reads for
// itself, and calls Forget. Owner contacts are those of the time of the read.
//
// # What goes wrong with caches, and the test of it
//
//	1 readers see different versions as values expire one by one  TimeDecidesNothing
//	2 slow readers lose the version they were sent to             AStragglerReadsTheVersionItFound
//	                                                              AnOldVersionStaysForItsGrace
//	3 counters of versions restart, skip or collide               WhatIsOlderIsRefused
//	                                                              AFlushRestartsNothing
//	4 a lock stays without its holder, and readers queue          ADeadRebuilderIsReplaced
//	                                                              AHungRebuilderIsNotWaitedForLong
//	                                                              AFailedRebuildEndsItsLock
//	                                                              ARebuilderThatLeavesEndsItsLock
//	5 announcements to everybody fill the network                 ANewVersionIsAnnounced
//	6 old versions fill the memory                                TheBudgetHolds
//	                                                              OldVersionsGoFirst
//	7 one lock for much holds up what it need not                 OneHasTheLock
//	                                                              ARebuildHoldsUpNoOtherTile
//	- a rebuilder ends a lock that is another's by now            APutEndsItsOwnLockOnly
//	                                                              ALockEndsWithItsHolder
//	- what was read is stored under the name of another version   AnothersBytesAreAMiss
//	- a version is announced before it can be read                AVersionIsFoundAsItWasStored
//	                                                              AVersionIsExtended
//	- an announcement is lost                                     ALostAnnouncementCostsADelay
//	- a rebuild outlasts its lock and overwrites the next one     ALateRebuilderOverwritesNothing
//	- the server evicts part of a view                            AMissingPartIsAMiss
//	                                                              TestTheServerEvicts
//	- the cache itself is down, or hangs                          AStoreThatIsDownCostsNoTime
//	                                                              AStoreThatHangsCostsABoundedTime
//	                                                              AStoreThatHangsInARebuild
//	- the master fails, and its replica takes over                TestFailover
//	- the relay with the lock has no time to read                 ABusyRelayLeavesTheLock
//	- many small views fill the server before the budget          TestMemoryOfSmallViews
//	- damage, or bytes of another program                         DamageIsAMiss
//	- a forged view at the true position, or at 2^53-1            WhatHasNoTagIsRefused
//	- an index or account that was written by another hand        TestAForgedIndexHeals
//
// The numbered lines are the known pitfalls of versioned caches. The tests are in internal/viewcachetest and run on
// every back end: in memory, on a single Redis and on a cluster. Those whose names begin with Test are in package
// redisviewcache. Of pitfall 5: a reader hears only what it waits for; a relay hears all sixteen groups, at most one
// announcement for each tile and Config.Fresh, and is spared a round trip before it waits. TestRandom of package relay
// has relays share views while all that can happen to tiles and caches happens.
//
// A Cache is safe for concurrent use. Test against NewMemory.
package viewcache
