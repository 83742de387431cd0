// Package fanout is the delivery plane: it carries committed frames from the bridge to the relays,
// one channel a tile, at most once.
//
// It promises little on purpose. A message may be lost (a node died, a subscriber was slow); it is never
// altered, and one publisher's messages on one channel arrive in order. A listener compares each
// frame's predecessor with the last position it saw and repairs from the coordination store, so delivery
// needs no acknowledgement and its load can never reach the commit path.
//
// It also carries wake hints the other way, from the owners to the bridge: "these tiles have new
// entries", see [Hinter]. They spare the bridge polls and delay, and may be lost as well: then it polls.
//
// Back ends: memfanout in one process, redisfanout on a Redis 7 cluster with sharded pub/sub, natsfanout on NATS.
// Package tiered stands before two of them and moves single tiles between them. All pass fanouttest.Run and are
// safe for concurrent use.
package fanout

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// Message is an encoded stream.Frame on its tile's channel.
type Message struct {
	Tile fence.TileID
	Data []byte
}

// Defaults of the bounds in front of one slow subscription.
const (
	DefaultBuffer      = 256     // messages that wait
	DefaultBufferBytes = 8 << 20 // bytes of them
)

// TrafficStats is what a fan-out over a network has carried since it was made.
type TrafficStats struct {
	Published     uint64 // messages handed over
	Unpublished   uint64 // messages not handed over for sure
	Received      uint64 // messages read from the network, hint messages too
	Dropped       uint64 // messages lost to a subscription whose buffer was full, each subscription counted
	HintsSent     uint64 // wake hints handed over; a hint is one tile
	HintsUnsent   uint64 // wake hints not handed over for sure
	HintsReceived uint64 // wake hints read from the network
	HintsDropped  uint64 // wake hints lost to a subscription whose buffer was full, each subscription counted
	BadHints      uint64 // hint messages that could not be read
	Subscriptions int    // subscriptions now, to tiles and to hint groups
}

// Publisher sends messages.
type Publisher interface {
	// Publish sends messages in order, in as few round trips as the back end allows. It returns how many
	// from the front were handed over for sure; the rest may or may not have been. A message without
	// subscribers is handed over. A publisher with several nodes, of which some may fail, returns a
	// *PublishError, which knows each message's fate. The publisher does not keep Data after it returns, but
	// subscribers of an in-process back end share it: do not change it.
	Publish(ctx context.Context, messages []Message) (sent int, err error)
}

// PublishError is a Publish of which some messages, or a PublishHints of which some hints, were not handed over for
// sure. It knows which were, so that the trouble of one node does not make the caller send the messages of the others
// again.
type PublishError struct {
	Handed []bool // by message of the call, or by tile of the hints: it was handed over for sure
	Err    error  // the first failure, or those of several tiers
}

func (e *PublishError) Error() string {
	failed := 0
	for _, handed := range e.Handed {
		if !handed {
			failed++
		}
	}
	return fmt.Sprintf("%d of %d not published, the first: %v", failed, len(e.Handed), e.Err)
}

// Unwrap gives the failure. Of back ends over a network it is a *fence.StoreError: with fence.ErrNotApplied if the
// message was refused or never sent, with fence.ErrUnknownOutcome if it may have been sent.
func (e *PublishError) Unwrap() error { return e.Err }

// Subscriber receives messages.
type Subscriber interface {
	// Subscribe calls deliver for every message on the tile's channel until stop is called. It returns
	// after the subscription is in force, so that a message published later is received unless lost.
	// One that was published shortly before may be received too: it was under way.
	// deliver is called in order, one call at a time for each subscription, and must not block: a subscriber
	// that falls behind loses messages. The data is shared: do not change it. A broken connection is
	// re-established by itself; what was missed meanwhile is lost. stop waits for a running deliver and
	// is safe to call twice, but not from deliver itself.
	Subscribe(ctx context.Context, tile fence.TileID, deliver func(data []byte)) (stop func(), err error)
}

// Audience is implemented by a back end that can count its subscribers.
type Audience interface {
	// Audience returns how many processes are subscribed to each tile's channel. It costs a few round trips,
	// however many tiles there are. If the count of one cannot be had, the result is an error.
	Audience(ctx context.Context, tiles []fence.TileID) ([]int, error)
}

// PresencePublisher sends presence: "this process hears these tiles here". It lets a publisher know that a channel
// reaches its subscribers before it relies on it. Presence may be lost; it is repeated for as long as it holds.
type PresencePublisher interface {
	// PublishPresence sends the presence of a process, a number that no other process has, on each tile. It tries
	// once. A *fence.ArgumentError if a tile is zero.
	PublishPresence(ctx context.Context, process uint64, tiles []fence.TileID) error
}

// PresenceSubscriber receives presence.
type PresenceSubscriber interface {
	// SubscribePresence calls deliver with the number of each process that sends presence on the tile, until stop is
	// called. It does not wait. deliver is called one call at a time and must not block. stop waits for a running
	// call and is safe to call twice, but not from deliver. A *fence.ArgumentError if the tile is zero or deliver nil.
	SubscribePresence(tile fence.TileID, deliver func(process uint64)) (stop func(), err error)
}

const (
	presenceVersion = 1
	presenceSize    = 9 // version and process
)

// AppendPresence appends an encoded presence message to dst: the version, 1 byte, 1; then the number of the process,
// 8 bytes, big-endian.
func AppendPresence(dst []byte, process uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, presenceVersion), process)
}

// DecodePresence reads a presence message. ok is false if it cannot be read; such a message is to be ignored.
func DecodePresence(p []byte) (process uint64, ok bool) {
	if len(p) != presenceSize || p[0] != presenceVersion {
		return 0, false
	}
	return binary.BigEndian.Uint64(p[1:]), true
}
