//go:build linux

package headline

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/wait"
)

// Play plays every size, one after another. It must run in the module's root, where it builds the battle. ctx ends it
// early, with an error.
func Play(ctx context.Context, cfg Config) (*Result, error) {
	if len(cfg.Sizes) == 0 {
		cfg.Sizes = DefaultSizes()
	}
	dir, err := os.MkdirTemp("", "headline-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	build := exec.CommandContext(ctx, "go", "build", "-o", dir,
		"./examples/battle", "./internal/benchmark/cmd/swarm")
	build.Stderr = cfg.Log
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build of the battle and the swarm: %w", err)
	}
	r := &Result{Machine: ThisMachine(), Tiles: tiles, Hosts: hosts, VerifyEvery: verifyEvery, DrawEvery: drawEvery,
		Seed: cfg.Seed, TickMs: tick.Seconds() * 1000, WarmUp: warmUp.Seconds(),
		Conditions: "Go's defaults, on all processors alike"}
	for _, size := range cfg.Sizes {
		run, err := play(ctx, cfg, size, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", size, err)
		}
		r.Runs = append(r.Runs, *run)
	}
	return r, nil
}

// ThisMachine describes the machine, now.
func ThisMachine() Machine {
	m := Machine{Date: time.Now().UTC().Format(time.DateOnly), Go: runtime.Version(), Processor: runtime.GOARCH,
		Cores: runtime.NumCPU()}
	text, _ := os.ReadFile("/proc/cpuinfo") // without it, the architecture has to do
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.Processor = strings.TrimSpace(value)
			break
		}
	}
	return m
}

func play(ctx context.Context, cfg Config, size Size, programs string) (*Run, error) {
	fmt.Fprintf(cfg.Log, "headline: %s on %d tiles, seed %d: starting servers and actors\n",
		size, tiles, cfg.Seed)
	b, err := deploy(ctx, cfg, size, programs)
	if err != nil {
		return nil, err
	}
	run, err := b.play(ctx)
	if err != nil {
		b.kill()
		return nil, err
	}
	run.Verdict.Unclean = append(run.Verdict.Unclean, b.drain()...)
	b.say("converged: %t %s, unclean exits: %d\n", run.Verdict.Converged, run.Verdict.Why, len(run.Verdict.Unclean))
	return run, nil
}

func (b *battle) say(format string, args ...any) { fmt.Fprintf(b.Log, "headline:   "+format, args...) }

func (b *battle) play(ctx context.Context) (*Run, error) {
	began := time.Now()
	if err := b.startPlayers(); err != nil {
		return nil, err
	}
	if err := b.joined(ctx); err != nil {
		return nil, err
	}
	run := &Run{Players: b.Players, Joining: time.Since(began).Seconds()}
	b.say("all have joined after %.1f s; warming up for %v\n", run.Joining, warmUp)
	if err := pause(ctx, warmUp); err != nil {
		return nil, err
	}
	if err := b.measure(ctx, run); err != nil {
		return nil, err
	}
	b.say("the bots stop, and compare what they hold\n")
	for _, s := range b.players {
		s.leave()
	}
	run.Verdict.Converged = true
	run.Verified = b.ordinary()
	for _, s := range b.players {
		var end struct {
			Converged bool   `json:"converged"`
			Why       string `json:"why_not"`
		}
		if err := s.answers.Decode(&end); err != nil {
			return nil, fmt.Errorf("the bots gave no report: %w\n%s", err, s.errs.String())
		}
		if err := s.await(); err != nil && end.Converged {
			run.Verdict.Unclean = append(run.Verdict.Unclean, fmt.Sprintf("%s: %v", s.kind, err))
		}
		if !end.Converged {
			run.Verdict.Converged, run.Verdict.Why = false, end.Why
		}
	}
	return run, nil
}

// joinWithin is how long the bots may take to join, and stallWithin how long none of them may.
const (
	joinWithin  = 4 * time.Minute
	stallWithin = 30 * time.Second
)

// joined waits until all bots are subscribed.
func (b *battle) joined(ctx context.Context) error {
	last, changed := 0, time.Now()
	for deadline := time.Now().Add(joinWithin); ; {
		if err := b.alive(); err != nil {
			return err
		}
		sets, err := cuts(b.players)
		if err != nil {
			return err
		}
		sum, err := figures.Sum(slices.Collect(maps.Values(sets))...)
		if err != nil {
			return err
		}
		n := int(sum.Counters["bots_joined"])
		if n == b.Players {
			return nil
		}
		if n > last {
			last, changed = n, time.Now()
		}
		if time.Now().After(deadline) || time.Since(changed) > stallWithin {
			return fmt.Errorf("only %d of %d bots have joined, the last %v ago", n, b.Players,
				time.Since(changed).Round(time.Second))
		}
		b.say("%d of %d bots have joined\n", n, b.Players)
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}

// cuts asks processes for their figures.
func cuts(all []*process) (map[*process]figures.Set, error) {
	sets := map[*process]figures.Set{}
	for _, p := range all {
		s, err := p.cut()
		if err != nil {
			return nil, err
		}
		sets[p] = s
	}
	return sets, nil
}

func pause(ctx context.Context, d time.Duration) error {
	wait.For(ctx, d)
	return context.Cause(ctx)
}
