// Package relay holds the WebSockets of clients and keeps what each client sees of its tiles equal to
// what was committed. It follows the tiles through the fan-out (the hot path, every tick, at most once)
// and reads snapshot and stream tail from the coordination store whenever the fan-out was not enough (the
// cold path).
//
//	r, err := relay.New(broker, log, &relay.Config{AuthorizeTile: mayWatch})
//	mux.Handle("/view", r.Handler())
//	err = r.Run(ctx) // until ctx is cancelled
//
// The client protocol is in package relaypb (view.proto); package relayclient speaks it in Go.
//
// # Guarantees
//
// Each frame names the position it follows: epoch, sequence and a hash over the history. The relay, and
// behind it every client, accepts a frame only if that is exactly the position it holds. One comparison
// so detects every gap, repetition, takeover and fork. What a client is given of a tile is therefore
// always one history from a snapshot on, in order, each batch once; and when nothing more is committed
// and the store can be read, every client comes to hold all of it.
//
//   - A superseded owner's frames are dropped: a tile never goes back to a lower epoch.
//   - A client that was shown a higher epoch, by another relay, is sent nothing until this relay has caught up. It
//     is told CODE_STALE, so that it can try another relay.
//   - A gap or fork causes one repair for the tile, however many clients watch it: first a read of what
//     follows, which reaches clients as ordinary frames, then, if that does not connect, snapshot and tail,
//     which reach them as a Sync that replaces their state. A rebase is always repaired from its snapshot.
//   - What no frame reveals is found by comparing each tile with the store every Config.CheckInterval,
//     many tiles in one call.
//   - A new client is served from the tile's cached snapshot and tail: a thousand clients that come at once
//     cause one cold read. Cold reads are limited over all tiles (Config.MaxRepairs), random in time and
//     backed off when they fail, so that a reconnect storm does not reach the store.
//
// # When things fail
//
// The store is down: live frames go on; new clients of tiles the relay knows are served; those of other
// tiles are told CODE_UNAVAILABLE and served when it is back. The fan-out is down: clients see what the
// periodic comparison finds, late but complete. The store answers with less than clients have seen (a
// failover lost the last entries): the view stays, since the living owner appends them again; after
// Config.BehindGrace the store's word is taken. The store is at a lower epoch than clients have seen: it
// is not believed, until a higher one comes. An entry that cannot be read: clients stay before it until a
// snapshot passes it.
//
// A client that reads too slowly does not hold up anybody. Frames that do not fit its queue are dropped
// for it, and when the queue has drained it gets one Sync, of only what it missed if the relay still has
// that. If it never catches up within Config.SlowTimeout it is closed with status 4001. A message that
// breaks the protocol is answered with an Error and status 1008. No message can make the relay panic.
//
// # Concurrency
//
// All methods are safe for concurrent use. Run owns every goroutine: two for each connection, one for
// each repair under way, three more. Frames and Syncs are encoded once for a tile and an encoding, WebSocket
// header included, and shared by all clients; a client with several messages waiting gets them in one
// write. Messages are not compressed. Memory for a tile is its snapshot, a tail bounded by
// Config.TailFrames and TailBytes, and what has been encoded of both.
//
// A relay holds what it may still replay: it marks every watched tile at the sequence of its cached snapshot, under
// its own Config.ID, in one call for many tiles, renews the marks while the tiles are watched, and releases them when
// they are not or the relay stops. One that crashes holds the streams for the lease of the trim. Losing a mark costs
// nothing but a dearer repair: the relay is told by its next mark that the stream went on without it, and reads the
// snapshot again; its clients get what they missed as frames, or a Sync if those are gone.
//
// # Testing against it
//
// Everything runs in one process over memfence, memstream and memfanout; the example does. Publish
// frames, lose some of them, and compare the clients with the store.
package relay
