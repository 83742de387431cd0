// Package bridge forwards committed batches to their watchers: it tails the streams of many tiles in
// the coordination store and publishes each batch to fan-out.
//
//	b, err := bridge.New(log, publisher, nil, tiles, nil)
//	go func() { errs <- b.Run(ctx) }()
//	b.Add(tile)    // tiles may come and go while it runs
//	b.Remove(tile)
//
// It is a process of its own, or a part of one, between the two clusters: it only ever reads what is
// already committed, so nothing is published that did not become real, and nothing is lost between
// commit and publish. It holds no game state and decides nothing.
//
// # Guarantees
//
// The batches of a tile are published in order, each at least once unless it is dropped for one of the
// reasons below. While one bridge runs it publishes a batch again only if a failed publish left open
// whether it had arrived.
//
// The last fence: an entry is forwarded only if its epoch is that of the tile's owner hash, read after
// the entry (or, without an owner hash, the highest epoch seen), and not below any epoch the bridge has
// seen in force. The other entries are counted by [dropReason] and left to the relays, which meet them as
// state. A rebase marker is a frame like any other.
//
// An entry that cannot be read, whose chain is not its content's, or whose payload is not a batch, is put
// among the tile's dead letters, and the tile goes on with the next. If writing one takes longer than 100 ms, the tile
// counts as failing until it has no other, so that it delays healthy ones once, and failing ones by one in each pass.
//
// If entries were trimmed before they were read, the bridge counts it and forwards what there is: every
// frame names its predecessor, so watchers notice by themselves. If a failover has taken back what was
// read, it reads again from there, and forwards what a new owner has written in its place. So it does with a history
// that was replaced while no bridge ran: the watermark has the position of the last entry forwarded, chain and all.
//
// # When a tile is read
//
// A pass reads tiles that are due with one call to the log and publishes everything they had with one call to
// the publisher: a round trip for each node of either cluster, however many tiles there are. While one pass
// publishes, another reads other tiles. A tile that is not due costs nothing.
//
//   - With wake hints (see [New], or [Bridge.Wake] and [Bridge.Hints]) a tile is due when one comes. Hints may be
//     lost: a tile whose events flow is also read 1 s after its last entry, and then ever more rarely, up
//     to every [Config.HintedPoll]. An entry that a poll finds and no hint announces is counted, and its tile polled
//     as without hints for half a minute; if that is common, all tiles whose hints take the same way. When hints are
//     known to have stopped, all tiles are due within 100 ms.
//   - Without hints a tile is due every 10 ms while events flow, or less often when there are many such tiles.
//     Once it had none for 1 s, it is due after twice the time each pass, up to every 100 ms. A polled tile
//     rests as long as the pass took that read it.
//
// When that is not enough, [Stats.Lag] and Backlog grow: share the tiles among several bridges (package share).
//
// # Watermarks
//
// Forwarding resumes after the tile's stream.BridgeAcked mark; a tile that has none, or lost it because
// no bridge ran for longer than the trim's lease, resumes at the oldest entry the stream holds. One call reads the
// marks of many tiles, and one writes those of all whose turn it is. They follow at most every
// [Config.MarkEvery], so after a crash that much is published again: with the default 2 s, four batches of a tile
// that ticks twice a second. Both stream.BridgePending and stream.BridgeAcked always are at or below what was
// published, so that no unpublished entry can be trimmed. They are renewed while a tile is quiet or failing, and
// regress when a failover has taken back what was read, so that what is written in its place is not
// trimmed either. If entries are trimmed all the same, because of the lease or the bound of memory of
// stream.Log.Trim, that is counted and logged ([Stats], Resyncs).
//
// # Failure
//
// A failed call to the log or the publisher is reported ([Hooks.Failed], [Stats]) and tried again with
// jittered, growing delays; no failure ends Run. Tiles that failed are read and published apart from the
// healthy ones until they succeed. So a fan-out node that hangs delays the tiles of other nodes by at most one publish
// timeout for each of its own tiles that becomes active, and not for as long as it hangs. A coordination node that
// hangs delays those of other nodes by 2 s when a read first meets it. For as long as its quiet tiles are still to be
// read, within two [Config.HintedPoll], a read of healthy tiles then has 200 ms. With a publisher
// whose errors know which messages were handed over (redisfanout's do) only the tiles concerned are tried again. What
// was read and could not be published is forgotten and read again from the log, which is the buffer: the bridge's
// memory is bounded by three passes (two of healthy tiles, one of failing ones), each of about 1 MiB or one
// entry a tile, and the fence above is asked anew. Of a tile that fails only a few entries are read at a time. [Stats]
// says meanwhile how much waits, and for how long.
//
// # Concurrency
//
// A [Bridge] is safe for concurrent use and runs once. Two bridges may forward the
// same tile, at the price of every frame twice; nothing breaks.
//
// # Testing
//
// Test against memstream, memfence and memfanout. All waiting goes through package time, so a test can
// run under testing/synctest; then every delay above is exact.
package bridge
