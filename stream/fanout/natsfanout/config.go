package natsfanout

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tilefence/tilefence/fence"
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
	// World is the world that frames and hints are of. Its name and a dot begin every subject. NATS keeps no record of
	// it: the ID is compared with those of the processes that run, see [Fanout.EnterWorld]. Default: the world without
	// a name.
	World fence.World

	// Options are added to those of the connection: credentials, TLS, a name. They must not replace its handlers or
	// its behaviour when it is lost.
	Options []nats.Option

	// Logger receives what an operator must know. Nil means slog.Default().
	Logger *slog.Logger

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	Timeout      time.Duration // of one Publish, one attempt to connect, and one write
	PingInterval time.Duration // how often the connection is probed; after three without an answer it is replaced
}

// Stats is what a Fanout has done since it was opened, and what it holds now.
type Stats struct {
	fanout.TrafficStats

	Refused     uint64 // refusals by the server: a permission that is missing, most likely
	BadAnswers  uint64 // answers about a world that could not be read
	Disconnects uint64 // connections lost
	Subjects    int    // subjects that the subscriptions need
	Connected   bool   // there is a connection now
}

func (c *Config) withDefaults() (Config, error) {
	out := setting.Of(c)
	s := setting.Check{Err: out.World.Validate()}
	out.tuning.Timeout = cmp.Or(out.tuning.Timeout, time.Second)
	out.tuning.PingInterval = cmp.Or(out.tuning.PingInterval, time.Second)
	out.Logger = cmp.Or(out.Logger, slog.Default())
	return out, s.Err
}
