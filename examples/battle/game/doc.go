// Package game is the little authoritative game of the reference deployment: ships on the cells of one
// tile's ground. It is small on purpose and complete on purpose: everything that a game has to do to
// live under Tilefence is here, and nothing else.
//
//	rules, err := game.NewRules(ground)          // ground is of GroundOf; rules are for a tile.TileProcessor
//
//	view, err := game.NewView(ground)
//	err = view.Restore(snapshot, areas)          // the game's bytes of a snapshot: all areas of the tile, or some
//	err = view.Apply(&fence.Entry{})             // then every entry after it, in order
//	err = view.Open(snapshot, more)              // the player moves, and sees other areas
//	same := view.Digest() == rules.Digest()      // once both have folded the same batches, and view has all areas
//
// # What happens in a tick
//
// Rules.Play plays the phases below, one after the other. Within a phase ships act in an order that
// is drawn anew each tick from the tick and their numbers, so that neither the first to arrive nor the
// lowest number always wins a contested cell.
//
//  1. Destroyed ships whose time has come return at full hull, on a free cell of the area where they were destroyed.
//  2. Spawn: an actor without a ship gets one, on the cell that it names or a free one of the same area.
//  3. Shield: adds ShieldCharge points, up to MaxShield.
//  4. Volley: VolleyDamage points to a ship at most VolleyRange steps away; shields take it first. All
//     volleys of a tick are simultaneous: a ship destroyed in this tick still fires. A ship without hull
//     is destroyed, leaves its cell and returns ReturnTicks later; the attacker scores one.
//  5. Warp: a jump to a free cell of the tile. It is the ship's move for this tick.
//  6. Move: a step to a free adjacent cell, one attempt a ship a tick.
//  7. Sail: a step across the border of the tile.
//  8. Fleet: a flagship calls ships of one or several tiles to another tile.
//
// Before all these, ships that sailed across a border enter the tile, or come back to it.
//
// An area has no more ships, destroyed ones included, than cells, so that there is always one to return to: no ship
// spawns in an area that is full, or moves into it.
//
// Volley, Shield and Warp are cards. Their price is spent in the gateway's durable ledger before the
// tile sees them; the tile never looks at an account and only says whether the card was applied, fizzled
// (out of range, blocked, destroyed, nothing left to charge) or rejected (malformed, no ship of this
// actor, no such cell, a card without an action ID: it cannot have passed the ledger).
//
// # Borders
//
// A ship that sails across a border departs for the neighbouring tile (see tile.TransferRules) and enters it at the
// cell that touches the one it has left, or at another one of that area. If the area or the tile is full, or its owner
// has another ship there, it comes back. The tile keeps a cell for each ship that may. An actor gets one ship in a
// tile, wherever that is later; Census counts the ships of all tiles.
//
// A fleet goes whole or stays (package warp): the tiles hold its ships and keep cells for them until the flagship's
// tile has decided. A ship that is held does nothing, and no volley hits it. What tiles arrange is in an area of its
// own, which clients do not watch.
//
// A ship's name in the world is that of its owner and of the tile where it was born, and its hop counts the tiles that
// it has left. Events and departures carry both, so that clients show it once: see View.Track.
//
// If the tile's time is dilated, watchers learn how long a tick lasts. All that is counted in ticks slows
// down with it.
//
// # Areas
//
// The ground is divided into areas, and so are state, events and snapshot (see tile.Divided): a client is sent what it
// watches. What an area is like follows from its own events. A ship that crosses leaves one area in one event and
// enters the other in a second that tells everything about it; damage is an event of the target's area, and the score
// one of the attacker's. View folds the areas that it holds, and Bot.Viewport is what a player wants to see.
//
// # Bytes
//
// Orders (the bodies of intents), events and snapshots are fixed layouts that a browser reads with a DataView: see
// Order, Event and Rules.Snapshot. A decoder refuses what it
// does not know, what is cut short and what has bytes left over; it allocates nothing that the input
// does not hold.
//
// Rules, View and Bot import no H3: a ground is whatever has cells, neighbours and areas.
package game
