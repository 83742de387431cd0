// Package oteltrace follows actions through all processes, by traces of OpenTelemetry.
//
// # Usage
//
//	provider := trace.NewTracerProvider(trace.WithIDGenerator(oteltrace.IDs{}), trace.WithBatcher(exporter))
//	t, err := oteltrace.New(provider, &oteltrace.Config{Actions: 0.01, Batches: 1})
//	if err != nil {
//		return err
//	}
//	oteltrace.Attach(t, &cfg) // before the server is made; its own hooks are still called
//	gateway, err := tilefence.NewGatewayServer(addr, b, authenticate, price, &cfg)
//
// There, trace is go.opentelemetry.io/otel/sdk/trace.
//
// # Traces
//
// An action has a trace, and each batch of a tile has one. Their IDs are digests of the action's ID, and of the tile
// and the batch's position: every process computes them, and nothing is added to what the processes send each other.
//
//	trace of an action                        trace of a batch
//
//	action            gateway                 batch                 tile server
//	├─ ledger.admit   gateway                 ├─ bridge.publish     bridge
//	├─ tile           tile server             ├─ relay.queue        each relay
//	│  ├─ tile.wait                           └─ client.apply       each client of relayclient
//	│  ├─ tile.resolve
//	│  └─ tile.commit ──── link ────▶ batch
//	└─ ledger.settle  gateway
//
// The batch links back to the actions that it decides. A call that did not admit its action, since it repeats it or
// was refused, is an action.attempt below the action. The ID of the first span of a trace is a digest too, so that
// the others, which are made in other processes, name it as their parent. That needs IDs in the provider; New refuses
// one without.
//
// # Sampling
//
// Whether a trace is recorded follows from its ID and Config alone. With the same Config everywhere all processes
// agree, and a trace is recorded as a whole or not at all. The two kinds are sampled apart, since relays and clients
// do not learn which actions a batch decides: of the actions recorded, the part Batches can be followed further than
// to their commit. Leave the provider's sampler at its default, or let it record all.
//
// A client chooses the IDs of its actions, so it can also choose one that is recorded.
//
// # Cost
//
// An action or a batch that is not recorded costs a process one SHA-256 of some 60 bytes. Of those recorded,
// trace.WithBatcher exports spans in the background; do not use WithSyncer in production, since hooks run on the
// tick loop.
//
// # Times
//
// A process gives spans the times of its own clock. The difference of two clocks shows as a gap, or an overlap, between
// the spans of two processes.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine. Attach hooks before the servers that have them are made.
package oteltrace
