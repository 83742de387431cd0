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
//
// The client of a model, in this order:
//
//   - reads the state of the tile and returns ErrNoSubject if the entity is gone;
//   - sends the request with the context that it was given, so that a call whose claim is lost is not paid further;
//   - streams the answer, and calls Progress for each piece of it;
//   - returns the plan as the body of an intent of the game, and the tokens that the provider says were used;
//   - returns the provider's errors as they are: the worker tries again after a pause.
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

// WorkerConfig holds the optional settings of a Worker. A zero field means its default; none may be negative.
type WorkerConfig struct {
	// Slots is how many calls run at once. A quarter of them, at least one of two or more, is kept for players'
	// requests. Default 4.
	Slots int

	// Lease is how long a claim outlives its worker. It is renewed four times in that. Default 8 s; at least 50 ms. A
	// killed worker's requests run again after a lease and a second.
	Lease time.Duration

	// HangAfter is how long a call may take from its beginning, or from the last Progress, to its end. Default 60 s.
	HangAfter time.Duration

	// DrainTimeout is how long running calls may take to end after Run's context. Default 60 s.
	DrainTimeout time.Duration

	// Logger receives failures, lost claims and the progress of a drain. Nil means slog.Default().
	Logger *slog.Logger

	name string // "worker" and random characters
}

// A request that failed is run again after a pause, and is a dead letter when its last attempt has failed.
const (
	attempts     = 5
	firstPause   = time.Second      // at most, after the first failure. It doubles with each
	longestPause = 30 * time.Second // at most; each pause is drawn from the whole range
)

func (c *WorkerConfig) withDefaults() (WorkerConfig, error) {
	d := setting.Of(c)
	d.Slots, d.Logger = cmp.Or(d.Slots, 4), cmp.Or(d.Logger, slog.Default())
	var s setting.Check
	s.Refuse(d.Slots < 1 || d.Slots > 4096, "Slots", d.Slots, "1 to 4096, or zero for the default")
	s.From(50*time.Millisecond, "Lease", &d.Lease, 8*time.Second)
	s.Duration("HangAfter", &d.HangAfter, time.Minute)
	s.Duration("DrainTimeout", &d.DrainTimeout, time.Minute)
	d.name = "worker-" + rand.Text()[:13]
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
