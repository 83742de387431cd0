// Package redisfence is the fence on Redis 7: a fence.Store whose every write is one Redis function on
// one hash slot.
//
//	client := redis.NewClusterClient(redisfence.Options(addresses...))
//	store, err := redisfence.New(client, nil)
//	err = store.Load(ctx) // on every master; also checks the settings a fence depends on
//	receipt, err := store.Commit(ctx, fence.Commit{…})
//
// The functions are one library, tilefence_v1 (lua/, documented in docs/wire.md). Load puts it on every
// master, never over a newer revision, and refuses one that was changed by hand. A master that answers
// "function not found" (new, failed over, flushed) is loaded and asked again, which is as safe as any
// other repetition.
//
// # Acknowledgement
//
// Redis replicates asynchronously, and a master that was paused while its replica took over answers OK to
// whatever waits in its socket. A plain success is therefore provisional: the living owner can re-append
// it. A commit with Replicas set is pipelined with WAIT on the connection of the key's own master, and
// succeeds only when so many replicas have it. fence.AllReplicas asks the master each time which replicas
// it has, and counts those that are disconnected but not declared failed; Config.MinReplicas keeps it from
// ever meaning none.
//
// # Failures
//
// A reply is applied or refused. No reply (connection lost, context over, cluster down, memory full) is
// fence.ErrUnknownOutcome, also when the client library has retried by itself: present the same commit
// again, since the functions recognise a batch they have already appended. The cause is there for
// errors.As and for the tests of the client library, such as redis.IsOOMError.
//
// While a slot moves to another node a tile can be written as long as all its keys are on one side. In
// between, for the time it takes to move the rest of them, commits fail with ErrUnknownOutcome and nothing
// is written. A tile that has never had a snapshot lacks one of the keys, and waits until the slot has moved.
//
// # Settings
//
// Options has those of the client. On every node, replicas included, maxmemory-policy must be noeviction;
// Load checks the masters. A Store is safe for concurrent use.
//
// To test against it, use memfence, which passes the same conformance suite.
package redisfence
