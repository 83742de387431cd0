// Package hub hands messages to the subscriptions of one process: what the back ends of package fanout have in
// common. Each subscription has a bounded buffer, and a goroutine while messages wait in it, so that no publisher waits
// for a subscriber and a quiet subscription costs next to nothing.
package hub

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Hub carries messages to the subscriptions of their key. It is safe for concurrent use.
type Hub[K comparable, M any] struct {
	messages int
	bytes    int64

	mu    sync.RWMutex
	subs  map[K][]*subscription[M] // each slice is replaced, never changed: publishers walk it unlocked
	count int
}

// New returns a Hub with room for so many messages and bytes in front of each subscription. Zeros mean the defaults of
// package fanout. A *fence.ArgumentError if one is negative.
func New[K comparable, M any](messages, bytes int) (*Hub[K, M], error) {
	if messages < 0 {
		return nil, &fence.ArgumentError{Field: "Buffer", Value: messages, Want: "messages, or zero for the default"}
	}
	if bytes < 0 {
		return nil, &fence.ArgumentError{Field: "BufferBytes", Value: bytes, Want: "bytes, or zero for the default"}
	}
	return &Hub[K, M]{messages: cmp.Or(messages, fanout.DefaultBuffer),
		bytes: int64(cmp.Or(bytes, fanout.DefaultBufferBytes)), subs: map[K][]*subscription[M]{}}, nil
}

// Subscribe calls deliver, one call at a time, with each message of key until stop is called. stop waits for a running
// call and is safe to call twice.
func (h *Hub[K, M]) Subscribe(key K, deliver func(M)) (stop func()) {
	s := &subscription[M]{deliver: deliver, messages: h.messages, limit: h.bytes, idle: make(chan struct{})}
	h.mu.Lock()
	h.subs[key] = append(slices.Clone(h.subs[key]), s)
	h.count++
	h.mu.Unlock()
	end := sync.OnceFunc(func() {
		h.remove(key, s)
		s.stop()
	})
	return func() {
		end()
		<-s.idle
	}
}

func (h *Hub[K, M]) remove(key K, s *subscription[M]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
	rest := slices.DeleteFunc(slices.Clone(h.subs[key]), func(o *subscription[M]) bool { return o == s })
	if len(rest) == 0 {
		delete(h.subs, key)
		return
	}
	h.subs[key] = rest
}

// Publish buffers a message of size bytes for the subscriptions of key. It returns how many had no room for it. It
// never waits.
func (h *Hub[K, M]) Publish(key K, m M, size int) (dropped int) {
	h.mu.RLock()
	subs := h.subs[key]
	h.mu.RUnlock()
	for _, s := range subs {
		if !s.put(message[M]{m, int64(size)}) {
			dropped++
		}
	}
	return dropped
}

// Count is how many subscriptions there are.
func (h *Hub[K, M]) Count() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.count
}

// CountOf is how many subscriptions a key has.
func (h *Hub[K, M]) CountOf(key K) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.subs[key])
}

// ValidMessages refuses messages for the zero tile with a *fence.ArgumentError.
func ValidMessages(messages []fanout.Message) error {
	for i := range messages {
		if err := guard.Tile(messages[i].Tile); err != nil {
			return err
		}
	}
	return nil
}

// Begin refuses messages for the zero tile, and a Publish whose context has ended. It returns a function with the name
// of each message's channel; those of one tile usually come together.
func Begin(
	ctx context.Context, messages []fanout.Message, name func(fence.TileID) string,
) (channel func(i int) string, err error) {
	if err := ValidMessages(messages); err != nil {
		return nil, err
	}
	var tile fence.TileID
	if len(messages) > 0 {
		tile = messages[0].Tile
	}
	last := ""
	return func(i int) string {
		if m := &messages[i]; last == "" || m.Tile != tile {
			tile, last = m.Tile, name(m.Tile)
		}
		return last
	}, guard.Ended(ctx, "publish", tile)
}

// Valid checks the arguments of a subscription to a tile: nil, or a *fence.ArgumentError.
func Valid[M any](tile fence.TileID, deliver func(M)) error {
	if deliver == nil {
		return &fence.ArgumentError{Field: "deliver", Value: "nil", Want: "a function"}
	}
	return guard.Tile(tile)
}

// ValidHints checks the arguments of SubscribeHints.
func ValidHints(group int, deliver func(tiles []fence.TileID), up func(inForce bool)) error {
	switch {
	case group < 0 || group >= fanout.HintGroups:
		return &fence.ArgumentError{Field: "group", Value: group, Want: "0 to HintGroups-1"}
	case deliver == nil:
		return &fence.ArgumentError{Field: "deliver", Value: "nil", Want: "a function"}
	case up == nil:
		return &fence.ArgumentError{Field: "up", Value: "nil", Want: "a function"}
	}
	return nil
}

// HintMessage is some hints of one group.
type HintMessage struct {
	Group int
	Tiles []fence.TileID // at most fanout.MaxHints
}

// HintMessages divides tiles into messages, and says which of them has each tile. A *fence.ArgumentError if a tile is
// zero.
func HintMessages(tiles []fence.TileID) (messages []HintMessage, of []int, err error) {
	var last [fanout.HintGroups]int // the group's last message, counted from 1
	of = make([]int, len(tiles))
	for i, t := range tiles {
		if err := guard.Tile(t); err != nil {
			return nil, nil, err
		}
		g := fanout.HintGroupOf(t)
		if last[g] == 0 || len(messages[last[g]-1].Tiles) == fanout.MaxHints {
			messages = append(messages, HintMessage{Group: g})
			last[g] = len(messages)
		}
		of[i] = last[g] - 1
		messages[of[i]].Tiles = append(messages[of[i]].Tiles, t)
	}
	return messages, of, nil
}

// Encode is the message on the wire.
func (m *HintMessage) Encode() []byte {
	return fanout.AppendHints(make([]byte, 0, 3+8*len(m.Tiles)), m.Tiles)
}

// subscription is the bounded buffer in front of one deliver function. Its goroutine lives only while messages wait: a
// relay holds thousands of subscriptions, most of them quiet.
type subscription[M any] struct {
	deliver  func(M)
	messages int   // that may wait
	limit    int64 // bytes that may wait

	mu      sync.Mutex
	queue   []message[M] // waiting, the oldest first
	bytes   int64        // of them
	running bool         // a goroutine delivers
	stopped bool
	idle    chan struct{} // closed when deliver will not be called again
}

type message[M any] struct {
	data M
	size int64
}

// put buffers a message, and is false if there is no room for it. One message has room whatever its size.
func (s *subscription[M]) put(m message[M]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return true // discarded, like all that waited
	}
	if len(s.queue) >= s.messages || s.bytes+m.size > s.limit && s.bytes > 0 {
		return false
	}
	s.queue = append(s.queue, m)
	s.bytes += m.size
	if !s.running {
		s.running = true
		go s.run()
	}
	return true
}

// run delivers until nothing waits.
func (s *subscription[M]) run() {
	for {
		m, ok := s.next()
		if !ok {
			return
		}
		s.deliver(m)
	}
}

// next takes the oldest message. It is false if there is none, and the goroutine is to end.
func (s *subscription[M]) next() (m M, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || s.stopped {
		s.queue, s.running = nil, false
		if s.stopped {
			close(s.idle)
		}
		return m, false
	}
	first := s.queue[0]
	s.queue[0] = message[M]{} // so that its data can be freed
	s.queue = s.queue[1:]
	s.bytes -= first.size
	return first.data, true
}

// stop discards what waits.
func (s *subscription[M]) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if !s.running {
		close(s.idle)
	}
}
