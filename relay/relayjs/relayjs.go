// Package relayjs is the browser's client of relays and gateways: ES modules without dependencies, laid out as an npm
// package, and embedded here so that a Go server can serve them to its page.
//
//	mux.Handle("/relay/", http.StripPrefix("/relay/", http.FileServerFS(relayjs.Files)))
//
// The page then imports it:
//
//	import { Client, events } from "/relay/client.js";
//
//	const client = new Client("wss://game.example/view", ["85283083fffffff"], {
//	  restore: (tile, blob) => world.restore(tile, blob),
//	  apply: (tile, frame) => { for (const [, event] of events(frame.payload)) world.apply(tile, event); },
//	});
//	client.connect();
//
// # What it does
//
// Client keeps the rules of docs/wire.md for clients of a relay: it applies only what follows the position it holds,
// asks for what is missing, shows nothing of an epoch below the highest it has held, asks a relay that is behind again
// and then leaves it, and after a lost connection is sent only what it missed. It joins and leaves tiles at any time,
// with join and leave, and watches some areas of a tile with watch. It speaks the subprotocol tilefence.view.v1.json.
//
// It does not interpret snapshots and events, which are the game's, and does not check the chain of frames: a position
// carries the chain, and the relay is trusted to send what it read. The states of a tile: not synced, synced, broken
// (a Resync is under way), waiting (the relay is behind).
//
// Gateway, of gateway.js, sends a player's intents: it sends an action again, under its ID, after a lost connection and
// after an error that is retryable, and a movement once.
//
// # Testing
//
// The conformance kit (clients/conformance) plays a relay and a gateway to both. client.test.js runs under node's own
// test runner, and a test with the build tag browser runs the client in Chromium against a relay that is restarted.
package relayjs

import "embed"

// Files are client.js and messages.js, which client.js imports from beside itself, crossings.js, which puts the views
// of several tiles together so that what crosses is drawn once, gateway.js, which sends intents, silence.js, which
// closes a WebSocket of any kind on which nothing comes, and package.json.
//
//go:embed client.js crossings.js gateway.js messages.js silence.js package.json
var Files embed.FS
