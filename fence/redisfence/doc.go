// Package redisfence is the fence on Redis 7: a fence.Store whose every write is one Redis function on
// one hash slot.
//
//	store, err := redisfence.New(client, nil)
//	err = store.Load(ctx) // on every master; also checks the settings a fence depends on
//	receipt, err := store.Commit(ctx, fence.Commit{…})
//
// The functions are one library, tilefence_v1 (lua/, documented in docs/wire.md). Load puts it on every
// master, never over a newer revision; a master that answers "function not found" (new, failed over,
// flushed) is loaded and asked again, which is safe because nothing ran.
//
// Acknowledgement. Redis replicates asynchronously, and a master that was paused while its replica took
// over answers OK to whatever waits in its socket. A plain success is therefore provisional: the living
// owner can re-append it. A commit with Replicas set is pipelined with WAIT on the connection of the
// key's own master, and succeeds only when so many replicas have it.
//
// Outcomes. A reply is applied or refused. No reply (connection lost, context over, cluster down) is
// fence.ErrUnknownOutcome, also when the client library has retried by itself: present the same commit
// again, since the functions recognise a batch they have already appended.
//
// With a ClusterClient set ClusterOptions.ClusterStateReloadInterval to about 500 ms; with the default
// a failed-over slot is not found for half a minute. A Store is safe for concurrent use.
//
// To test against it, use memfence, which passes the same conformance suite.
package redisfence
