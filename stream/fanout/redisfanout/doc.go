// Package redisfanout is the fan-out on Redis 7: sharded pub/sub, one channel a tile.
//
//	client := redis.NewClusterClient(redisfanout.Options("10.0.0.1:6379", "10.0.0.2:6379"))
//	f, err := redisfanout.New(client, nil)
//	sent, err := f.Publish(ctx, messages)          // the bridge's side
//	stop, err := f.Subscribe(ctx, tile, deliver)   // the relay's side
//
// The client may be a cluster client or one for a single server; the cluster should be another than the
// coordination store's, so that delivery cannot slow a commit.
//
// # Publishing
//
// A call sends one pipeline to each node its messages belong to, all nodes at once, and tries once:
// trying again is for the caller, which alone knows whether the messages still matter. A call of which part
// failed returns a *fanout.PublishError, which knows each message's outcome; so one dead node costs the tiles of
// the others nothing but the wait, at most a second. Within a call the messages of a tile
// arrive in order. After a failure the caller should send a tile's messages again from the first that was
// not handed over: some may then arrive twice.
//
// # Subscribing
//
// All of a process's subscriptions share one connection a node, however many tiles and subscribers there
// are; subscriptions to one tile share one SSUBSCRIBE. (The cluster client's own SSubscribe would open a
// connection a tile. A node's connection cannot be left to the library either: after a disconnect it
// resubscribes all channels in one command, which Redis refuses when they lie in different slots. So this
// package keeps the books itself and gives every connection up at its first error.)
//
// Every subscription has its own bounded buffer (fanout.DefaultBuffer and DefaultBufferBytes); messages that find it
// full are counted and lost. Nothing else is buffered, so neither a slow subscriber nor a fast publisher makes the
// process grow, and Redis never sees a slow reader.
//
// # Wake hints
//
// A call of PublishHints sends one message for each group its tiles belong to, again in one pipeline a
// node. Subscriptions to hint groups use the same connections as those to tiles, and say when they are in
// force and when not; a message that cannot be read is ignored, counted, and logged.
//
// # Failure
//
// A connection on which nothing comes for 3 s is silent: its other end may have vanished without a word. A lost
// or silent connection is made again with jittered delays of 50 ms to 1 s, its channels being subscribed again
// wherever the cluster now has them;
// the same happens to a channel whose slot moves.
// What was published meanwhile is lost. A node that answers although the cluster has replaced it is left
// once two looks at the topology, a second apart, agree on it. Subscribe itself waits
// for its first success until its context ends.
//
// # Concurrency
//
// A [Fanout] is safe for concurrent use. It owns goroutines and connections only while there are
// subscriptions: the stop of the last one ends them all and waits for them. The client stays the
// caller's, to be closed afterwards.
//
// # Testing
//
// Test against memfanout, which passes the same conformance suite, fanouttest.
package redisfanout
