// Package memfanout is the fan-out in one process: for tests, local development and the one-command
// example.
//
//	broker := memfanout.New()
//	stop, err := broker.Subscribe(ctx, tile, func(data []byte) { frames <- data })
//	sent, err := broker.Publish(ctx, []fanout.Message{{Tile: tile, Data: frame}})
//
// # Guarantees
//
// Publish hands every message to every subscription its tile has at that moment and never waits for one:
// each subscription has a bounded buffer, and a message that finds it full is lost to that subscription
// alone, and counted in [Stats]. What is delivered is delivered once and in order. A
// message that was buffered when its subscription stopped is discarded, and not counted as dropped.
//
// Wake hints go the same way, each call's tiles of a group as one message; [Broker.HintStats] counts them.
//
// # Failure
//
// Nothing can fail but a call made with an ended context or a malformed argument. Nothing survives the
// process.
//
// # Concurrency
//
// A Broker is safe for concurrent use. It owns a goroutine for each subscription for which messages wait, which stop
// ends; a Broker without subscriptions owns nothing and needs no closing. Data is passed on as it came, without a copy:
// neither publisher nor subscribers may change it afterwards.
//
// # Testing
//
// This is the implementation to test against: it has no timers, so it runs under testing/synctest. Give
// it a small [Config.Buffer] to provoke losses. fanouttest.Run states what it keeps of the contract.
package memfanout
