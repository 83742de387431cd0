// Package tiletest tests a game's tile.Rules. Run checks in one call what every game has to promise, and Cross what one
// has to promise whose entities travel; Cluster kills owners and takes tiles over in a few lines.
//
//	func TestRules(t *testing.T) { tiletest.Run(t, newGame, randomIntent, nil) }
//
// Run plays random ticks, first on the rules alone and then on a Cluster, in the virtual time of testing/synctest. It
// fails at the first of these that does not hold:
//
//   - Resolve leaves the state as it is: Snapshot gives the same bytes before and after.
//   - Resolve returns as many outcomes as it is given intents, each one of the four.
//   - Apply accepts what Resolve returns, and leaves the bytes of the events as they are.
//   - Equal states give equal bytes: Snapshot, called again later, gives the same bytes.
//   - Restore of what Snapshot wrote gives the same state, in new rules and in rules that held another state.
//   - Rules that only Apply, from nothing or from a snapshot, reach the owner's state, whatever the time is then.
//   - That holds across ticks that are decided and never committed, and across owners that are killed and replaced.
//   - Two rules of one constructor share nothing.
//   - Of tile.Divided rules: the part of an area changes only by events of that area and of area 0, and those suffice.
//   - Batches, events and snapshots fit into the product's limits, or those of Config.
//
// # Entities that travel
//
//	func TestCrossing(t *testing.T) { tiletest.Cross(t, newGame, randomIntent, names, nil) }
//
// Cross plays tiles between which entities travel (tile.TransferRules): first the rules alone, then each tile on hosts.
// The census names the entities that the rules of a tile hold. Beside what Run checks, it fails at the first of these
// that does not hold:
//
//   - An entity is in one tile, or under way, and not in two of them.
//   - What departs is not in the tile any more; what has arrived, or come back, is; what was refused is not.
//   - No more depart than Inputs.Room allows, and no verdict is about nothing.
//   - What rules see of other tiles (tile.Sighted) is as Play found it. On the hosts they see nothing.
//
// Arrivals, returns and room are random: a return may come after others have asked for its place, and a border may be
// closed. On the hosts, an owner is killed before and after each kind of commit of a crossing (the departure, the
// arrival, the refusal, the settlement), and messages are lost, lose their answer, and are repeated, until each step
// has met each fault. Then nothing may be under way, no entity in two tiles, and, in a game whose entities do not end,
// none in no tile.
//
// # What was reached
//
// With -v, Run and Cross say how often each kind of event came up (the word that it begins with), each outcome and its
// reason, each end of a transfer, and each fault. What is not there was not tested: improve the generator.
//
// # Failures
//
// A failure says what failed, at which tick and intents, where the states differ first, what to look for, and how to
// run it again. It does not test that the game is the one that you meant, nor whatever no random intent leads to: a
// generator that reaches every kind of intent is worth the effort. Of an area whose events read another area it knows
// only if both change in one tick. Rules that ask the time or chance in Resolve are fine: what was decided is in the
// events.
package tiletest
