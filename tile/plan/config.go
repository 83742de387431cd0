package plan

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
)

// Planner is the slow function: the game's, or a client of a model.
//
// Plan reads the state that it needs when it is called, and returns the body of the intent that the plan becomes; at
// most MaxBody bytes. It returns ErrNoSubject if there is nothing left to plan for. Any other error is a failed
// attempt. It is called by several goroutines at once, as many as the worker has slots.
//
// A call that takes longer than WorkerConfig.HangAfter reports [Progress], or is cancelled. When ctx ends the call
// should return: its result is not wanted any more.
type Planner interface {
	Plan(ctx context.Context, r Request) (body []byte, used Usage, err error)
}

// PlannerFunc is a Planner of one function.
type PlannerFunc func(ctx context.Context, r Request) (body []byte, used Usage, err error)

// Plan implements Planner.
func (f PlannerFunc) Plan(ctx context.Context, r Request) ([]byte, Usage, error) { return f(ctx, r) }

// Sink is where usage events go: billing's own store.
//
// Record stores events, and returns nil only when they are safe. After a crash it is called again with events that it
// has stored already, so it must be idempotent by UsageEvent.Request; in SQL, insert with "on conflict do nothing" on
// that column. The charge is then made exactly once.
type Sink interface {
	Record(ctx context.Context, events []UsageEvent) error
}

// DeskConfig holds the optional settings of a Desk. A zero field means its default; none may be negative.
type DeskConfig struct {
	// Timeout bounds one round trip. Default 1 s. A shard that hangs delays the tiles of other shards not at all.
	Timeout time.Duration

	// Answered observes answers. It is called from the desk's goroutines, so it must be quick. Default: none is called.
	Answered func(AnswerInfo)

	// Logger receives failures. Nil means slog.Default().
	Logger *slog.Logger
}

// AnswerInfo is an answer, and what the tile made of it.
type AnswerInfo struct {
	Request Request
	Kind    AnswerKind
	Took    time.Duration // since the desk was asked, or learned of the request
	Applied bool          // the tile's rules accepted the plan
	Err     error         // why the tile did not decide on the plan; nil if it did
}

func (c *DeskConfig) withDefaults() (DeskConfig, error) {
	d := setting.Of(c)
	var s setting.Check
	s.Duration("Timeout", &d.Timeout, time.Second)
	d.Logger = cmp.Or(d.Logger, slog.Default())
	return d, s.Err
}

// WorkerConfig holds the optional settings of a Worker. A zero field means its default; none may be negative.
type WorkerConfig struct {
	// Name begins the worker's name; random characters follow. At most 40 bytes. Default "worker".
	Name string

	// Slots is how many calls run at once. A quarter of them, at least one of two or more, is kept for players'
	// requests. Default 4.
	Slots int

	// Lease is how long a claim outlives its worker. It is renewed four times in that. Default 8 s; at least 50 ms. A
	// killed worker's requests run again after a lease and a second.
	Lease time.Duration

	// HangAfter is how long a call may take from its beginning, or from the last Progress, to its end. Default 60 s.
	HangAfter time.Duration

	// Attempts is how often a request is run until it is a dead letter. Default 5.
	Attempts int

	// Pause is the longest pause after the first failure. It doubles with each, up to 30 times as much; each pause is
	// drawn from the whole range. Default 1 s.
	Pause time.Duration

	// DrainTimeout is how long running calls may take to end after Run's context. Default 60 s.
	DrainTimeout time.Duration

	// Ended observes calls. It is called from the calls' goroutines, so it must be quick. Default: none is called.
	Ended func(CallInfo)

	// Logger receives failures, lost claims and the progress of a drain. Nil means slog.Default().
	Logger *slog.Logger
}

// CallInfo is one call of the planner.
type CallInfo struct {
	Request Request // Request.Age is how long it had waited
	Took    time.Duration
	Usage   Usage
	Err     error // of the planner; ErrClaimLost if the result was not wanted any more
}

func (c *WorkerConfig) withDefaults() (WorkerConfig, error) {
	d := setting.Of(c)
	d.Name, d.Slots, d.Attempts = cmp.Or(d.Name, "worker"), cmp.Or(d.Slots, 4), cmp.Or(d.Attempts, 5)
	d.Logger = cmp.Or(d.Logger, slog.Default())
	var s setting.Check
	s.Refuse(len(d.Name) > 40, "Name", d.Name, "at most 40 bytes")
	s.Refuse(d.Slots < 1 || d.Slots > 4096, "Slots", d.Slots, "1 to 4096, or zero for the default")
	s.Refuse(d.Attempts < 1, "Attempts", d.Attempts, "at least 1, or zero for the default")
	s.From(50*time.Millisecond, "Lease", &d.Lease, 8*time.Second)
	s.Duration("HangAfter", &d.HangAfter, time.Minute)
	s.From(time.Millisecond, "Pause", &d.Pause, time.Second)
	s.Duration("DrainTimeout", &d.DrainTimeout, time.Minute)
	d.Name += "-" + rand.Text()[:13]
	return d, s.Err
}

// reserved is how many slots take players' requests only.
func (c *WorkerConfig) reserved() int {
	if c.Slots < 2 {
		return 0
	}
	return max(1, c.Slots/4)
}

// checkStore refuses a missing store, or one with an impossible number of shards.
func checkStore(s Store) error {
	if s == nil {
		return &fence.ArgumentError{Field: "store", Value: "nil", Want: "a plan.Store"}
	}
	if n := s.Shards(); n < 1 || n > 64 {
		return &fence.ArgumentError{Field: "store", Value: fmt.Sprint(n, " shards"), Want: "1 to 64 shards"}
	}
	return nil
}
