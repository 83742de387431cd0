// Package dynamo keeps checkpoints in DynamoDB: the durable checkpoint.Store of a deployment.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	store, err := dynamo.New(dynamodb.NewFromConfig(cfg), "checkpoints", nil)
//
// # Table
//
// One table holds any number of tiles. Its partition key is "tile" (string), its sort key "part"
// (string). EnsureTable creates it for development; in production create it with your own tools. The
// needed permissions are GetItem, PutItem, DeleteItem and Query, and Scan for List.
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
// # How a large snapshot stays whole
//
// Chunks are written first, under the random identifier of this attempt; the manifest is written last,
// on the condition that it supersedes the one in force (checkpoint.Supersedes, as a condition
// expression). Readers follow the manifest. So a crash at any moment leaves the old checkpoint readable,
// and a reader that finds a chunk gone because the checkpoint was replaced meanwhile reads the manifest
// again.
//
// Chunks that no manifest names are deleted by a later Put of the tile (the first of each Store, any that
// follows a chunked one, and one an hour), or by Collect. A chunk's key says which position its attempt
// was for, and it is deleted only if a manifest at that position can never again be accepted: the
// manifest in force is at or past it and names another attempt. Since manifests never go back, this holds
// however late a delayed request arrives, and any number of writers may race.
//
// # Failures
//
// Leave the SDK's retries on. A write that is retried after its answer was lost can find its own success
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
// # Concurrency and tests
//
// A Store is safe for concurrent use, starts no goroutine that outlives a call, and needs no closing. It
// remembers a few bytes for each tile it has written. To test against it, point the client at DynamoDB
// local or any compatible server; checkpoint/memory behaves the same without one.
package dynamo
