package redisfanout

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Bounds of the wait before a lost connection or channel is tried again; it doubles from one to the other.
const (
	retryMin = 50 * time.Millisecond
	retryMax = time.Second
)

// topologyInterval is how often the cluster's slot table is read again while there is something to do.
const topologyInterval = time.Second

// silentPings is how many ping intervals a connection may stay silent before it is given up.
const silentPings = 3

// Config holds the optional settings of a Fanout.
type Config struct {
	// World is the world that frames and hints are of. Its name begins every channel. Default: the world without a
	// name.
	World fence.World

	// Logger receives what an operator must know: connections that were lost, and messages that slow subscribers lost.
	// Nil means slog.Default().
	Logger *slog.Logger

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	// Timeout bounds one Publish, and with it how long a node that hangs delays the messages of the others.
	Timeout time.Duration

	// PingInterval is how often a subscribing connection is probed; after three intervals without a
	// sign of life it is replaced.
	PingInterval time.Duration

	// BufferBytes is how many bytes wait in front of one slow subscription before further messages are dropped, as they
	// are when fanout.DefaultBuffer of them wait. Zero means fanout.DefaultBufferBytes.
	BufferBytes int
}

// Stats is what a Fanout has done since it was made, and what it holds now.
type Stats struct {
	fanout.TrafficStats

	Disconnects uint64 // subscribing connections that were lost or could not be made
	Channels    int    // channels that the subscriptions need
	InForce     int    // of these, channels that Redis has confirmed
	Connections int    // subscribing connections
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
	s := setting.Check{Err: out.World.Validate()}
	out.tuning.Timeout = cmp.Or(out.tuning.Timeout, time.Second)
	out.tuning.PingInterval = cmp.Or(out.tuning.PingInterval, time.Second)
	out.Logger = cmp.Or(out.Logger, slog.Default())
	return out, s.Err
}
