package bridge

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
)

// Config holds the optional settings of a Bridge. In every field zero means the default; durations and
// numbers must not be negative.
type Config struct {
	// HintedPoll is how long a quiet tile waits at most between reads while its hints are relied on: what a lost
	// hint costs a tile that was quiet. Default 15 s. At least 100 ms, which a quiet tile without hints waits at most.
	HintedPoll time.Duration

	// MarkEvery is how often a tile's watermarks are moved at most. What was published since the last
	// one is published again after a crash. Default 2 s, at most 40 s: how often the watermarks of a tile without
	// events are renewed at least, a third of the tile owners' lease (tile.Limits.MarkLease).
	MarkEvery time.Duration

	// PublishTimeout bounds one call to the publisher. A fan-out node that hangs delays the other tiles of a pass by
	// that much at most (less, if the publisher gives up sooner) when a tile of that node first has something. From
	// then on this tile is published apart from the others. Default 2 s.
	PublishTimeout time.Duration

	// DrainTimeout is how long Run takes at most to finish what is under way and to write the last
	// watermarks once its context has ended. Default 5 s.
	DrainTimeout time.Duration

	// Logger receives failures and what was dropped. Nil discards.
	Logger *slog.Logger

	// Hooks are called as things happen.
	Hooks Hooks

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	MinPoll time.Duration // how soon a tile whose events flow is read again while its hints are not relied on
	MaxPoll time.Duration // how long a quiet tile waits at most between reads while its hints are not relied on
	Batch   int           // how many entries of one tile a pass reads at most

	// PassBytes is about how many bytes of entries a pass reads at most, estimated from the size of those before; every
	// tile gets one entry all the same. More takes the store's time from those who commit, and catches up no faster.
	PassBytes int

	// RenewEvery is how often the watermarks of a tile without events are renewed at least. It must stay well below
	// half the lease given to stream.Log.Trim.
	RenewEvery time.Duration

	// RetryMin and RetryMax bound the wait after a failure, which doubles from one to the other, less up to half of it
	// at random.
	RetryMin, RetryMax time.Duration

	// What a Stats counts and the log reports, for tests.
	Dropped      func(dropInfo)       // an entry was not forwarded
	DeadLettered func(deadLetterInfo) // a poison entry
	Gap          func(gapInfo)        // an entry does not follow the one read before it
	Regressed    func(regressInfo)    // a failover has taken back what was read of a tile
	Lost         func(lostInfo)       // entries were trimmed before they were read
}

func (c *Config) withDefaults() (*Config, error) {
	out := setting.Of(c)
	var s setting.Check
	t := &out.tuning
	t.MinPoll = cmp.Or(t.MinPoll, 10*time.Millisecond)
	t.MaxPoll = cmp.Or(t.MaxPoll, max(t.MinPoll, 100*time.Millisecond))
	t.Batch = cmp.Or(t.Batch, stream.DefaultLimit)
	t.PassBytes = cmp.Or(t.PassBytes, 1<<20)
	t.RenewEvery = cmp.Or(t.RenewEvery, 40*time.Second)
	t.RetryMin = cmp.Or(t.RetryMin, 50*time.Millisecond)
	t.RetryMax = cmp.Or(t.RetryMax, max(t.RetryMin, 2*time.Second))
	s.From(t.MaxPoll, "HintedPoll", &out.HintedPoll, 15*time.Second)
	s.Duration("MarkEvery", &out.MarkEvery, 2*time.Second)
	s.Refuse(out.MarkEvery > t.RenewEvery, "MarkEvery", out.MarkEvery, "at most "+t.RenewEvery.String())
	s.Duration("PublishTimeout", &out.PublishTimeout, 2*time.Second)
	s.Duration("DrainTimeout", &out.DrainTimeout, 5*time.Second)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return &out, s.Err
}
