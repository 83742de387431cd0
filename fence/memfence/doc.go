// Package memfence is the fence in one process: the coordination store and the epoch authority in plain
// Go, for tests, local development and the one-command example.
//
// It is also the executable specification. What the Redis functions must answer is what State answers;
// both pass fencetest, and random calls against both must give the same replies. State itself does no
// locking, no I/O and asks no clock, so a model checker can run histories through it.
//
//	store := memfence.New()
//	authority := memfence.NewAuthority()
//
// Nothing survives the process. A Store and an Authority are safe for concurrent use.
package memfence
