package natsfanout

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Delays before servers that could not be reached are tried again.
const (
	retryWait   = 100 * time.Millisecond
	retryJitter = 400 * time.Millisecond
)

// silentPings is how many pings may be unanswered before the connection is given up.
const silentPings = 2

// Config holds the optional settings of a Fanout. In every field zero means the default; none may be negative.
type Config struct {
	// Timeout bounds one Publish, one attempt to connect, and one write. Default 1 s.
	Timeout time.Duration

	// PingInterval is how often the connection is probed; after three intervals without an answer it is replaced.
	// Default 1 s.
	PingInterval time.Duration

	// Buffer is how many messages wait in front of one slow subscription before further ones are dropped. Zero means
	// fanout.DefaultBuffer.
	Buffer int

	// BufferBytes is how many bytes of them may wait; one message is accepted whatever its size. Zero means
	// fanout.DefaultBufferBytes.
	BufferBytes int

	// Options are added to those of the connection: credentials, TLS, a name. They must not replace its handlers or
	// its behaviour when it is lost.
	Options []nats.Option

	// Logger receives what an operator must know. Nil means slog.Default().
	Logger *slog.Logger

	// Hooks are called as things happen.
	Hooks Hooks
}

// Hooks report what a Fanout does. Any of them may be nil. They are called from several goroutines and must not block.
type Hooks struct {
	// Dropped is called for each message lost to one subscription whose buffer was full.
	Dropped func(fanout.DropInfo)
	// Connected is called when the connection is up, for the first time or again.
	Connected func(ConnInfo)
	// Disconnected is called when it is lost. It is not called after Close.
	Disconnected func(ConnInfo)
	// Refused is called for each refusal by the server: a permission that is missing, most likely.
	Refused func(error)
	// BadHints is called for each hint message that could not be read, with a *fence.FormatError. It is ignored.
	BadHints func(group int, err error)
}

// ConnInfo is a connection to one server.
type ConnInfo struct {
	Server string // its address, as far as it is known
	Err    error  // why the connection was lost; nil for Connected
}

// Stats is what a Fanout has done since it was opened, and what it holds now.
type Stats struct {
	Published     uint64 // messages handed over
	Unpublished   uint64 // messages not handed over for sure
	Received      uint64 // messages read from NATS, hint messages too
	Dropped       uint64 // messages lost to a subscription whose buffer was full, each subscription counted
	HintsSent     uint64 // wake hints handed over; a hint is one tile
	HintsUnsent   uint64 // wake hints not handed over for sure
	HintsReceived uint64 // wake hints read from NATS
	HintsDropped  uint64 // wake hints lost to a subscription whose buffer was full, each subscription counted
	BadHints      uint64 // hint messages that could not be read
	Refused       uint64 // refusals by the server
	Disconnects   uint64 // connections lost
	Subscriptions int    // subscriptions now, to tiles and to hint groups
	Subjects      int    // subjects they need
	Connected     bool   // there is a connection now
}

func (c *Config) withDefaults() (Config, error) {
	out := setting.Of(c)
	var s setting.Check
	s.Duration("Timeout", &out.Timeout, time.Second)
	s.Duration("PingInterval", &out.PingInterval, time.Second)
	out.Logger = cmp.Or(out.Logger, slog.Default())
	return out, s.Err
}

// call calls a hook if there is one.
func call[T any](hook func(T), info T) {
	if hook != nil {
		hook(info)
	}
}
