// Package simulation runs the real tile.TileProcessor over a simulated coordination store and a simulated
// authority, injects faults into both at random, records every call and observation, and checks the record with
// package check. Under testing/synctest a minute of faults takes some 20 ms.
//
// # What is simulated
//
// Three nodes hold a memfence.State of every tile. The master answers before its replicas know; they follow
// with a lag, or not at all. A failover promotes either replica with whatever it has. The old master may be
// dead, asleep (and, when it wakes, first do what waits in its sockets and then answer until it learns), or
// cut off but reachable by some clients. Tiles have all durability classes by turns; the journal of those that write
// through is a store that loses nothing. Requests are lost, delayed by seconds and delivered all the same,
// and applied without an answer. Owner hashes expire and are deleted. Claimants take over, are paused, killed
// and drained, and hand over; the authority is unreachable and, with Options.Restores, restored to an older state.
// With Options.Watched, two bridges, two relays, a checkpointer and three watchers are at work too, the real ones, over
// a fan-out that loses messages and connections in memory; they are killed, paused, and cut off from each other.
// With Options.Paid, players pay for actions through two gateways with a ledger. They hear of owners by gossip, late or
// never; they are killed, paused, and parted from all stores but a master that has been replaced.
// With Options.Loses, every copy of what owners have committed is lost while they sleep.
// A function flush is not simulated: it changes nothing, since a missing function never runs.
//
// # Seeds
//
//	make simulation SEED=17 RUN=TestProtocolKeepsItsPromises
//	make simulation SEEDS=20000 RUN=TestProtocolKeepsItsPromises
//
// The first reruns one seed, the second runs the first 20,000. All delays and faults are drawn from sources that depend
// on the seed, on the waiting party and its purpose. What Go itself draws, and the order of goroutines, is a function
// of the seed as well, in test programs that are built with package seeded, as make simulation does: a seed gives the
// same run there, byte for byte, whatever the options are, and a test compares. go test alone runs the same seeds, in
// which Go decides who is first.
// TILEFENCE_HISTORY names a directory that takes the history of a failed run.
//
// # Mutants
//
// Options.Mutant takes one rule out of the store or the authority. The tests require that the checks notice
// each within a few seeds, and name the checks that did.
//
// The package is its tests, and those of package check that need a whole history to corrupt.
package simulation
