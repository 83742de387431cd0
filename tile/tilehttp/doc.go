// Package tilehttp carries intents from gateways to the processes that run tiles, over HTTP, and their
// outcomes and errors back.
//
// In the process that runs tiles, whose contact is its host:port:
//
//	mux := http.NewServeMux()
//	mux.Handle(tilehttp.Path, tilehttp.Handler(processor)) // or anything with Submit that runs several
//
// In the gateway:
//
//	client, err := tilehttp.NewClient(nil)
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	gateway, err := admission.NewGateway(ledger, router, client, nil)
//
// # Wire
//
// A POST of a JSON object, at most MaxRequest bytes of UTF-8; empty fields may be left out, unknown ones are
// refused:
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
// unavailable. A major change of this format takes another path and version.
//
// # Failures
//
// What a Submitter says comes out of Client.Forward as the same typed error. Everything else is an
// *UnavailableError. It matches fence.ErrNotApplied if no connection could be made, so that nothing was
// sent, and fence.ErrUnknownOutcome otherwise: then the intent may have been resolved. The client never
// repeats a request by itself.
//
// # Trust
//
// The handler believes what it is sent, the actor above all: let nobody but gateways reach it. For mutual
// TLS give the server its certificates, the client a Transport, and both an https URL.
//
// # Concurrency and testing
//
// Client and Handler are safe for concurrent use. Each intent waits for its tick on a connection of its
// own, which is kept for the next one; a Transport with unencrypted HTTP/2 shares them instead. To test
// against the package, serve a Handler over a Submitter of one function (SubmitterFunc) with httptest.
package tilehttp
