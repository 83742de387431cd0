package fanout

import (
	"context"
	"encoding/binary"

	"github.com/tilefence/tilefence/fence"
)

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
