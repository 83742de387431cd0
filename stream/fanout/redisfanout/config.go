package redisfanout

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Bounds of the wait before a lost connection or channel is tried again; it doubles from one to the other.
const (
	retryMin = 50 * time.Millisecond
	retryMax = time.Second
)

// silentPings is how many ping intervals a connection may stay silent before it is given up.
const silentPings = 3

// Config holds the optional settings of a Fanout.
type Config struct {
	// Timeout bounds one Publish, and with it how long a node that hangs delays the messages of the
	// others. The context may end it earlier. Default 1 s.
	Timeout time.Duration

	// PingInterval is how often a subscribing connection is probed; after three intervals without a
	// sign of life it is replaced. Default 1 s.
	PingInterval time.Duration

	// TopologyInterval is how often the cluster's slot table is read again while there is something to
	// do. Default 1 s.
	TopologyInterval time.Duration

	// Buffer is how many messages wait in front of one slow subscription before further ones are
	// dropped. Zero means fanout.DefaultBuffer.
	Buffer int

	// BufferBytes is how many bytes of them may wait. Zero means fanout.DefaultBufferBytes.
	BufferBytes int

	// Hooks are called as things happen.
	Hooks Hooks
}

// Hooks report what a Fanout does. Any of them may be nil. They are called from several goroutines and
// must not block.
type Hooks struct {
	// Dropped is called for each message lost to one subscription whose buffer was full.
	Dropped func(fanout.DropInfo)
	// Connected is called when a subscribing connection is up.
	Connected func(ConnInfo)
	// Disconnected is called when one is given up, or could not be made. It is not called when the last
	// subscription stops.
	Disconnected func(ConnInfo)
	// BadHints is called for each hint message that could not be read, with a *fence.FormatError. It is
	// ignored.
	BadHints func(group int, err error)
}

// ConnInfo is one subscribing connection.
type ConnInfo struct {
	Addr     string // of the node
	Channels int    // channels that were on it
	Err      error  // why it was given up; nil for Connected
}

// Stats is what a Fanout has done since it was made, and what it holds now.
type Stats struct {
	Published     uint64 // messages handed over
	Unpublished   uint64 // messages not handed over for sure
	Received      uint64 // messages read from Redis, hint messages too
	Dropped       uint64 // messages lost to a subscription whose buffer was full, each subscription counted
	HintsSent     uint64 // wake hints handed over; a hint is one tile
	HintsUnsent   uint64 // wake hints not handed over for sure
	HintsReceived uint64 // wake hints read from Redis
	HintsDropped  uint64 // wake hints lost to a subscription whose buffer was full, each subscription counted
	BadHints      uint64 // hint messages that could not be read
	Disconnects   uint64 // subscribing connections that were lost or could not be made
	Subscriptions int    // subscriptions now, to tiles and to hint groups
	Channels      int    // channels they need
	InForce       int    // channels Redis has confirmed
	Connections   int    // subscribing connections
}

// Options returns cluster options that suit a fan-out: deadlines are obeyed, a dead node is noticed
// within a second, and the slot table is read again every half a second (the library's default of a
// minute leaves a failed-over slot unreachable for that long). Change what you need, such as credentials
// and TLS.
func Options(addrs ...string) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs:                      addrs,
		ContextTimeoutEnabled:      true,
		ClusterStateReloadInterval: 500 * time.Millisecond,
		DialTimeout:                time.Second,
		DialerRetries:              1,
		ReadTimeout:                time.Second,
		WriteTimeout:               time.Second,
		MaintNotificationsConfig:   &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func (c *Config) withDefaults() (Config, error) {
	out := setting.Of(c)
	var s setting.Check
	s.Duration("Timeout", &out.Timeout, time.Second)
	s.Duration("PingInterval", &out.PingInterval, time.Second)
	s.Duration("TopologyInterval", &out.TopologyInterval, time.Second)
	return out, s.Err
}

// call calls a hook if there is one.
func call[T any](hook func(T), info T) {
	if hook != nil {
		hook(info)
	}
}
