package bridge

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Config holds the optional settings of a Bridge. In every field zero means the default; durations and
// numbers must not be negative.
type Config struct {
	// MinPoll is how soon a tile whose events flow is read again while its hints are not relied on. Default 10 ms.
	MinPoll time.Duration

	// MaxPoll is how long a quiet tile waits at most between reads while its hints are not relied on. Default
	// 100 ms. At least MinPoll.
	MaxPoll time.Duration

	// Hints is where Run subscribes to wake hints, usually the publisher. Nil: no hints, unless the caller has
	// another source, see Bridge.Wake and Bridge.Hints.
	Hints fanout.HintSubscriber

	// HintedPoll is how long a quiet tile waits at most between reads while its hints are relied on: what a lost
	// hint costs a tile that was quiet. Default 15 s. At least MaxPoll.
	HintedPoll time.Duration

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

	// PublishTimeout bounds one call to the publisher. A fan-out node that hangs delays the other tiles of a pass by
	// that much at most (less, if the publisher gives up sooner) when a tile of that node first has something. From
	// then on this tile is published apart from the others. Default 2 s.
	PublishTimeout time.Duration

	// RetryMin and RetryMax bound the wait after a failure, which doubles from one to the other, less up to
	// half of it at random. Defaults 50 ms and 2 s.
	RetryMin, RetryMax time.Duration

	// DrainTimeout is how long Run takes at most to finish what is under way and to write the last
	// watermarks once its context has ended. Default 5 s.
	DrainTimeout time.Duration

	// Logger receives failures and what was dropped. Nil discards.
	Logger *slog.Logger

	// Hooks are called as things happen.
	Hooks Hooks
}

func (c *Config) withDefaults() (*Config, error) {
	out := setting.Of(c)
	var s setting.Check
	s.Duration("MinPoll", &out.MinPoll, 10*time.Millisecond)
	s.From(out.MinPoll, "MaxPoll", &out.MaxPoll, 100*time.Millisecond)
	s.From(out.MaxPoll, "HintedPoll", &out.HintedPoll, 15*time.Second)
	s.Number("Batch", &out.Batch, stream.DefaultLimit)
	s.Number("PassBytes", &out.PassBytes, 1<<20)
	s.Duration("MarkEvery", &out.MarkEvery, 2*time.Second)
	s.From(out.MarkEvery, "RenewEvery", &out.RenewEvery, 40*time.Second)
	s.Duration("PublishTimeout", &out.PublishTimeout, 2*time.Second)
	s.Duration("RetryMin", &out.RetryMin, 50*time.Millisecond)
	s.From(out.RetryMin, "RetryMax", &out.RetryMax, 2*time.Second)
	s.Duration("DrainTimeout", &out.DrainTimeout, 5*time.Second)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return &out, s.Err
}
