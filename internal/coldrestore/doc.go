// Package coldrestore tests what is left when coordination is lost: with the owner, with the master alone, or the
// whole cluster at once. Each durability class is compared with what it promises. The actors are the real ones,
// from the tile to the client at the far end of a relay.
package coldrestore
