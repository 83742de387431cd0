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
//	TILEFENCE_SEED=17 go test -run TestProtocolKeepsItsPromises ./internal/robustness/simulation
//	TILEFENCE_SEEDS=20000 go test -timeout 1h -run TestProtocolKeepsItsPromises ./internal/robustness/simulation
//
// The first reruns one seed, the second runs the first 20,000. All delays are drawn from sources that depend on the
// seed, on the waiting party and its purpose, and no two end at the same instant: Go takes the timers of one instant in
// random order. Claims are drawn from the seed too, Go has one processor, and collects no garbage during a run. So a
// seed gives the same run, byte for byte, which a test checks of the first 25. Under the race detector the order of
// all goroutines is random, and with Options.Watched or Options.Paid it is so always: bridges, relays and gateways draw
// their waits from Go's own source.
// TILEFENCE_HISTORY names a directory that takes the history of a failed run.
//
// # Mutants
//
// Options.Mutant takes one rule out of the store or the authority. The tests require that the checks notice
// each within a few seeds, and name the checks that did.
//
// The package is its tests, and those of package check that need a whole history to corrupt.
package simulation
