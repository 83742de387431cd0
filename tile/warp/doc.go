// Package warp moves entities of several tiles together: all of them arrive, or none of them leaves. It is a part of
// the game's rules, pure and without I/O, over what tile.TransferRules already promises: a transfer arrives once, in
// order.
//
// One tile leads. Its stream is the record:
//
//	asked    the leader asks each tile that an entity leaves to hold it, and each tile that entities go to for seats
//	voted    each answers yes, and holds, or no
//	decided  all yes: go. A no, or the leader's deadline: stay. Each tile that was asked is told
//	moved    on go the entities depart as any other, and their seats are kept for them; on stay all is let go
//
// No tile decides by a clock of its own, and none forgets: a tile that has voted yes holds until it is told. So it does
// while the leader has no owner, and no longer.
//
// It costs three messages before the entities move, each of which waits for a tick of the tile that it goes to: two
// ticks more than plain departures take on average, three at most where no border is closed. What is held stands still
// meanwhile. Use it where a part is worth nothing without the rest. A fleet of which a ship may come back from a full
// port is better served by plain departures.
//
// State.Tally counts the warps that went and those that were called off, and Whole checks the tallies of all tiles: no
// warp is split.
//
// Rules keep a State beside their own, in their snapshot, and give it a Turn in each Play. A turn's events and
// departures are committed with the rules' own, and State.Apply folds the events: see the example. What survives which
// loss is what survives of any transfer.
package warp
