//go:build unix

package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
)

// Config holds the settings of a campaign. The zero value is valid, and runs every fault once.
type Config struct {
	// Seed decides the faults, their targets and times, the tiles and the traffic of every run. What the
	// machine makes of them differs from time to time. Zero draws one.
	Seed uint64

	// Duration is how long new runs are begun. Zero runs every fault of Faults once.
	Duration time.Duration

	// Faults are the kinds to choose from. Nil means all.
	Faults []*Fault

	// Dir is where the histories of failed runs are kept. Default a new directory in the system's
	// temporary one.
	Dir string

	// Progress gets a line for each run. Nil discards them.
	Progress io.Writer

	// Replicas is how many replicas each master has, 1 or 2. Zero means either, as the seed says. Faults that leave a
	// shard one node, or have files to lose, always have one.
	Replicas int

	// Followers gives every tile a warm follower, but in runs of staged faults. It takes the tile when its owner
	// falls silent: sooner than the supervisor would, and whenever the machine makes it look so. Otherwise the seed
	// decides for each run whether there are any.
	Followers bool

	// Brief makes every fault last as short as it can, and leaves out, unless Faults names them, those that another
	// one includes.
	Brief bool

	// Unbroken is how long one run takes that comes last, in which faults follow one another while Travellers cross
	// from tile to tile; a census is its verdict. Without a Duration it is the only run. Zero: there is none.
	Unbroken time.Duration

	// Travellers is how many there are in the unbroken run, or some more: each tile has as many. Default 10,000.
	Travellers int

	// Durable gives all tiles of the unbroken run a journal, class tile.WriteBehind, and has every copy of what
	// coordination holds be lost among the faults. Otherwise its tiles are of all classes but that.
	Durable bool

	// ServeWithin is how long tiles may take to serve after the fault is removed. Default 30 s.
	ServeWithin time.Duration
}

// The system of every run.
const (
	workerCount = 3 // processes that run tiles
	tileCount   = 6 // as many on each of the three masters
	tick        = 50 * time.Millisecond
)

func (c Config) withDefaults() Config {
	c.Seed = cmp.Or(c.Seed, rand.Uint64()>>32|1) // short enough to be typed
	c.Travellers = cmp.Or(c.Travellers, 10_000)
	if c.Faults == nil {
		c.Faults = Faults()
		if c.Brief {
			c.Faults = slices.DeleteFunc(c.Faults, func(f *Fault) bool { return f.within != "" })
		}
	}
	c.Progress = cmp.Or(c.Progress, io.Discard)
	c.ServeWithin = cmp.Or(c.ServeWithin, 30*time.Second)
	return c
}

func (c *Config) validate() error {
	switch {
	case c.Replicas < 0 || c.Replicas > 2:
		return fmt.Errorf("robustness: %d replicas of each master: there may be 1 or 2", c.Replicas)
	case c.Travellers < 0 || c.Unbroken < 0:
		return fmt.Errorf("robustness: %d travellers for %v: neither is negative", c.Travellers, c.Unbroken)
	}
	return nil
}

// Summary is what a campaign gave.
type Summary struct {
	Config  Config
	Began   time.Time
	Took    time.Duration
	Results []Result
}

// Failed reports whether a run found something.
func (s *Summary) Failed() bool {
	return slices.ContainsFunc(s.Results, func(r Result) bool { return r.Failed() })
}

// Run runs a campaign until its time is over or ctx ends, which ends the run under way without a verdict.
// The error is of what every run needs: the servers. What runs find is in the summary.
func Run(ctx context.Context, cfg Config) (*Summary, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "tilefence-robustness-*")
		if err != nil {
			return nil, err
		}
		cfg.Dir = dir
		defer func() { _ = os.Remove(dir) }() // fails, as it should, if anything is in it
	}
	logging.Disable() // it prints each refused connection; here they are meant
	s := &Summary{Config: cfg, Began: time.Now()}
	defer func() { s.Took = time.Since(s.Began) }()
	var g *ground
	defer func() { g.close() }()
	for number := 1; ctx.Err() == nil; number++ {
		fault, seed := s.next(number)
		if fault == nil {
			break
		}
		replicas := cfg.replicas(fault, number)
		if g != nil && (g.servers.AppendOnly != fault.appendOnly || g.replicas != replicas) {
			g.close()
			g = nil
		}
		if g == nil {
			var err error
			if g, err = open(ctx, fault.appendOnly, replicas); err != nil {
				return s, err
			}
		}
		result := g.begin(ctx, cfg, number, fault, seed)
		if ctx.Err() != nil {
			_ = os.RemoveAll(result.Dir)
			break
		}
		s.Results = append(s.Results, result)
		_, _ = fmt.Fprintln(cfg.Progress, result.line())
		if !result.Failed() {
			_ = os.RemoveAll(result.Dir)
		}
		if result.Err != nil { // whatever hung may still hang
			g.close()
			g = nil
		}
	}
	return s, nil
}

// Ordinary reports whether there were runs of one fault.
func (s *Summary) Ordinary() bool {
	return slices.ContainsFunc(s.Results, func(r Result) bool { return r.Fault != unbroken })
}

