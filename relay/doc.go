// Package relay holds the WebSockets of clients and keeps what each client sees of its tiles equal to
// what was committed. It follows the tiles through the fan-out (the hot path, every tick, at most once)
// and reads snapshot and stream tail from the coordination store when the fan-out was not enough (the
// cold path).
//
//	r, err := relay.New(broker, log, mayWatch, nil)
//	mux.Handle("/view", r.Handler())
//	err = r.Run(ctx) // until ctx is cancelled, or r.Drain has ended
//
// The client protocol is in view.proto, with golden messages in testdata; package relayclient speaks it in Go.
//
// # Guarantees
//
// Each frame names its previous position: epoch, sequence and a hash over the history. The relay, and
// every client behind it, accepts a frame only if it holds exactly that position. This one comparison
// detects every gap, repetition, takeover and fork. What a client is given of a tile is therefore
// always one history from a snapshot on, in order, each batch once. When nothing more is committed
// and the store can be read, every client comes to hold all of it.
//
//   - The relay drops frames of a superseded owner: a tile never regresses to a lower epoch.
//   - A client that was shown a higher epoch, by another relay, is sent nothing until this relay has caught up. It
//     gets CODE_STALE, so that it can try another relay. So does one that was shown more of the same epoch, while the
//     store cannot be read. It is sent back only if the store, read after it came, has less.
//   - A frame of a higher epoch than the relay has read from the store is a claim: it is held until one read of the
//     tile's stream has confirmed it, or dropped and reported (Stats, and the log). Ordinary frames cost no read.
//   - A gap or fork causes one repair for the tile, however many clients watch it. The repair first reads what
//     follows, which reaches clients as ordinary frames. If that does not connect, it reads snapshot and tail,
//     which reach clients as a Sync that replaces their state. A rebase is always repaired from its snapshot.
//   - The relay compares each tile with the store every Config.CheckInterval, many tiles in one call, and so finds
//     what no frame reveals.
//   - A new client is served from the tile's cached snapshot and tail: a thousand clients that come at once
//     cause one cold read. With Config.Views, the relays of a deployment share it (package viewcache). Cold reads are
//     limited over all tiles (Limits.MaxRepairs), start at random moments and back off when they fail, so that a
//     reconnect storm does not reach the store.
//
// # Areas
//
// A client may watch some areas of a tile (fence.Area). The relay takes a batch apart once, and makes the message for
// each set of areas once for all clients that watch it; it knows nothing of what areas mean. A client that changes its
// areas is given the new ones at the position it has reached, from the cached snapshot and tail. When these tails add
// up to more than a few snapshots, the relay looks for a newer one. If it has no snapshot cached, because the tail has
// outgrown Limits.TailFrames or TailBytes, the client is given a Sync of everything.
// The AuthorizeFunc is given the areas, and is asked again for each change of them: a client names its own, so areas
// hide something only if that function refuses.
//
// # Sessions
//
// Config.Authenticate says who a connection belongs to and for how long (package session): after the checks of
// handshake and origin, and under a deadline. The AuthorizeFunc is given that identity for each subscription, also a
// repeated one, and each Resync. A client refreshes its session with a new token over the connection. A session that
// expires is closed with status 4003, within a second; one that the game ends, with EndActor or EndTile, with status
// 4004. A game that panics in these functions has refused.
//
// # Shares when there is too little
//
// What many share is shared by actors, and by the addresses of strangers, not in order of arrival. On a relay that is
// full of clients (Limits.MaxClients), the newest connection of the actor that has most makes place for one that has
// at least two less (package session, Limits). A relay that watches as many tiles as it may drops one of the actor
// that has most subscriptions for one that has at least two less; those whose tile is dropped get CODE_OVERLOADED. A
// tile watched by others that have few stays. All connections of an actor share one budget of Syncs, and one of tiles
// that the relay does not watch yet, each of which is a read of the store; both last when they leave. Where the Syncs
// of all are too many, the clients that were sent least go first. A client that has little waiting loses no frame when
// clients that do not read have used Limits.RelayQueueBytes up.
//
// # When things fail
//
// If Config.Views do not work, the relay reads the store by itself. If the store is down, live frames go on, and new
// clients of tiles the relay knows are served; a tile whose owner changes meanwhile waits for the store. Clients of
// other tiles get CODE_UNAVAILABLE, and a Sync when the store is back. If the fan-out is down, clients see what the
// periodic comparison finds, late but complete. If the store holds less than clients have seen (a failover lost the
// last entries), the view stays, since the living owner re-appends them; after Config.BehindGrace the relay adopts the
// store's history. A store at a lower epoch than clients have seen is never adopted. If an entry cannot be read,
// clients stay before it until a snapshot passes it.
//
// A client that reads too slowly delays no other. Frames that do not fit its queue are dropped
// for it, and when the queue has drained it gets one Sync, of only what it missed if the relay still has
// that. If it never catches up within 30 s it is closed with status 4001. A message that
// breaks the protocol is answered with an Error and status 1008. No message can make the relay panic.
//
// # Concurrency
//
// All methods are safe for concurrent use. Run owns every goroutine: one for each connection, another while it is
// written more than the network takes at once, one for each repair under way, three more, and while there is something
// to write as many as GOMAXPROCS, which write to one client after the other without waiting for any. TLS that ends in
// this process has a goroutine for each write instead. A connection without it takes some 4.5 KiB of heap and stacks
// (BenchmarkConnectionMemory); the process grows by up to twice that, as the collector leaves room.
// Frames and Syncs are encoded once for a tile, an encoding and a set of areas, WebSocket header included, and shared
// by all clients; a client with several messages waiting gets them in one write, and one that watches several tiles is
// written to once in 10 ms. Messages of 1 KiB and more are compressed for clients that offer it
// (permessage-deflate without context takeover, as browsers do), once for each set of areas; the areas that a client
// opens as it moves are made, and compressed, for it alone. It saves a third of the bytes of a batch of moves and takes
// 10 to 30 ns a byte (BenchmarkDeflate): it pays for many watchers of one set of areas or for slow links, and small
// frames would win little. Memory for a tile is its snapshot, a tail bounded by Limits.TailFrames and TailBytes, and
// what has been encoded of both.
//
// A relay protects what it may still replay from the trim: it marks every watched tile at the sequence of its cached
// snapshot (of its position, if that came from Config.Views), under its own Config.ID, in one call for many tiles. It
// renews the marks while the tiles are watched, and releases them when they are not or the relay stops. A relay that
// crashes holds the streams for the lease of the trim. If a mark is lost, the next one is answered with the floor of
// the stream: the relay reads the snapshot again, and its clients get what they missed as frames, or a Sync if those
// are gone.
//
// # Testing against it
//
// Everything runs in one process over memfence, memstream and memfanout; the example does. Publish
// frames, lose some of them, and compare the clients with the store.
package relay
