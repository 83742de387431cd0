package memfanout

import (
	"context"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// Broker carries messages from publishers to the subscriptions of their tile, wake hints to those of their
// group, and presence. It implements all interfaces of package fanout.
type Broker struct {
	frames     *hub.Hub[fence.TileID, []byte]
	hints      *hub.Hub[int, []fence.TileID]
	presence   *hub.Hub[fence.TileID, uint64]
	counts     counts
	hintCounts counts
	world      guard.World
}

type counts struct{ published, delivered, dropped atomic.Uint64 }

var (
	_ fanout.Publisher      = (*Broker)(nil)
	_ fanout.Subscriber     = (*Broker)(nil)
	_ fanout.HintPublisher  = (*Broker)(nil)
	_ fanout.HintSubscriber = (*Broker)(nil)

	_ fanout.Audience           = (*Broker)(nil)
	_ fanout.PresencePublisher  = (*Broker)(nil)
	_ fanout.PresenceSubscriber = (*Broker)(nil)

	_ fence.WorldKeeper = (*Broker)(nil)
)

// EnterWorld implements fence.WorldKeeper. The broker takes the name and the ID of the first world whose ID is known.
func (b *Broker) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return b.world.Enter(ctx, "the fan-out in memory", w)
}

// New returns a Broker. In front of one slow subscription wait fanout.DefaultBuffer messages of
// fanout.DefaultBufferBytes at most; further ones are dropped. One message is accepted whatever its size.
func New() *Broker {
	b, err := sized(fanout.DefaultBuffer, fanout.DefaultBufferBytes)
	if err != nil {
		panic(err) // the sizes are valid
	}
	return b
}

// sized returns a Broker that keeps so many messages, of so many bytes, for one slow subscription.
func sized(messages, bytes int) (*Broker, error) {
	frames, err := hub.New[fence.TileID, []byte](messages, bytes)
	if err != nil {
		return nil, err
	}
	hints, _ := hub.New[int, []fence.TileID](messages, bytes)
	presence, _ := hub.New[fence.TileID, uint64](messages, bytes)
	return &Broker{frames: frames, hints: hints, presence: presence}, nil
}

// Publish implements fanout.Publisher. It fails only before the first message: with the context's cause
// if ctx has ended, with a *fence.ArgumentError if a tile is zero.
func (b *Broker) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if err := hub.ValidMessages(messages); err != nil {
		return 0, err
	}
	for _, m := range messages {
		b.counts.dropped.Add(uint64(b.frames.Publish(m.Tile, m.Data, len(m.Data))))
	}
	b.counts.published.Add(uint64(len(messages)))
	return len(messages), nil
}

// Subscribe implements fanout.Subscriber. It does not wait for anything; ctx has no effect once it has
// returned. It fails with the context's cause if ctx has ended, with a *fence.ArgumentError if the tile
// is zero or deliver is nil.
func (b *Broker) Subscribe(ctx context.Context, tile fence.TileID, deliver func(data []byte)) (func(), error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := hub.Valid(tile, deliver); err != nil {
		return nil, err
	}
	return b.frames.Subscribe(tile, func(data []byte) {
		b.counts.delivered.Add(1)
		deliver(data)
	}), nil
}

// PublishHints implements fanout.HintPublisher. It fails only before the first hint: with the context's
// cause if ctx has ended, with a *fence.ArgumentError if a tile is zero. Subscribers get a copy of tiles.
func (b *Broker) PublishHints(ctx context.Context, tiles []fence.TileID) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	messages, _, err := hub.HintMessages(tiles)
	if err != nil {
		return err
	}
	for _, m := range messages {
		n := len(m.Tiles)
		b.hintCounts.dropped.Add(uint64(b.hints.Publish(m.Group, m.Tiles, 8*n) * n))
	}
	b.hintCounts.published.Add(uint64(len(tiles)))
	return nil
}

// SubscribeHints implements fanout.HintSubscriber. The subscription is in force when it returns, and
// stays so: up is called once, with true, before.
func (b *Broker) SubscribeHints(group int, deliver func([]fence.TileID), up func(inForce bool)) (func(), error) {
	if err := hub.ValidHints(group, deliver, up); err != nil {
		return nil, err
	}
	up(true)
	return b.hints.Subscribe(group, func(tiles []fence.TileID) {
		b.hintCounts.delivered.Add(uint64(len(tiles)))
		deliver(tiles)
	}), nil
}

// Audience implements fanout.Audience; each subscription counts. It fails with the context's cause if ctx has ended.
func (b *Broker) Audience(ctx context.Context, tiles []fence.TileID) ([]int, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	counts := make([]int, len(tiles))
	for i, t := range tiles {
		counts[i] = b.frames.CountOf(t)
	}
	return counts, nil
}

// PublishPresence implements fanout.PresencePublisher. It fails as PublishHints does.
func (b *Broker) PublishPresence(ctx context.Context, process uint64, tiles []fence.TileID) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, t := range tiles {
		if err := guard.Tile(t); err != nil {
			return err
		}
	}
	for _, t := range tiles {
		b.presence.Publish(t, process, 8)
	}
	return nil
}

// SubscribePresence implements fanout.PresenceSubscriber.
func (b *Broker) SubscribePresence(tile fence.TileID, deliver func(process uint64)) (func(), error) {
	if err := hub.Valid(tile, deliver); err != nil {
		return nil, err
	}
	return b.presence.Subscribe(tile, deliver), nil
}

// Stats returns the counters. They are read one after another: a message under way may be in some only.
func (b *Broker) Stats() Stats { return b.counts.stats(b.frames.Count()) }

// HintStats returns the counters of the wake hints, each hint being one tile.
func (b *Broker) HintStats() Stats { return b.hintCounts.stats(b.hints.Count()) }

func (c *counts) stats(subscriptions int) Stats {
	return Stats{Published: c.published.Load(), Delivered: c.delivered.Load(), Dropped: c.dropped.Load(),
		Subscriptions: subscriptions}
}

// Stats counts what a Broker has done since it was made, with messages or with wake hints.
type Stats struct {
	Published     uint64 // handed over by publishers
	Delivered     uint64 // given to deliver
	Dropped       uint64 // lost to a subscription whose buffer was full, each subscription counted
	Subscriptions int    // subscriptions now
}
