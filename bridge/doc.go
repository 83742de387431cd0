// Package bridge forwards what was committed to those who watch: it tails the streams of many tiles in
// the coordination store and publishes each batch to fan-out.
//
//	b, err := bridge.New(log, publisher, tiles, nil)
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
// seen in force. The other entries are counted by [DropReason] and left to the relays, which meet them as
// state. A rebase marker is a frame like any other.
//
// An entry that cannot be read, whose chain is not its content's, or whose payload is not a batch, is put
// among the tile's dead letters, and the tile goes on with the next.
//
// If entries were trimmed before they were read, the bridge counts it and forwards what there is: every
// frame names its predecessor, so watchers notice by themselves. If a failover has taken back what was
// read, it goes back as well, and forwards what a new owner has written in its place.
//
// # Polling
//
// A pass reads every tile that is due with one call to the log and publishes everything they had with
// one call to the publisher: a round trip for each node of either cluster, however many tiles there are.
// A tile whose events flow is due every [Config.MinPoll]; one that had none for [Config.Linger], after
// twice the time each pass, up to [Config.MaxPoll]. [Bridge.Wake] makes a tile due at once. Unless there is something
// to catch up on, passes take at most half of the time: with so many tiles that one takes 20 ms, they are
// read every 40 ms. That is when to share the tiles among several bridges.
//
// # Watermarks
//
// Forwarding resumes after the tile's stream.BridgeAcked mark; a tile that has none, or lost it because
// no bridge ran for longer than the trim's lease, resumes at the oldest entry the stream holds. The marks
// follow at most every [Config.MarkEvery], so after a crash that much is published again; both
// stream.BridgePending and stream.BridgeAcked always are at or below what was published, so that no
// unpublished entry can be trimmed. They are renewed while a tile is quiet or failing.
//
// # Failure
//
// A failed call to the log or the publisher is reported ([Hooks.Failed], [Stats]) and tried again with
// jittered, growing delays; no failure ends Run. Tiles that failed are read and published apart from the
// healthy ones until they succeed, so that one fan-out node that hangs does not hold up those of the
// others. With a publisher whose errors know which messages were handed over (redisfanout's do) only the
// tiles concerned are tried again. What was read and could not be published is forgotten and read again
// from the log, which is the buffer: the bridge's memory is bounded by one pass, and the fence above is
// asked anew.
//
// # Concurrency
//
// A [Bridge] is safe for concurrent use; Run may be called once at a time. Two bridges may forward the
// same tile, at the price of every frame twice; nothing breaks.
//
// # Testing
//
// Test against memstream, memfence and memfanout. All waiting goes through package time, so a test can
// run under testing/synctest; then every delay above is exact.
package bridge
