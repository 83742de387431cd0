// Package spectator is the page on which a person watches the battle, and breaks it: the tiles with
// their ships, who owns each and under which epoch, the latency from commit to this very page, and a
// button that takes a tile away from its owner.
//
//	world, err := spectator.NewWorld("/view", 500*time.Millisecond, tiles...)
//	mux.Handle("/", spectator.Handler(world, api))
//	mux.Handle("/view", relay) // or a relay elsewhere: give its ws:// URL instead of "/view"
//
// # What it serves
//
//	GET  /                       the page
//	GET  /assets/…               its style, scripts and icon: embedded, nothing from any other host
//	GET  /relay/…                relay/relayjs, the client that the page uses
//	GET  /api/world              World: geometry, the relay's address, the tick
//	GET  /api/status?after=ID    Report: statuspoller.Status as it is now, and the events after ID (all, without it)
//	POST /api/takeover?tile=ID   asks API.TakeOver; 202 when it has begun
//
// If Status has a Lobby, the page shows it, and its button asks for a match at /lobby/ of the page's own host, which
// this package does not serve.
//
// An error is plain text for a person. A POST that comes from a page of another origin is refused.
//
// # Where the picture comes from
//
// The page is a client like any other: it subscribes to the relay (JSON subprotocol), restores each tile
// from the snapshot, folds the batches, applies only what follows the position it holds and asks for a
// Sync otherwise. What it draws is its own state, not the server's word. Status is the server's word, and
// stands beside it: where TileStatus names a digest, the page compares it with that of its own state, if it
// holds the whole tile.
//
// By default it watches all of every tile. Follow a player, and it shows which areas that player's client
// watches, and what they weigh beside the whole tile; in the player's view it watches those areas and
// nothing else, and opens others as the player moves.
//
// The latency "this page" shows is the time at which a frame arrived less the time at which the store
// committed it. The page estimates how far its clock is from the server's (Status.At, halved round trip);
// it assumes that the server's clock is the store's.
//
// The handler keeps no state of its own and is safe for concurrent use. To test against it, serve it with
// net/http/httptest and an API of canned answers.
package spectator
