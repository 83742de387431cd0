// Package tiletest tests a game's tile.Rules. Run checks in one call what every game has to promise; Cluster kills
// owners and takes tiles over in a few lines.
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
// A failure says what failed, at which tick and intents, where the states differ first, what to look for, and how to
// run it again. It does not test that the game is the one that you meant, nor whatever no random intent leads to: a
// generator that reaches every kind of intent is worth the effort. Of an area whose events read another area it knows
// only if both change in one tick. Rules that ask the time or chance in Resolve are fine: what was decided is in the
// events.
package tiletest
