// Package tilefence is the map of the Tilefence SDK; the code is in its sub-packages.
//
// Tilefence lets a game run a 10,000-player battle as if it were a 100-player skirmish. The world is cut
// into tiles; each tile has exactly one owner at a time, ticks twice a second, and commits each tick
// under an epoch that a stale owner cannot forge. Three jobs happen to every batch, and none disturbs
// another: it commits, it reaches every watcher, and it survives the loss of Redis.
//
//	players ──intents──▶ admission ──▶ tile ──commit──▶ coordination Redis
//	   ▲                 (gateway,      │ ▲               │         │
//	   │                  ledger)       │ └─epoch─ fence  │ tail    │ snapshot
//	   │                                │       (Postgres)▼         ▼
//	   └───frames── relay ◀─pub/sub── fan-out ◀──────── bridge   checkpoint ──▶ DynamoDB
//
// From the ground up:
//
//   - fence: who owns a tile. Epochs (Authority), commits under them (CommitFn, Store). Back ends:
//     fence/pgfence, fence/sqlitefence, fence/redisfence, fence/memfence.
//   - stream: reading what was committed. Codec, tail, snapshots, watermarks, trim. Back ends:
//     stream/redisstream, stream/memstream. stream/fanout is the delivery plane: redisfanout, memfanout.
//     stream/share divides tiles among processes: redisshare.
//   - tile: the game's Rules and the TileProcessor that runs them. tile/region: geometry from H3.
//     tile/tilehttp: intents between processes.
//   - bridge: Bridge forwards committed batches to fan-out.
//   - checkpoint: Checkpointer copies snapshots to durable storage; Restore brings them back; Journal keeps
//     the batches of tiles of which nothing may be lost (tile.WriteThrough). Back ends:
//     checkpoint/dynamocheckpoint, checkpoint/sqlitecheckpoint.
//   - relay: Relay holds the clients' WebSockets and repairs their gaps. relay/relayclient: a client.
//   - admission: AdmissionLedger for what spends, Gateway with its two doors. Back ends:
//     admission/dynamoledger, admission/sqliteledger. admission/gatewayws: the clients' side.
//
// Every seam with a back end has an embedded one, and one conformance suite that all pass. Importing a
// concept links no driver; import the back ends you use.
//
// Start with examples/tileserver, a whole tile server, and examples/battle, the reference deployment.
// docs/protocol.md says why the fence holds, docs/wire.md what is stored and sent.
package tilefence
