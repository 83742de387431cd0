// Package natsfanout is the fan-out on NATS: one subject a tile, on core NATS (no JetStream). It is meant as the broker
// tier for tiles that very many relays watch, beside redisfanout (see package tiered), and can stand alone.
//
//	f, err := natsfanout.Open([]string{"nats://10.0.0.1:4222", "nats://10.0.0.2:4222"}, nil)
//	defer f.Close()
//	sent, err := f.Publish(ctx, messages)          // the bridge's side
//	stop, err := f.Subscribe(ctx, tile, deliver)   // the relay's side
//
// Subjects and limits are part of the wire contract (docs/wire.md). Messages carry no headers.
//
// # Worlds
//
// The name of a world begins its subjects. Two deployments of one name on the same servers would watch each other's
// tiles, and NATS keeps no record that tells them apart. So processes that know the ID of their world answer with it
// when they are asked, on the subject tilefence.world, and [Fanout.EnterWorld] refuses a process whose world is
// another than one that answers. Only processes that run at the same time are compared: at the start of each, and
// every minute. An answer is not proof of anything: a process that may answer can keep others from starting, and can
// do no more. Let those that publish frames answer, and relays only ask, as deploy/nats does.
//
// # Publishing
//
// A call writes all its messages to one connection and waits until the server has confirmed that it has read them; it
// tries once. While there is no connection a call fails at once, with fence.ErrNotApplied: nothing is kept to be sent
// later, when it would arrive out of order or long after its time. If the connection broke during the call, or the
// server did not answer within a second, the outcome of all its messages is unknown, and the caller should send
// them again; some may then arrive twice. A *fanout.PublishError knows each message's fate.
//
// The server must accept frames of any legal size: its max_payload must be at least fence.MaxFrame, and the server's
// default of 1 MiB has no room for the head of the largest. Otherwise each call fails with a *[LimitError]; that is
// found at the first call and not at the first large frame.
//
// # Subscribing
//
// All of a process's subscriptions share one connection. Subscribe waits until the server it is connected to has the
// subscription. In a cluster the other servers hear of it about a network latency later. A message that is published
// through another server in that time is lost; a relay reads the store after it has subscribed, and has it from there
// or finds the gap.
//
// While the nodes of a cluster make their routes anew, NATS may deliver messages a second time, or let one overtake
// others. Relays know frames by their positions: they ignore those they have, and keep an early one until it follows.
//
// Every subscription has its own bounded buffer, see fanout.DefaultBuffer; messages that find it full are lost,
// counted, and logged. A process that does not even read its connection is disconnected by the server, which is
// logged, too.
//
// # Failure
//
// A lost connection is made again for as long as the Fanout is open, to any of the servers, including those the cluster
// has announced, with jittered delays; the subscriptions are made again at once. A server that is silent for 3 s
// counts as lost. What was published meanwhile is lost. Subscriptions to wake hints say when they
// are in force and when not.
//
// Lost and restored connections, dropped messages, refusals by the server's permissions, and a limit that is too small
// are logged to [Config.Logger], by default slog.Default.
//
// # Concurrency
//
// A [Fanout] is safe for concurrent use. It owns its connection and a few goroutines from Open to Close.
//
// # Testing
//
// Test against memfanout, which passes the same conformance suite, fanouttest. A server can be embedded in a test
// process (github.com/nats-io/nats-server/v2/server); this package's tests do.
package natsfanout
