// Package tilehttp carries intents from gateways to the processes that run tiles, and their outcomes and errors back,
// over one connection for each pair of them; and hand-overs of tiles between those processes.
//
// In the process that runs tiles, whose contact is its host:port:
//
//	intents, err := tilehttp.NewHandler(host, nil) // a *tilehost.Host, or one *tile.TileProcessor
//	if err != nil {
//		return err
//	}
//	mux := http.NewServeMux()
//	mux.Handle(tilehttp.Path, intents)
//	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(host, nil))
//
//	intents.Drain(ctx) // before the process ends: answer what gateways have sent
//
// and its host hands tiles over by tile.Seams{Handover: client.Handover}.
//
// In the gateway:
//
//	client, err := tilehttp.NewClient(nil)
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	gateway, err := admission.NewGateway(ledger, router, client, price, nil)
//
// # Wire
//
// A WebSocket with the subprotocol tilefence.forward.v1.json, which the gateway opens. Each message is a text of at
// most 256 KiB: one JSON object in UTF-8. Empty fields may be left out. The gateway sends intents, whose id is
// its own, any number but 0 that no other intent under way has:
//
//	{"v":1,"intents":[{"id":7,"within":2950,"tile":"85283473fffffff","action":"0b54","actor":"ann","body":"<base64>"}]}
//
// within is after how many milliseconds the gateway gives up; the tile server then does too, if it could not queue the
// intent at its tile. Without it, an intent waits as long as the connection lasts. The tile server answers each intent
// once, in whatever order:
//
//	{"v":1,"answers":[{"id":7,"outcome":"applied"},{"id":8,"error":{"code":"overloaded"}}]}
//
// An answer has "crossed":{"to":"85283083fffffff","entity":"ann"} beside that if the intent's actor has left the tile.
//
// An error has a code, a message for people, and what its code needs:
//
//	code         status  error                                 further fields
//	redirect     421     *tile.RedirectError                   tile, and epoch and contact if known
//	unresolved   409     *tile.UnresolvedError                 the same
//	overloaded   429     tile.ErrOverloaded
//	quarantined  503     *tile.QuarantinedError, without why
//	crossed      421     *tile.CrossedError                    crossed, beside the error
//	invalid      400     *fence.ArgumentError                  field, value, want
//	unavailable  503     *UnavailableError, outcome unknown
//
// Before it goes away, a tile server sends {"v":1,"drain":true}. The gateway sends no more intents on the connection,
// and closes it with the last answer. Both sides ping, and close a connection whose peer gives no sign of life.
//
// A hand-over is a POST to HandoverPath, answered when the successor serves the tile with {"v":1,"serving":true}:
//
//	{"v":1,"tile":"85283473fffffff","epoch":7,"position":"7/120/9f86d081884c7d65","from":"a:7000","to":"b:7000"}
//
// or with an error as above, redirect meaning that the tile has moved on from the giver, or
//
//	lost         409     *fence.LostError                      tile, epoch and contact of the holder
//	ending       503     tile.ErrHostEnded
//
// # Evolution
//
// Both sides ignore fields that they do not know, so that a release may add one while an upgrade rolls. A field that
// must not be ignored takes another subprotocol, or path, and version. An intent that cannot be read is answered
// with the code invalid: a field of the wrong type, a tile that is none. A message that is nothing of this protocol
// (binary, not UTF-8, not one JSON object, another version, an intent without an id) is answered with
// {"v":1,"error":{"code":"invalid","field":…,"want":…}}, and the connection closed with status 1008; one that is too
// long closes it with status 1009. The intent itself is validated once, where it is queued (tile.Intent.Validate).
//
// # Batches and bounds
//
// Intents that come within about five milliseconds share a message, and so do the outcomes of a tick. The first intent
// after a pause is sent at once. On each connection:
//
//   - A gateway has at most 16,384 intents under way, and 4 MiB of them unwritten. More are refused with
//     tile.ErrOverloaded.
//   - A tile server runs at most 16,384 intents, and refuses more with the same error. A gateway that sends on without
//     reading the refusals is read no further.
//   - A connection is made within 2 s. A peer that does not take a message within 5 s, or answer a ping within 3 s, is
//     disconnected.
//
// # Failures
//
// Client.Forward returns, and Client.Start hands on, a Submitter's error as the same type. Any other error is an
// *UnavailableError, which says what may have become of the intent:
//
//	what happened                                            outcome
//	no connection could be made, or the client was closed    fence.ErrNotApplied
//	the connection or ctx ended before the intent was part   fence.ErrNotApplied
//	  of a message
//	either ended after that                                  fence.ErrUnknownOutcome
//	the answer cannot be understood                          fence.ErrUnknownOutcome
//
// The client never repeats an intent by itself. It makes a connection again with the next intent; after an attempt
// that failed, intents fail at once for 50 ms, doubling to 1 s.
//
// # Trust
//
// The handlers trust what they receive: the actor of an intent, and that a hand-over comes from the tile's owner.
// Only gateways may reach the first and only processes that run tiles the second; both belong on an internal port.
// The worst that a false hand-over can do is move a tile; it cannot fork it. For mutual
// TLS give the server its certificates, and the client its own in Config.TLS.
//
// # Concurrency and testing
//
// Client and Handler are safe for concurrent use. A client has four goroutines for each connection and none for an
// intent of Client.Start; a handler has three for each connection, and one for each intent under way that
// HandlerConfig.Queue does not take. To test against the package, serve a Handler over a Submitter of one function
// (SubmitterFunc) with httptest.
package tilehttp
