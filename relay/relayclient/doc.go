// Package relayclient watches tiles through a relay: a client of the protocol in relay/view.proto, for
// bots, tools, tests, and game clients written in Go.
//
//	c, err := relayclient.Dial(ctx, "wss://relay.example.com/view", &relayclient.Config{
//		Sync: func(s relayclient.Sync) { world.Restore(s.Tile, s.Snapshot.Blob) },
//		Frame: func(e fence.Entry) {
//			if batch, err := stream.DecodeBatch(&e); err == nil {
//				world.Apply(e.Tile, batch.Events)
//			}
//		},
//		Reconnect: true,
//	})
//	err = c.Subscribe(ctx, tiles...)
//
// Tiles are subscribed and left at any time. A client that draws several of them, or goes with its player from one to
// the other, has them put together by Crossings.
//
// # Guarantees
//
// For each tile Config.Sync is called first, then Config.Frame for one batch after another, each
// following exactly what was given before: the client compares positions itself and does not trust the
// relay with it. Nothing is given of a lower epoch than was given before: a relay that is cut off from the store
// is reported to Config.Stale and asked again, or left for another one. A batch that does not follow is not given; the
// client asks the relay for a Sync and goes on from there. Snapshots are compared with their checksums and batches with
// their chain.
//
// # When things fail
//
// Without Reconnect a lost connection ends the client: Done is closed and Err says why. With it, the
// client connects again with random, growing delays and names the positions it holds, so that it is sent
// what it missed; if the relay has that no more, or it is another relay, Config.Sync is called again. A
// connection on which neither a message nor a ping comes counts as lost (ErrSilent) after two and a half of the
// intervals that the relay names in its Heartbeats: 25 s by default, one minute before the first, and 30 s before the
// first message.
//
// # Concurrency
//
// A client is one goroutine and one connection: thousands fit in a process. The functions of Config are
// called one at a time from that goroutine; while one runs nothing is read, and a client that falls
// behind by it is brought up to date by the relay. Methods are safe for concurrent use, also from those
// functions, except Close, which waits for them.
//
// To test code that uses it, run a relay over the in-process back ends, as the example does.
package relayclient
