// Package dynamocheckpoint keeps checkpoints and journals in DynamoDB: the durable checkpoint.Store and
// checkpoint.JournalStore of a deployment.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	store, err := dynamocheckpoint.New(dynamodb.NewFromConfig(cfg), "checkpoints", nil)
//
// # Table
//
// One table holds any number of tiles. Its partition key is "tile" (string), its sort key "part"
// (string). EnsureTable creates it for development; in production create it with your own tools.
// deploy/iam holds the policies that each actor needs. A tile's checkpoints and its
// journal are in the same table, since a journal's bases are checkpoints.
//
// A tile has one manifest and, if its snapshot does not fit into one item of 400 KB, chunks:
//
//	tile  part                                   attributes
//	X     manifest                               v epoch seq chain tick contact sum taken size attempt chunks [blob]
//	X     chunk/<epoch>/<seq>/<attempt>/<index>  blob
//
// X and chain are lower-case hexadecimal; in the sort key epoch and seq have 16 such digits and index has
// 4. v is 1. A snapshot of at most 384 KiB is the manifest's own blob, and chunks is 0. Otherwise chunk i
// holds the blob's bytes from i x 384 KiB on.
//
// A write-through tile has, besides, the head of its journal and an entry for each batch:
//
//	tile  part                           attributes
//	X     journal                        v sealed end [floor]
//	X     journal/<seq>                  v epoch seq chain size chunks [frame]
//	X     journal/<seq>/<epoch>/<index>  frame
//
// sealed is the epoch that may append, end the last entry or base, which the next entry must follow, and floor the
// highest sequence that was truncated or is below a base. end is a position as fence.Position.String writes it. A
// frame is the entry as the stream has it (see fence.Entry); one of at most 384 KiB is in the entry, and chunks is 0;
// otherwise it is in chunks, as a blob is.
//
// # How a large snapshot stays whole
//
// Chunks are written first, under the random identifier of this attempt; the manifest is written last,
// on the condition that it supersedes the one in force (checkpoint.Supersedes, as a condition
// expression). Readers follow the manifest. So a crash at any moment leaves the old checkpoint readable,
// and a reader that finds a chunk gone because the checkpoint was replaced meanwhile reads the manifest
// again.
//
// Chunks that no manifest names are deleted by a later Put of the tile (the first of each Store, any that
// follows a chunked one, and one an hour). A chunk's key says which position its attempt
// was for, and it is deleted only if a manifest at that position can never again be accepted: the
// manifest in force is at or past it and names another attempt. Since manifests never regress, this holds
// however late a delayed request arrives, and any number of writers may race.
//
// # How the journal is fenced
//
// An Append is one TransactWriteItems: the head must be sealed for exactly the entry's epoch and end at the position
// that the entry follows; its end moves to the entry, and the entry is put, with its chunks. So a frame in chunks is
// there as a whole or not at all, no Append is carried out that DynamoDB orders after the Seal of a higher epoch, one
// that is delayed changes nothing, and a table that was restored to an older state refuses what does not follow it.
//
// A query may still see a transaction in part. Tail knows it by the head's end, which it reads first: a transaction
// that came before a Seal has moved the end that the Seal has kept, so Tail reads again until that entry is there. By
// the same end it notices a journal that has lost its newest entry.
//
// # Failures
//
// A Store makes requests again that were throttled, met another one on the same item, or were lost: 8 times in all, in
// place of the client's own retries. A write that is retried after its answer was lost can find its own success
// in the way: the refusal carries the manifest in force, which is then the same snapshot, and Put
// succeeds. Errors of the SDK are in a *fence.StoreError: fence.ErrNotApplied as long as no manifest was
// sent, fence.ErrUnknownOutcome from then on. When a Put failed after writing chunks, the next Put of the
// same snapshot through the same Store writes the same items again, so that retries leave no heap of
// garbage.
//
// # Cost
//
// A snapshot of up to 384 KiB is one write; larger ones are one write a chunk, one for the manifest, one
// read of the manifest before (to refuse early) and one delete for each chunk replaced. All reads are
// strongly consistent. List scans the whole table, chunks included.
//
// DynamoDB bills a write by the kilobyte begun, and a transaction twice. An Append costs two write units for
// the head and two for each kilobyte of the entry, whose attributes take about 0.2 KB beside the payload:
// 8 units for a batch of 2 KiB, where a bare PutItem costs 3. Removing it later costs what a bare write of it
// does, 3. A Truncate costs besides a read unit and a write unit for the head, and a read unit for each 4 KB
// of journal it removes; on a tile without a journal it is the one read. A Seal is one write unit. A plain
// write of the entry and a look at the head after it would cost half, but then a batch could appear in the
// journal although its owner was refused.
//
// # Concurrency and tests
//
// A Store is safe for concurrent use, starts no goroutine that outlives a call, and needs no closing. It
// remembers a few bytes for each tile it has written. Appends to one tile at the same time, and a Seal or a
// Truncate between them, can meet on the head; they are made again after a jittered pause.
//
// To test against it, point the client at DynamoDB local or any compatible server; checkpoint/memcheckpoint behaves
// the same without one.
package dynamocheckpoint
