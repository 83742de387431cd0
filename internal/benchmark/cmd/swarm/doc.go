//go:build linux

// Command swarm plays thousands of players of the battle in one process, for a fraction of what as many ordinary
// clients would take: the benchmark that starts it shares its processors with the servers that it measures.
//
// A player of the swarm has its own WebSocket to the relay and its own to the gateway, watches the area of its ship and
// those around it, changes them as it moves, and gives orders one at a time, as an ordinary bot of examples/battle
// does. It checks that each frame follows the position it holds, asks for a Sync if one does not, and must hold its
// owner's position in the end. It saves what cannot be told from outside: one loop serves all sockets, and the brains
// look at one picture of each tile for all players, which an ordinary client of the relay keeps. What the players
// themselves are sent is not folded. Ordinary bots beside the swarm fold all of theirs and compare it with the owners:
// they show that the bytes are right.
//
// It speaks the protocol of the headline's actors: each line "cut" on standard input is answered with figures, SIGTERM
// ends the play, and the report comes last. A connection that is lost is not made again; it is an error.
package main
