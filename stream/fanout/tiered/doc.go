// Package tiered is a fan-out before two others: an ordinary tier for all tiles, such as redisfanout, and a broker tier
// for the few tiles that very many relays watch, such as natsfanout. It moves single tiles between them while they are
// watched.
//
//	f, err := tiered.New(ordinary, broker, nil)
//	defer f.Close()
//	sent, err := f.Publish(ctx, messages)          // the bridge's side
//	stop, err := f.Subscribe(ctx, tile, deliver)   // the relay's side
//
// Every bridge and every relay of a deployment uses it, over the same two tiers; a relay that does not is safe too, but
// keeps the tiles it watches on the ordinary tier. Each tier's client belongs to one Fanout.
//
// # Which process decides
//
// Each publisher decides for the tiles it publishes; there is nothing to agree on, nothing is announced, and nothing is
// stored. That is safe because subscribers always listen on both tiers, which costs one idle subscription more for each
// tile. Two bridges that see the same tile differently, as while a tile changes its bridge, both reach every relay.
//
// Every 500 ms a publisher compares two figures of each tile it publishes with their bounds: the processes
// subscribed to it ([fanout.Audience] of the ordinary tier), and the bytes per second they are sent together. A tile at
// one of the bounds moves to the broker; one that has stayed below half of both for 30 s moves back. A
// publisher that restarts begins with every tile on the ordinary tier.
//
// # A move
//
// A tile is in one of three states, [Ordinary], [Both] and [Broker]:
//
//	from      to        when
//	Ordinary  Both      a bound is reached
//	Both      Broker    every process of the audience has said lately that it hears the tile on the broker, and
//	                    2 s have passed
//	Broker    Both      that is no longer so: a process joined, or lost the broker; a publish on the broker failed; or
//	                    the tile has been below half of the bounds for Cooldown
//	Both      Ordinary  the tile has been below half of the bounds for Cooldown, and 2 s have passed
//
// There is no other way: a tier is left only after 2 s during which both carried everything. A broker that has
// failed is left alone for three intervals, and the 2 s begin when it is tried again. A subscriber that
// hears a tile on the broker says so there ([fanout.PresencePublisher]) every 500 ms; three such intervals without it,
// and the publisher assumes that it does not.
//
// # Order
//
// Of the two tiers one is faster, so when a tier begins to carry a tile, its first frames may overtake those under way
// on the other. A subscriber therefore reads the position of each frame. One that does not follow the last is held
// until its predecessor has come, until both tiers have shown that it will not, or for 250 ms. A frame that came
// on both tiers is delivered once. The first frame of a subscription is held likewise. After that nothing is held of a
// tile that the broker has not carried since it was subscribed to, nor ever anything that is not a frame.
//
// # Failure
//
//   - The broker cannot be reached, by a publisher: in the same call the messages go to the ordinary tier, and the tile
//     is in Both until the broker is back. By a relay: its presence stops, and the publisher carries the tile on both
//     tiers within four intervals. Until then the relay lacks the frames of tiles in Broker and repairs them from the
//     store. A relay that starts without the broker is served by the ordinary tier.
//   - The ordinary tier cannot be reached: tiles in Broker go on, with the audience as it was last counted. Of a tile
//     in Both, the broker's word counts alone if the whole audience hears it, or if the ordinary tier has failed for an
//     interval and any process hears the broker. Otherwise the message is not handed over, and the bridge tries again.
//   - A publisher dies: its successor publishes on the ordinary tier, where every relay listens.
//   - Presence is lost, or the publisher was idle and what it knows is old: both tiers carry the tile meanwhile. That
//     costs bandwidth, no frame.
//
// Moves, and falling back, are logged to [Config.Logger], by default slog.Default.
//
// # Wake hints
//
// They go through the ordinary tier only.
//
// # Concurrency
//
// A [Fanout] is safe for concurrent use. Close ends what it has started and leaves the tiers to the caller.
//
// # Testing
//
// Test against two memfanout.Brokers. All waiting goes through package time, so that a test can run under
// testing/synctest.
package tiered
