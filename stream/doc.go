// Package stream reads what was committed: the second layer, which bridge, checkpointer, relay and tile
// owners use.
//
//	chunks, err := log.Read(ctx, []stream.Cursor{{Tile: tile, After: seq}}) // many tiles in one round trip
//	history, err := stream.Recover(ctx, log, tile)                          // snapshot and tail, verified
//
// A Log is the coordination store as a reader sees it. Back ends: redisstream, memstream. Batch is what
// one tick committed, Frame a batch on its way to watchers; both have a versioned encoding with golden
// bytes in testdata. Sub-package fanout carries frames.
//
// # Guarantees
//
//   - Recover gives a whole history: a snapshot that matches its checksum, and every entry after it, each
//     following the one before and each with the chain that its content gives. Anything else is an error.
//   - An entry that cannot be read is handed out as Poison, never skipped in silence and never in the way
//     of the entries before it.
//   - Trim keeps every entry that a live consumer, or a recovery from the snapshot, can still need: the
//     floor is the lowest of the snapshot, all watermarks, and what consumer groups have pending. A consumer
//     that has stopped moving holds it only for its lease, and all of them only as long as the stream is within
//     its bound. A trim names the consumers that lose entries, and their next mark says so.
//
// # Failures
//
// A *fence.StoreError when the store cannot be asked: try again, reading changes nothing. A
// *fence.CorruptError for stored bytes that fail their check. A *GapError when the stream no longer holds
// what replay needs: start from a newer snapshot. A *FormatError from the codecs, which return nothing
// half read and allocate no more than the input can hold.
//
// # Concurrency and testing
//
// Logs are safe for concurrent use; the codecs are functions. Test against memstream; streamtest is the
// suite that all logs pass.
package stream