// next gives the fault and the seed of a run: the unbroken one comes last. Nil: there is none any more.
func (s *Summary) next(number int) (*Fault, uint64) {
	c, last := &s.Config, len(s.Results)-1
	fault, seed := c.draw(number)
	switch {
	case last >= 0 && s.Results[last].Fault == unbroken:
		return nil, 0
	case c.Duration > 0 && time.Since(s.Began) < c.Duration,
		c.Duration == 0 && c.Unbroken == 0 && last+1 < len(c.Faults):
		return fault, seed
	case c.Unbroken > 0:
		return unbroken, seed
	}
	return nil, 0
}

// draw gives the fault and the seed of a run. Every fault comes once before any comes again. The first run's
// seed is the campaign's, so that a campaign with a run's own seed and fault begins with that run.
func (c *Config) draw(number int) (*Fault, uint64) {
	n := len(c.Faults)
	round := rand.New(rand.NewPCG(c.Seed, uint64((number-1)/n))).Perm(n)
	seed := c.Seed
	if number > 1 {
		seed = rand.New(rand.NewPCG(c.Seed, uint64(number))).Uint64() >> 32
	}
	return c.Faults[round[(number-1)%n]], seed
}

// replicas is how many replicas each master has in a run. All runs of a round have as many, if their faults allow:
// other servers take time to start.
func (c *Config) replicas(f *Fault, number int) int {
	round := uint64((number - 1) / len(c.Faults))
	switch {
	case f.alone, f.appendOnly:
		return 1
	case c.Replicas > 0:
		return c.Replicas
	}
	return 1 + int((c.Seed+round)%2)
}

// begin runs one run.
func (g *ground) begin(ctx context.Context, cfg Config, number int, fault *Fault, seed uint64) Result {
	r := &run{ground: g, cfg: cfg, rng: rand.New(rand.NewPCG(seed, 0)), Result: Result{Number: number, Seed: seed,
		Replicas: g.replicas, Fault: fault,
		Dir: filepath.Join(cfg.Dir, fmt.Sprintf("run-%04d-%s-seed-%d", number, fault.Name, seed))}}
	r.execute(ctx)
	return r.Result
}

// open starts the servers and connects to them. appendOnly and replicas are of the coordination store.
func open(ctx context.Context, appendOnly bool, replicas int) (*ground, error) {
	g := &ground{replicas: replicas}
	g.network, g.noNetwork = newNetwork(ctx) // first: in a new namespace even loopback is down
	stack, err := devstack.Start(ctx, devstack.Config{OwnAddresses: true, AppendOnly: appendOnly, Replicas: replicas,
		Parts: []devstack.Part{devstack.Coordination, devstack.Fanout, devstack.Postgres, devstack.DynamoDB}})
	if err != nil {
		return nil, err
	}
	g.stack, g.stops = stack, append(g.stops, stack.Stop)
	g.dynamo, _ = stack.Process("dynamodb")
	g.fanout = fanoutNodes(stack)
	g.cluster = &cluster{serverfault.Cluster{Cluster: stack.Cluster()}}
	g.stops = append(g.stops, g.cluster.Close)
	if g.pair, err = stack.PostgresPair(); err != nil {
		return g, err
	}
	all := servers{Coordination: stack.CoordAddrs, Fanout: stack.FanoutAddrs, Postgres: g.pair.URL(),
		Dynamo: stack.DynamoURL, Name: "campaign", AppendOnly: appendOnly}
	if g.process, err = all.connect(ctx, campaignHost, ""); err != nil {
		return g, err
	}
	g.stops = append(g.stops, g.process.close)
	g.servers, g.cluster.Client = all, g.coordination
	return g, errors.Join(g.Store.(*redisfence.Store).Load(ctx), g.Authority.(*pgfence.Authority).Migrate(ctx))
}

// close stops what open started, last things first.
func (g *ground) close() {
	if g == nil {
		return
	}
	for i := len(g.stops) - 1; i >= 0; i-- {
		g.stops[i]()
	}
}

// line is the result in a line of progress.
func (r *Result) line() string {
	head := fmt.Sprintf("run %d: %s, seed %d", r.Number, r.Fault.Name, r.Seed)
	if r.Census != nil {
		head += ": " + r.Census.String()
	}
	switch {
	case r.Skipped != "":
		return head + ": skipped: " + r.Skipped
	case r.Err != nil:
		return fmt.Sprintf("%s: FAILED after %v: %v\n  %s\n  kept in %s", head, r.Took.Round(time.Millisecond), r.Err,
			strings.Join(r.State, "\n  "), r.Dir)
	case len(r.Violations) > 0:
		text := fmt.Sprintf("%s: %d VIOLATIONS on %s, kept in %s", head, len(r.Violations), r.Target, r.Dir)
		for i, v := range r.Violations {
			if i == 10 {
				return text + "\n  and more"
			}
			text += "\n  " + v.String()
		}
		return text
	}
	return fmt.Sprintf("%s: ok, %s, longest silence %v, %d answers, %d operations, took %v", head, r.Target,
		r.Silence.Round(time.Millisecond), r.Answers, r.Operations, r.Took.Round(100*time.Millisecond))
}
