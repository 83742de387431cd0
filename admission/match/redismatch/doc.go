// Package redismatch keeps tickets and seats on Redis 7 Cluster, for package match.
//
//	client := redis.NewClusterClient(redisfence.Options("10.0.0.1:6379", "10.0.0.2:6379"))
//	store, err := redismatch.New(client, nil)
//	if err := store.Load(ctx); err != nil { // puts the function library on every master
//		return err
//	}
//	seats, err := match.NewSeatAllocator(store, "eu", 0)
//	lobby, err := match.NewLobby(store, match.Queue{Name: "ranked-eu", Max: 2})
//
// All keys of a shard begin with {match:<queue>/<n>} and those of a pool with {seats:<pool>}, so each is in one slot,
// and every step is one function on one node, by that node's clock. The sources of the functions (lua) list the keys.
//
// # Failures
//
// A call that fails, or that a node refuses because the slot has moved or the cluster has failed over, is repeated for
// up to Config.Retry; all calls may be repeated. After that it is a *fence.StoreError.
//
// Redis replicates after it answers. So that a failover does not lose what a caller was told, calls that create
// or move tickets and seats wait until Config.Replicas replicas have them (WAIT), 1 by default. A call that was
// not confirmed is a *fence.StoreError with an unknown outcome, and may be repeated. What a failover forgets all the
// same is not half a change: a ticket waits again, or is claimed again under a new epoch, which is above all
// epochs that were given before (as long as clocks of nodes differ by less than a failover takes).
//
// Keys of ended tickets and matches go away after match.Kept. The servers must not evict keys (maxmemory-policy
// noeviction). deploy/acl/coordination.acl has the ACL users: tilefence-matchmaker for workers, lobbies and
// supervisors, tilefence-usher for tiles (Offer, Withdraw, Take, Free), tilefence-matchviewer for tools that only read.
package redismatch
