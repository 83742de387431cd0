package memfanout

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// hintBytes is what one tile of a hint message counts against Config.BufferBytes.
const hintBytes = 8

// hints is the part of a Broker that carries wake hints.
type hints struct {
	mu     sync.RWMutex
	groups [fanout.HintGroups][]*subscription[[]fence.TileID] // each slice is replaced, never changed
	count  int

	published, delivered, dropped atomic.Uint64
}

var (
	_ fanout.HintPublisher  = (*Broker)(nil)
	_ fanout.HintSubscriber = (*Broker)(nil)
)

// PublishHints implements fanout.HintPublisher. It fails only before the first hint: with the context's
// cause if ctx has ended, with a *fence.ArgumentError if a tile is zero. Subscribers get a copy of tiles.
func (b *Broker) PublishHints(ctx context.Context, tiles []fence.TileID) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var groups [fanout.HintGroups][]fence.TileID
	for _, t := range tiles {
		if t == 0 {
			return noTile()
		}
		g := fanout.HintGroupOf(t)
		groups[g] = append(groups[g], t)
	}
	for g, of := range groups {
		for part := range slices.Chunk(of, fanout.MaxHints) {
			b.hints.publish(g, part)
		}
	}
	b.hints.published.Add(uint64(len(tiles)))
	return nil
}

func (h *hints) publish(group int, tiles []fence.TileID) {
	h.mu.RLock()
	subscriptions := h.groups[group]
	h.mu.RUnlock()
	for _, s := range subscriptions {
		if !s.put(tiles, hintBytes*len(tiles)) {
			h.dropped.Add(uint64(len(tiles)))
		}
	}
}

// SubscribeHints implements fanout.HintSubscriber. The subscription is in force when it returns, and
// stays so: up is called once, with true, before.
func (b *Broker) SubscribeHints(
	group int, deliver func(tiles []fence.TileID), up func(inForce bool),
) (stop func(), err error) {
	switch {
	case group < 0 || group >= fanout.HintGroups:
		return nil, &fence.ArgumentError{Field: "group", Value: group, Want: "0 to HintGroups-1"}
	case deliver == nil:
		return nil, &fence.ArgumentError{Field: "deliver", Value: "nil", Want: "a function"}
	case up == nil:
		return nil, &fence.ArgumentError{Field: "up", Value: "nil", Want: "a function"}
	}
	s := newSubscription[[]fence.TileID](&b.cfg)
	h := &b.hints
	h.mu.Lock()
	h.groups[group] = append(slices.Clone(h.groups[group]), s)
	h.count++
	h.mu.Unlock()
	up(true)
	go s.run(func(tiles []fence.TileID) {
		h.delivered.Add(uint64(len(tiles)))
		deliver(tiles)
	})
	var once sync.Once
	return func() {
		once.Do(func() {
			h.remove(group, s)
			close(s.quit)
		})
		<-s.done
	}, nil
}

func (h *hints) remove(group int, s *subscription[[]fence.TileID]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
	h.groups[group] = slices.DeleteFunc(slices.Clone(h.groups[group]),
		func(o *subscription[[]fence.TileID]) bool { return o == s })
}

// HintStats counts what a Broker has done with wake hints since it was made. A hint is one tile.
type HintStats struct {
	Published     uint64 // hints handed over by publishers
	Delivered     uint64 // hints given to deliver
	Dropped       uint64 // hints lost to a subscription whose buffer was full, each subscription counted
	Subscriptions int    // subscriptions now
}

// HintStats returns the counters of the wake hints, read one after another.
func (b *Broker) HintStats() HintStats {
	h := &b.hints
	h.mu.RLock()
	n := h.count
	h.mu.RUnlock()
	return HintStats{Published: h.published.Load(), Delivered: h.delivered.Load(), Dropped: h.dropped.Load(),
		Subscriptions: n}
}
