package tiered

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
	"github.com/tilefence/tilefence/internal/setting"
)

const (
	// hold is how long a frame waits at most for its predecessor while both tiers carry a tile.
	hold = 250 * time.Millisecond

	// brokerTimeout bounds one attempt to subscribe to the broker, to count an audience, and to send presence.
	brokerTimeout = time.Second
)

// Config holds the optional settings of a Fanout. In every field zero means the default; none may be negative.
type Config struct {
	// Subscribers is how many processes subscribed to a tile move it to the broker. A relay is one process, however
	// many watchers it has. Default 64.
	Subscribers int

	// Bytes is how many bytes a second, sent to all subscribers of a tile together, move it to the broker. Default
	// 20,000,000.
	Bytes int

	// Logger receives what an operator must know. Nil means slog.Default().
	Logger *slog.Logger

	// Hooks are called as things happen.
	Hooks Hooks

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	// Interval is how often a publisher looks at its tiles, and how often a subscriber says that it hears a tile on
	// the broker. It is the same in all processes. Default 500 ms.
	Interval time.Duration

	// Cooldown is how long a tile stays below half of the bounds before it moves back. Default 30 s.
	Cooldown time.Duration

	// Overlap is how long both tiers carry a tile at least before one is left. It exceeds any delay of a message on
	// either tier.
	Overlap time.Duration
}

// Hooks report what a Fanout does. Any of them may be nil. They are called from several goroutines and must not block.
type Hooks struct {
	// Moved is called when a publisher's tile changes its state.
	Moved func(MoveInfo)
}

// State is which tiers carry a tile.
type State int

// The states.
const (
	Ordinary State = 1
	Both     State = 2
	Broker   State = 3
)

func (s State) String() string { return enum.Name(s, "state", "ordinary", "both", "broker") }

// LogValue implements slog.LogValuer with the form of String.
func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// TileInfo is one tile of a publisher.
type TileInfo struct {
	Tile     fence.TileID
	State    State
	Audience int           // processes subscribed on the ordinary tier, as last counted
	Present  int           // processes that lately said that they hear it on the broker
	Bytes    int           // bytes a second sent to the audience together, over the last interval
	Since    time.Duration // how long it has been in this state
}

// MoveInfo is one tile that has changed its state.
type MoveInfo struct {
	TileInfo
	From   State
	Reason string // in words
	Fault  bool   // from Broker to Both because of a fault
}

// Stats is what a Fanout has done since it was made, and what it holds now.
type Stats struct {
	// Of the publishing side.
	OnBroker  int    // tiles in Broker now
	OnBoth    int    // tiles in Both now
	Moves     uint64 // changes of state
	FellBack  uint64 // of these, from Broker to Both for another reason than that the tile has cooled
	Rescued   uint64 // messages that the broker did not take and that went to the ordinary tier in the same call
	Uncounted uint64 // intervals without an audience, because it could not be counted

	// Of the subscribing side.
	Subscriptions int    // subscriptions now
	Joining       int    // of these, those that the broker has not confirmed yet
	Duplicates    uint64 // frames that came on both tiers
	Held          uint64 // frames that came before their predecessor
	Missed        uint64 // of these, frames delivered without it
	PresenceLost  uint64 // presence messages that could not be sent
}

func (c *Config) withDefaults() (Config, error) {
	out := setting.Of(c)
	var s setting.Check
	s.Number("Subscribers", &out.Subscribers, 64)
	s.Number("Bytes", &out.Bytes, 20_000_000)
	t := &out.tuning
	t.Interval = cmp.Or(t.Interval, 500*time.Millisecond)
	t.Cooldown = cmp.Or(t.Cooldown, 30*time.Second)
	t.Overlap = cmp.Or(t.Overlap, 2*time.Second)
	out.Logger = cmp.Or(out.Logger, slog.Default())
	return out, s.Err
}
