package bridge

import (
	"cmp"
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
	DefaultPollRate       = 30_000
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
	// MinPoll is how soon a tile whose events flow is read again while its hints are not relied on. Default 10 ms.
	MinPoll time.Duration

	// MaxPoll is how long a quiet tile waits at most between reads while its hints are not relied on. Default
	// 100 ms. At least MinPoll.
	MaxPoll time.Duration

	// PollRate is how many tiles whose events flow are read in a second to look for more while hints are not
	// relied on. If there are more of these tiles than it allows, each is read less often than every MinPoll, though
	// not less often than every MaxPoll. Default 30,000: 300 tiles every 10 ms, 3,000 tiles every 100 ms.
	PollRate int

	// Hints is where Run subscribes to wake hints, usually the publisher. Nil: no hints, unless the caller has
	// another source, see Bridge.Wake and Bridge.Hints.
	Hints fanout.HintSubscriber

	// HintedPoll is how long a quiet tile waits at most between reads while its hints are relied on: what a lost
	// hint costs a tile that was quiet. Default 15 s. At least MaxPoll.
	HintedPoll time.Duration

	// Linger is how long after its last event a tile still counts as one whose events flow. Then the time between
	// reads doubles with each that finds nothing, up to MaxPoll, or HintedPoll with hints. A tile whose events flow
	// and whose hint is lost waits for the next hint, or for Linger. It should exceed the tick, or a tile that
	// commits once a tick has gone quiet before each. Default 1 s, two ticks.
	Linger time.Duration

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
	// well below half the lease given to stream.Log.Trim. Default 40 s, a third of the tile owners' default
	// lease. At least MarkEvery.
	RenewEvery time.Duration

	// StoreTimeout bounds one call to the log. Default 2 s.
	StoreTimeout time.Duration

	// PublishTimeout bounds one call to the publisher. A fan-out node that hangs delays the other tiles of a pass by
	// that much at most (less, if the publisher gives up sooner) when a tile of that node first has something. From
	// then on this tile is published apart from the others. Default 2 s.
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

// withDefaults returns the settings with zeros replaced by defaults.
func (c *Config) withDefaults() (*Config, error) {
	out := Config{}
	if c != nil {
		out = *c
	}
	out.MinPoll = cmp.Or(out.MinPoll, DefaultMinPoll)
	out.MaxPoll = cmp.Or(out.MaxPoll, max(DefaultMaxPoll, out.MinPoll))
	out.PollRate = cmp.Or(out.PollRate, DefaultPollRate)
	out.HintedPoll = cmp.Or(out.HintedPoll, max(DefaultHintedPoll, out.MaxPoll))
	out.Linger = cmp.Or(out.Linger, DefaultLinger)
	out.Batch = cmp.Or(out.Batch, DefaultBatch)
	out.PassBytes = cmp.Or(out.PassBytes, DefaultPassBytes)
	out.MarkEvery = cmp.Or(out.MarkEvery, DefaultMarkEvery)
	out.RenewEvery = cmp.Or(out.RenewEvery, max(DefaultRenewEvery, out.MarkEvery))
	out.StoreTimeout = cmp.Or(out.StoreTimeout, DefaultStoreTimeout)
	out.PublishTimeout = cmp.Or(out.PublishTimeout, DefaultPublishTimeout)
	out.RetryMin = cmp.Or(out.RetryMin, DefaultRetryMin)
	out.RetryMax = cmp.Or(out.RetryMax, max(DefaultRetryMax, out.RetryMin))
	out.DrainTimeout = cmp.Or(out.DrainTimeout, DefaultDrainTimeout)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return &out, out.validate()
}

func (c *Config) validate() error {
	for _, d := range []struct {
		field        string
		value, least time.Duration
	}{
		{"MinPoll", c.MinPoll, 0},
		{"MaxPoll", c.MaxPoll, c.MinPoll},
		{"HintedPoll", c.HintedPoll, c.MaxPoll},
		{"Linger", c.Linger, 0},
		{"MarkEvery", c.MarkEvery, 0},
		{"RenewEvery", c.RenewEvery, c.MarkEvery},
		{"StoreTimeout", c.StoreTimeout, 0},
		{"PublishTimeout", c.PublishTimeout, 0},
		{"RetryMin", c.RetryMin, 0},
		{"RetryMax", c.RetryMax, c.RetryMin},
		{"DrainTimeout", c.DrainTimeout, 0},
	} {
		if d.value < d.least {
			want := "at least " + d.least.String() + ", or zero for the default"
			return &fence.ArgumentError{Field: d.field, Value: d.value, Want: want}
		}
	}
	for _, n := range []struct {
		field string
		value int
	}{{"Batch", c.Batch}, {"PassBytes", c.PassBytes}, {"PollRate", c.PollRate}} {
		if n.value < 0 {
			return &fence.ArgumentError{Field: n.field, Value: n.value,
				Want: "a positive number, or zero for the default"}
		}
	}
	return nil
}
