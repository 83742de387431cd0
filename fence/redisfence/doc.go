// Package redisfence is the fence on Redis 7: a fence.Store whose every write is one Redis function on
// one hash slot.
//
//	client := redis.NewClusterClient(redisfence.Options(addresses...))
//	store, err := redisfence.New(client, nil)
//	err = store.Load(ctx) // on every master; also checks the settings a fence depends on
//	receipt, err := store.Commit(ctx, commit)
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
// succeeds only when so many replicas have it. fence.AllReplicas means those the master lists when the
// commit has been sent, disconnected or declared failed as they may be: such a replica can come back and
// be promoted with what it had. Config.IgnoreFailedReplicas and Config.MinReplicas change that, and say what
// it costs.
//
// # Pipelines
//
// Concurrent calls to one node share pipelines. While one is under way the next gathers; a call that finds
// none under way goes at once, so that a tile alone waits for nothing. Calls that want to be confirmed have a
// pipeline of their own, in which one WAIT confirms a whole set, and each is judged by the number it asked
// for; a replica that is slow holds up none of the others. Each call has its own reply and its own outcome, and
// its caller leaves when its context ends. Snapshots, rebases and large commits go by themselves. Goroutines
// run only while calls gather; there is nothing to close. Hooks of the cluster's client do not see pipelined
// calls, hooks of its nodes (OnNewNode) do.
//
// # Failures
//
// A reply is applied or refused. A call that was not sent, or that a node sent elsewhere or was not ready for,
// is fence.ErrNotApplied: pipelined calls are sent once, and where the node says that another has the slot a
// plain commit follows through the cluster's client, while a confirmed one is presented again by its caller.
// No reply, or any other error (connection lost, context over, memory full), is fence.ErrUnknownOutcome, also
// when the client library has retried by itself: present the same commit again, since the functions recognise
// a batch they have already appended. The cause is there for errors.As and for the tests of the client
// library, such as redis.IsOOMError.
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
