// Package standin is a deterministic stand-in for a model: a plan.Planner for tests, examples and load.
//
//	planner := standin.New(&standin.Config{Shortest: time.Second, Longest: 5 * time.Second})
//	worker, err := plan.NewWorker(plans, planner, nil)
//
// The same request takes the same time and has the same plan in every run. It is where the client of a model would be
// plugged in. Such a client, in this order:
//
//   - reads the state of the tile and returns plan.ErrNoSubject if the entity is gone;
//   - sends the request with the context that it was given, so that a call whose claim is lost is not paid further;
//   - streams the answer, and calls plan.Progress for each piece of it;
//   - returns the plan as the body of an intent of the game, and the tokens that the provider says were used;
//   - returns the provider's errors as they are: the worker tries again after a pause.
package standin

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile/plan"
)

// Config holds the optional settings of a Planner. A zero field means its default.
type Config struct {
	// Shortest and Longest bound how long a call takes. Default zero: it returns at once.
	Shortest, Longest time.Duration

	// Think makes the plan after that time. Default: the plan is the request's words.
	Think func(ctx context.Context, r plan.Request) (body []byte, err error)
}

// Planner implements plan.Planner.
type Planner struct{ cfg Config }

var _ plan.Planner = (*Planner)(nil)

// New returns a planner. A nil cfg means the defaults.
func New(cfg *Config) *Planner {
	c := setting.Of(cfg)
	c.Longest = max(c.Longest, c.Shortest)
	if c.Think == nil {
		c.Think = func(_ context.Context, r plan.Request) ([]byte, error) { return []byte(r.Words), nil }
	}
	return &Planner{c}
}

// Plan implements plan.Planner. It charges a token for four bytes, and one at least.
func (p *Planner) Plan(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
	if d := p.takes(r); d > 0 && !wait.For(ctx, d) {
		return nil, plan.Usage{}, context.Cause(ctx)
	}
	body, err := p.cfg.Think(ctx, r)
	if err != nil {
		return nil, plan.Usage{}, err
	}
	return body, plan.Usage{Model: "standin-1", Input: tokens(len(r.Words) + len(r.Entity)), Output: tokens(len(body)),
		Cached: tokens(len(r.Entity)) - 1}, nil
}

func tokens(n int) int64 { return max(1, int64(n)/4) }

// takes is how long the call takes.
func (p *Planner) takes(r plan.Request) time.Duration {
	span := p.cfg.Longest - p.cfg.Shortest
	if span <= 0 {
		return p.cfg.Shortest
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.Entity + "\x00" + r.Words))
	return p.cfg.Shortest + time.Duration(h.Sum64()%uint64(span))
}
