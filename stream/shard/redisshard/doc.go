// Package redisshard keeps the book of who holds which shard on Redis 7.
//
//	client := redis.NewClusterClient(redisfanout.Options("10.0.0.1:6379", "10.0.0.2:6379"))
//	leases, err := redisshard.New(client)
//	share, err := shard.NewShare(leases, "bridge", ranges, lister, target, nil)
//
// A group's book is one hash, {tilefence:shards:<group>}, which one script reads and writes whole, by the
// clock of the node that has it; docs/wire.md describes it. A heartbeat is one round trip. Its work grows
// with the shards and holders of the group, which are at most 256 each.
//
// # Which Redis
//
// Any; bridges have the fan-out cluster at hand, to which they write anyway, and so the coordination
// cluster does not even have them as writers. The book need not survive: if a failover sets it back, or
// it is lost altogether, the members tell it what they hold. It is removed a week after the last
// heartbeat.
//
// # Failure
//
// What cannot be asked is a *fence.StoreError; shard.Member then keeps what it has. A book that cannot be
// read is left as it is, and every Sync fails: remove the key, and the members write it anew.
//
// # Rights
//
// A user needs evalsha and eval on the key pattern {tilefence:shards:*}, and the commands time, hgetall,
// hset, hdel and pexpire, with which the script runs. See deploy/acl.
//
// # Testing
//
// Test against memshard, which passes the same conformance suite, shardtest.
package redisshard
