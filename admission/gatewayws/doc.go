// Package gatewayws serves a gateway to clients over WebSockets: they send intents and get one answer for each.
//
//	handler, err := gatewayws.New(gateway, authenticate, &gatewayws.Config{Origins: []string{"play.example.com"}})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/play", handler)
//
//	handler.Drain(ctx) // before the process ends: finish the intents under way, then close the connections
//
// A client written in Go dials it. One connection carries many intents at a time:
//
//	client, err := gatewayws.Dial(ctx, "wss://play.example.com/play", &gatewayws.DialConfig{Header: credentials})
//	answer, err := client.Do(ctx, gatewayws.Request{Tile: id, Kind: admission.Move, Body: body})
//
// # Wire
//
// The subprotocol tilefence.intent.v1.json, which clients must ask for. Each text message is one JSON object
// in UTF-8. From the client; id is its own, any text of 1 to 64 bytes, and comes back with the answer:
//
//	{"id":"7","tile":"85283473fffffff","kind":"move","body":"<base64>"}
//	{"id":"7","tile":"85283473fffffff","kind":"move","move":"m-17","body":"<base64>"}
//	{"id":"8","tile":"85283473fffffff","kind":"act","action":"0b54…","asset":"card:fireball","cost":1,"body":"<base64>"}
//	{"id":"9","kind":"ask","action":"0b54…"}
//	{"id":"10","kind":"refresh","token":"…"}
//	{"id":"11","kind":"where"}
//
// move, which most movements do without, makes one happen once: see tile.Intent.MoveID. A movement may have
// "within":800 besides: for how many milliseconds the client needs its answer. One that has not begun by then is not
// sent to its tile. action is the idempotency key: a new random one for each action, the same one for each retry of
// it. The kind ask reads the outcome of an action without sending it again, refresh gives the connection a new token,
// where asks in which tile the actor is; a move without a tile goes there, and its answer says where, too. To the
// client, in whatever order the answers come:
//
//	{"id":"","session":{"expires_in":600000}}
//	{"id":"10","session":{"expires_in":600000}}
//	{"id":"7","outcome":"applied"}
//	{"id":"7","outcome":"fizzled","why":"the door is locked"}
//	{"id":"8","outcome":"rejected","admission":"6f0c…","reason":"balance","at":1785585600123}
//	{"id":"9","outcome":"redirected","admission":"6f0c…","refunded":true,"at":1785585600123}
//	{"id":"8","error":{"code":"pending","message":"…","retryable":true}}
//	{"id":"11","where":{"tile":"85283473fffffff"}}
//	{"id":"","message":"<base64>"}
//
// A tile is a hint: another may have the actor by now. Without one it is not known. A message is the game's word to
// the player, at most 8 KiB; it is sent at most once.
//
// An answer, and an error, has "crossed":{"to":"85283083fffffff","entity":"ann"} besides if the actor has left the tile
// for another one: later intents belong there. A movement that came too late was sent there by the gateway; an action
// is redirected, with its cost given back, and another one may be sent.
//
// session says how long the connection lasts, in milliseconds: first of all if it does not last for ever, and as the
// answer to refresh; nothing in it: for ever. After that time the connection is closed with status 4003; one that the
// game ends (Handler.EndActor, EndTile) with 4004.
//
// why is what the game's rules say about the outcome (tile.Result), to this client alone, and once. An outcome is
// final: every retry and every ask gets the same one, with the same fields but for why, for admission.MinRetention
// (24 h) at least. at is when the ledger recorded it, in milliseconds since 1970. An error that is retryable means:
// send the same frame again, with the same action, after retry_after milliseconds if that is there. After an overloaded
// with retry_after the client sends no other movement either for that time, and for a random part of it, so that not
// all come back at once.
//
//	code         retryable  meaning
//	malformed    no         no frame of this protocol; id is empty if it could not be read
//	invalid      no         a field is missing or out of bounds
//	refused      no         the game refused it
//	reused       no         the action belongs to another request
//	expired      no         the action is admitted, but too old to be sent to its tile again
//	unknown      no         no such action of this actor was admitted, as far as its outcomes are kept
//	pending      yes        the action is admitted, and its outcome not yet known
//	limited      yes        above the actor's rate
//	busy         yes        too many intents under way on this connection
//	overloaded   yes        the gateway or the tile has too many intents, or must find an owner first and many tiles do
//	crossed      no         the actor has left the tile; send the intent where it went
//	quarantined  yes        the tile does not run until an operator has repaired it; an action may be admitted already
//	unavailable  yes        the tile or the ledger could not be reached
//	draining     yes        this gateway is going away; connect again
//	internal     yes        anything else
//
// # Evolution
//
// Both sides ignore fields that they do not know, so that a release may add one while an upgrade rolls; clients ignore
// codes that they do not know too, and go by retryable. A gateway of an earlier release answers to ask, to refresh, and
// to where, that the message is malformed; then send the action again, or connect again. A field that must not be
// ignored takes another subprotocol. The handler refuses, as malformed: a message that is binary, or not one JSON
// object; a field of the wrong type; an id or a kind that is missing or unknown. Text that is not UTF-8 ends the
// connection with status 1007. The gateway refuses, as invalid, what is out of bounds.
//
// # Guarantees and failures
//
// Each frame that could be read gets exactly one answer, unless the connection ends first. Then the client
// connects again and repeats its actions, which is safe, and the movements that it still wants. Intents
// under way when the connection ends are finished, so that their outcomes are there for the retry. A
// client that does not read or does not answer pings is disconnected. A message over 16 KiB ends the connection
// with status 1009.
//
// # Trust
//
// The actor of every intent is the one that the authentication named for the connection; a frame cannot name one. The
// game's functions behind the gateway find the whole identity with session.FromContext. Nobody is authenticated before
// the request is known to be a handshake of an allowed origin; what lasts is done by Config.Enter, after the
// handshake. Browsers send cookies to any site's WebSockets, so requests from other origins than the server's own are
// refused unless Config.Origins allows them. Limits are per connection, address and actor here (Config.Sessions), and
// per actor in the gateway.
//
// # Concurrency and testing
//
// Handler and Client are safe for concurrent use. A client of a Handler has one goroutine, that reads; a movement that
// waits for its tile has none, and answers that come together go out in one write. To test against the package, serve a
// Handler over a fake Admitter, three methods, with httptest.
package gatewayws
