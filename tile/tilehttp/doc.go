// Package tilehttp carries intents from gateways to the processes that run tiles, over HTTP, and their
// outcomes and errors back; and hand-overs of tiles between those processes.
//
// In the process that runs tiles, whose contact is its host:port:
//
//	mux := http.NewServeMux()
//	mux.Handle(tilehttp.Path, tilehttp.Handler(host)) // a *tilehost.Host, or one *tile.TileProcessor
//	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(host))
//
// and its host hands tiles over by tile.Config{Handover: client.Handover}.
//
// In the gateway:
//
//	client, err := tilehttp.NewClient(nil)
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	gateway, err := admission.NewGateway(ledger, router, client, &admission.GatewayConfig{Price: price})
//
// # Wire
//
// A POST of a JSON object, at most MaxRequest bytes of UTF-8; empty fields may be left out:
//
//	{"v":1,"tile":"85283473fffffff","action":"0b54","actor":"ann","body":"<base64>"}
//
// The answer is {"v":1,"outcome":"applied"} with status 200, or {"v":1,"error":{…}}:
//
//	code         status  error                                 further fields
//	redirect     421     *tile.RedirectError                   tile, and epoch and contact if known
//	unresolved   409     *tile.UnresolvedError                 the same
//	overloaded   429     tile.ErrOverloaded
//	invalid      400     *fence.ArgumentError                  field, value, want
//	unavailable  503     *UnavailableError, outcome unknown
//
// The code decides, the status is for proxies and logs. Other statuses come from elsewhere and mean
// unavailable.
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
// must not be ignored takes another path and version. The handler refuses, as invalid: a body that is too long, not
// UTF-8, or not one JSON object; a field of the wrong type; another version. The intent itself is
// validated once, where it is queued (tile.Intent.Validate); the client and the handler pass it on.
//
// # Failures
//
// Client.Forward returns a Submitter's error as the same type. Any other error is an
// *UnavailableError. It matches fence.ErrNotApplied if no connection could be made, so that nothing was
// sent, and fence.ErrUnknownOutcome otherwise: then the intent may have been resolved. The client never
// repeats a request by itself.
//
// # Trust
//
// The handlers trust what they receive: the actor of an intent, and that a hand-over comes from the tile's owner.
// Only gateways may reach the first and only processes that run tiles the second; both belong on an internal port.
// The worst that a false hand-over can do is move a tile; it cannot fork it. For mutual
// TLS give the server its certificates, the client a Transport, and both an https URL.
//
// # Concurrency and testing
//
// Client and Handler are safe for concurrent use. Each intent waits for its tick on a connection of its
// own, which is kept for the next one; a Transport with unencrypted HTTP/2 shares them instead. To test
// against the package, serve a Handler over a Submitter of one function (SubmitterFunc) with httptest.
package tilehttp
