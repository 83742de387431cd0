package memfanout

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Broker carries messages from publishers to the subscriptions of their tile, and wake hints to those of
// their group. It implements the four interfaces of package fanout.
type Broker struct {
	cfg Config

	mu    sync.RWMutex
	tiles map[fence.TileID][]*subscription[[]byte] // each slice is replaced, never changed: publishers walk it unlocked
	count int

	published, delivered, dropped atomic.Uint64

	hints hints
}

var (
	_ fanout.Publisher  = (*Broker)(nil)
	_ fanout.Subscriber = (*Broker)(nil)
)

// New returns a Broker with the default settings.
func New() *Broker {
	b, err := NewWithConfig(nil)
	if err != nil {
		panic(err) // the defaults are valid
	}
	return b
}

// NewWithConfig returns a Broker. A nil cfg means all defaults; a negative size is an *fence.ArgumentError.
func NewWithConfig(cfg *Config) (*Broker, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Broker{cfg: c, tiles: map[fence.TileID][]*subscription[[]byte]{}}, nil
}

// Publish implements fanout.Publisher. It fails only before the first message: with the context's cause
// if ctx has ended, with a *fence.ArgumentError if a tile is zero.
func (b *Broker) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	for i := range messages {
		if messages[i].Tile == 0 {
			return 0, noTile()
		}
	}
	for i := range messages {
		m := &messages[i]
		for _, s := range b.subscriptions(m.Tile) {
			if !s.put(m.Data, len(m.Data)) {
				b.dropped.Add(1)
				b.cfg.Hooks.Dropped(DropInfo{Tile: m.Tile, Bytes: len(m.Data)})
			}
		}
	}
	b.published.Add(uint64(len(messages)))
	return len(messages), nil
}

// Subscribe implements fanout.Subscriber. It does not wait for anything; ctx has no effect once it has
// returned. It fails with the context's cause if ctx has ended, with a *fence.ArgumentError if the tile
// is zero or deliver is nil.
func (b *Broker) Subscribe(ctx context.Context, tile fence.TileID, deliver func(data []byte)) (stop func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if tile == 0 {
		return nil, noTile()
	}
	if deliver == nil {
		return nil, &fence.ArgumentError{Field: "deliver", Value: "nil", Want: "a function"}
	}
	s := newSubscription[[]byte](&b.cfg)
	b.mu.Lock()
	b.tiles[tile] = append(slices.Clone(b.tiles[tile]), s)
	b.count++
	b.mu.Unlock()
	go s.run(func(data []byte) {
		b.delivered.Add(1)
		deliver(data)
	})
	var once sync.Once
	return func() {
		once.Do(func() {
			b.remove(tile, s)
			close(s.quit)
		})
		<-s.done
	}, nil
}

// Stats returns the counters. They are read one after another: a message under way may be in some only.
func (b *Broker) Stats() Stats {
	b.mu.RLock()
	n := b.count
	b.mu.RUnlock()
	return Stats{Published: b.published.Load(), Delivered: b.delivered.Load(), Dropped: b.dropped.Load(),
		Subscriptions: n}
}

func (b *Broker) subscriptions(tile fence.TileID) []*subscription[[]byte] {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.tiles[tile]
}

func (b *Broker) remove(tile fence.TileID, s *subscription[[]byte]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count--
	rest := slices.DeleteFunc(slices.Clone(b.tiles[tile]), func(o *subscription[[]byte]) bool { return o == s })
	if len(rest) == 0 {
		delete(b.tiles, tile)
		return
	}
	b.tiles[tile] = rest
}

func noTile() error {
	return &fence.ArgumentError{Field: "tile", Value: fence.TileID(0), Want: "an H3 index, not zero"}
}
