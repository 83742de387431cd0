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
// what waits in its socket. A plain success is therefore provisional: while the owner lives it can re-append
// the batch. A commit with Replicas set is pipelined with WAIT on the connection of the key's own master, and
// succeeds only when so many replicas have it. fence.AllReplicas means those the master lists when the
// commit has been sent, and at least one. Replicas that are disconnected or declared failed count too: such a
// replica can come back and be promoted with what it had. Config.MinReplicas, AllowNoReplicas and
// IgnoreFailedReplicas change that, and say what it costs.
//
// # Pipelines
//
// Concurrent calls to one node share pipelines. While one is under way the next gathers; a call that finds none
// under way goes at once. Calls that replicas are to confirm have a pipeline of their own, in which one WAIT
// confirms a whole set and each call is judged by the number it asked for; a slow replica does not delay the
// others. Each call has its own reply and its own outcome, and returns when its context ends; one that found no other
// under way returns at its context's deadline, or with its reply. Snapshots, rebases and large commits go by
// themselves. Goroutines run only while calls gather; there is nothing to close. Hooks of the cluster's client do not
// see pipelined calls, hooks of its nodes (OnNewNode) do.
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
// Options has those of the client. On every node, replicas included, set maxmemory-policy noeviction and
// appendonly yes; Load checks the masters. A supervisor must not restart a master without an append-only file
// before one of its replicas was promoted: it would come back empty, and its replicas with it. A Store is safe for
// concurrent use.
//
// To test against it, use memfence, which passes the same conformance suite.
package redisfence
