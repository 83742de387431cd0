// Package tilefence puts a deployment together: each of its servers is one complete process of a game, or a part
// of one, with safe settings and the right order of starting and stopping.
//
// Tilefence lets a game run a 10,000-player battle as if it were a 100-player skirmish. The world is cut into tiles.
// Each tile has exactly one owner at a time, which ticks twice a second and commits each tick under an epoch that a
// stale owner cannot forge.
//
//	players ──intents──▶ GatewayServer ──▶ TileServer ──commit──▶ coordination Redis
//	   ▲                     │ ledger         │ ▲ epoch               │         │ snapshot
//	   │                     ▼                ▼ │                     ▼         ▼
//	   │                 DynamoDB          PostgreSQL           BridgeServer  CheckpointServer ──▶ DynamoDB
//	   └──────frames──── RelayServer ◀──── fan-out Redis ◀──────┘
//
// # Usage
//
// Backends names the back ends. Each constructor takes them, and Run runs any number of servers in one process:
//
//	b := tilefence.Backends{Authority: authority, Store: store, Log: log, Fanout: broker, Durable: durable,
//		Workers: workers, Members: &gossip.Config{Bind: "10.0.0.7:7946", Seeds: []string{"10.0.0.8:7946"}}}
//	server, err := tilefence.NewTileServer("10.0.0.7:7000", b, newRules, nil)
//	if err != nil {
//		return err
//	}
//	if err := server.Own(tiles...); err != nil {
//		return err
//	}
//	checkpointer, err := tilefence.NewCheckpointServer(b, nil)
//	if err != nil {
//		return err
//	}
//	return tilefence.Run(ctx, server, checkpointer)
//
// examples/tileserver is a complete program, examples/battle the reference deployment. Nothing here is needed: each
// server is made of exported parts of the packages below, and a process may put them together in its own way.
//
//   - fence: who owns a tile. Epochs (Authority), commits under them (CommitFn, Store). fence/route: finding the
//     owner, and who is alive.
//   - stream: reading what was committed. stream/fanout: delivery. stream/share: sharing tiles among processes.
//   - tile: the game's Rules, the TileProcessor that runs them. tile/tilehost: thousands of tiles in a process.
//     tile/plan: slow decisions off the tick. tile/warp: all or nothing over several tiles.
//     tile/region: geometry from H3. tile/tilehttp: intents between processes.
//   - bridge: Bridge forwards committed batches to fan-out.
//   - checkpoint: Checkpointer copies snapshots to durable storage; journals for tile.WriteThrough and WriteBehind.
//   - relay: Relay holds the watchers' WebSockets. relay/relayclient: a client; relay/relayjs: one for
//     browsers.
//   - admission: AdmissionLedger for what spends, Gateway. admission/gatewayws: the players' WebSockets.
//   - inspect: a page on the tiles of a TileServer. metrics/prommetrics: figures for Prometheus.
//   - admission/match: matchmaking, from "find a match" to a seat on a tile that serves. MatchServer makes matches, of
//     the seats that tile servers offer (TileServerConfig.Seats). PlanServer answers what tiles ask of
//     TileServer.Plans.
//
// Back ends are packages of their own, each named for what it wraps and what it is, such as fence/redisfence and
// checkpoint/dynamocheckpoint. This package links none of them.
//
// # Guarantees
//
//   - What an operator must know is said: each server logs its problems, and Health names them, see Problem.
//
//   - A back end that a server needs and was not given, and a setting that the server must make itself, is a
//     *fence.ArgumentError of the constructor. What would be unsafe to leave out is an argument: who a player is,
//     what an action costs, who may watch a tile.
//
//   - A TileServer that starts owns those of its tiles without an owner and follows the others, whatever it owned
//     before. One that stops hands its tiles to living members, releases the rest, and leaves the gossip last.
//
//   - A tile without an owner can begin with its first intent (TileServerConfig.Spawn). If several servers try,
//     the authority gives the tile to one, and the others redirect to it.
//
//   - Run stops servers one after another, so that a CheckpointServer's last pass comes after the last snapshots
//     of the TileServers before it.
//
// # Failures
//
// A server's Run returns an error only if the server could not start, or one of its parts failed for good, such as
// its listener. It then stops as if its context had ended. A back end that does not answer is no such failure: the
// parts report it and try again, as their packages say. Stopping is bounded by the timeouts of the parts. A server
// that is killed instead of stopped costs no correctness, only the time until its death is noticed.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run owns every goroutine of a server and returns when all have
// ended. A server runs once: fence.ErrAlreadyRun.
//
// # Testing
//
// Test a game against embedded back ends: memfence, memstream, memfanout, memcheckpoint, sqliteledger, memmatch,
// memplan, share.NewMemory and a route.Group. The examples of this package do.
//
// docs/protocol.md says why the fence holds, docs/wire.md what is stored and sent.
package tilefence
