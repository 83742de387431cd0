package bridge

import (
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Defaults of Config.
const (
	DefaultMinPoll        = 10 * time.Millisecond
	DefaultMaxPoll        = 100 * time.Millisecond
	DefaultHintedPoll     = 15 * time.Second
	DefaultLinger         = time.Second
	DefaultPollRate       = 10_000
	DefaultBatch          = stream.DefaultLimit
	DefaultPassBytes      = 1 << 20
	DefaultMarkEvery      = 2 * time.Second
	DefaultRenewEvery     = 40 * time.Second
	DefaultStoreTimeout   = 2 * time.Second
	DefaultPublishTimeout = 2 * time.Second
	DefaultRetryMin       = 50 * time.Millisecond
	DefaultRetryMax       = 2 * time.Second
	DefaultDrainTimeout   = 5 * time.Second
)

// Config holds the optional settings of a Bridge. In every field zero means the default; durations and
// numbers must not be negative.
type Config struct {
	// MinPoll is how soon a tile whose events flow is read again if nothing tells when the next is due:
	// neither hints nor a rhythm. Default 10 ms.
	MinPoll time.Duration

	// MaxPoll is how long a quiet tile waits at most between reads while no hints arrive. Default 100 ms. At
	// least MinPoll.
	MaxPoll time.Duration

	// Hints tells of wake hints while Run runs; usually the publisher is one. Nil: no hints, unless the
	// caller has another source, see Bridge.Wake and Bridge.Hints.
	Hints fanout.HintSubscriber

	// HintedPoll is how long a quiet tile waits at most between reads while hints arrive: what a lost hint
	// costs a tile that was quiet. Default 15 s. At least MaxPoll.
	HintedPoll time.Duration

	// Linger is how long after its last event a tile still counts as one whose events flow; then the
	// time between reads doubles with each that finds nothing, up to MaxPoll. It should exceed the
	// tick, or a tile that commits once a tick has gone quiet before each. Default 1 s, two ticks.
	Linger time.Duration

	// PollRate is how many tiles a second are read to look for what may have come irregularly: of the tiles
	// whose events flow, and as much again of those in rhythm between their beats. With more of them than that
	// allows, the former are read less often than every MinPoll, though not less than every MaxPoll; the
	// latter less often than every MaxPoll. Default 10,000: that is 100 and 1,000 tiles.
	PollRate int

	// Batch is how many entries of one tile a pass reads at most. Default 128.
	Batch int

	// PassBytes is about how many bytes of entries a pass reads at most, estimated from the size of
	// those before; every tile gets one entry all the same. Default 1 MiB: more takes the store's
	// time from those who commit, and catches up no faster.
	PassBytes int

	// MarkEvery is how often a tile's watermarks are moved at most. What was published since the last
	// one is published again after a crash. Default 2 s.
	MarkEvery time.Duration

	// RenewEvery is how often the watermarks of a tile without events are renewed at least. It must stay
	// well below the lease given to stream.Log.Trim. Default 40 s, a third of the tile owners' default
	// lease. At least MarkEvery.
	RenewEvery time.Duration

	// StoreTimeout bounds one call to the log. Default 2 s.
	StoreTimeout time.Duration

	// PublishTimeout bounds one call to the publisher. It is also how long a fan-out node that hangs can
	// hold up the other tiles of a pass (less, if the publisher gives up sooner): when a tile of that node first
	// has something. From then on it is published apart from the others. Tiles that were quiet when the node
	// began to hang do so one after another as they wake. Default 2 s.
	PublishTimeout time.Duration

	// RetryMin and RetryMax bound the wait after a failure, which doubles from one to the other and is
	// jittered by half. Defaults 50 ms and 2 s.
	RetryMin, RetryMax time.Duration

	// DrainTimeout is how long Run takes at most to finish what is under way and to write the last
	// watermarks once its context has ended. Default 5 s.
	DrainTimeout time.Duration

	// Logger receives failures and what was dropped. Nil discards.
	Logger *slog.Logger

	// Hooks are called as things happen.
	Hooks Hooks
}

func (c *Config) withDefaults() (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	if err := out.fill(); err != nil {
		return Config{}, err
	}
	switch {
	case out.MaxPoll < out.MinPoll:
		return Config{}, &fence.ArgumentError{Field: "MaxPoll", Value: out.MaxPoll, Want: "at least MinPoll, " + out.MinPoll.String()}
	case out.HintedPoll < out.MaxPoll:
		return Config{}, &fence.ArgumentError{Field: "HintedPoll", Value: out.HintedPoll, Want: "at least MaxPoll, " + out.MaxPoll.String()}
	case out.RenewEvery < out.MarkEvery:
		return Config{}, &fence.ArgumentError{Field: "RenewEvery", Value: out.RenewEvery, Want: "at least MarkEvery, " + out.MarkEvery.String()}
	case out.RetryMax < out.RetryMin:
		return Config{}, &fence.ArgumentError{Field: "RetryMax", Value: out.RetryMax, Want: "at least RetryMin, " + out.RetryMin.String()}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	out.Hooks = out.Hooks.filled()
	return out, nil
}

// fill replaces zeros by defaults.
func (c *Config) fill() error {
	for _, d := range []struct {
		field string
		value *time.Duration
		zero  time.Duration
	}{
		{"MinPoll", &c.MinPoll, DefaultMinPoll},
		{"MaxPoll", &c.MaxPoll, max(DefaultMaxPoll, c.MinPoll)},
		{"HintedPoll", &c.HintedPoll, max(DefaultHintedPoll, c.MaxPoll, c.MinPoll)},
		{"Linger", &c.Linger, DefaultLinger},
		{"MarkEvery", &c.MarkEvery, DefaultMarkEvery},
		{"RenewEvery", &c.RenewEvery, max(DefaultRenewEvery, c.MarkEvery)},
		{"StoreTimeout", &c.StoreTimeout, DefaultStoreTimeout},
		{"PublishTimeout", &c.PublishTimeout, DefaultPublishTimeout},
		{"RetryMin", &c.RetryMin, DefaultRetryMin},
		{"RetryMax", &c.RetryMax, max(DefaultRetryMax, c.RetryMin)},
		{"DrainTimeout", &c.DrainTimeout, DefaultDrainTimeout},
	} {
		if *d.value < 0 {
			return &fence.ArgumentError{Field: d.field, Value: *d.value, Want: "a duration, or zero for the default"}
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	for _, n := range []struct {
		field string
		value *int
		zero  int
	}{
		{"Batch", &c.Batch, DefaultBatch},
		{"PassBytes", &c.PassBytes, DefaultPassBytes},
		{"PollRate", &c.PollRate, DefaultPollRate},
	} {
		if *n.value < 0 {
			return &fence.ArgumentError{Field: n.field, Value: *n.value, Want: "a positive number, or zero for the default"}
		}
		if *n.value == 0 {
			*n.value = n.zero
		}
	}
	return nil
}
