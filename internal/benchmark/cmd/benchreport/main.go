//go:build linux

// Benchreport runs the benchmarks, keeps what they print beside docs/benchmarks.md, and writes that page: the
// benchmark plan, with a verdict on each budget, and the tables. No figure in it was typed by hand.
//
//	make bench     # every section, and a short battle; against servers that make starts
//	make headline  # the battle of 100, 1,000, 5,000 and 10,000 players
//
// Sections that are not run keep the figures that they had.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tilefence/tilefence/internal/benchmark/headline"
	"github.com/tilefence/tilefence/internal/chart"
)

// options are the command line.
type options struct {
	output   string
	only     string
	headline bool
	page     bool
	seed     uint64
}

func main() {
	var o options
	flag.StringVar(&o.output, "o", "docs/benchmarks.md", "`file` to write")
	flag.StringVar(&o.only, "only", "", "run only the sections whose title contains this `text`")
	flag.BoolVar(&o.headline, "headline", false, "play the battle of 100 to 10,000 players, and nothing else")
	flag.BoolVar(&o.page, "page", false, "measure nothing: write the page from the figures that are there")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the battle's bots")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := report(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

// report measures what is asked for, and writes the page when all of it has succeeded.
func report(ctx context.Context, o options) error {
	budgets, err := readBudgets()
	if err != nil {
		return err
	}
	f, err := load(o.output)
	if err != nil {
		return err
	}
	switch {
	case o.page:
	case o.headline:
		f.Headline, err = battles(ctx, o, nil)
	default:
		err = f.measure(ctx, o)
	}
	if err != nil {
		return err
	}
	if err := f.save(o.output, budgets); err != nil {
		return err
	}
	if o.headline {
		fmt.Print(f.Headline.Table())
	}
	fmt.Fprint(os.Stderr, misses(budgets, f.results()))
	return nil
}

// measure runs the sections.
func (f *figures) measure(ctx context.Context, o options) error {
	for _, s := range sections {
		if !strings.Contains(s.title, o.only) {
			continue
		}
		fmt.Fprintln(os.Stderr, "benchreport:", s.title)
		m := measured{Machine: headline.ThisMachine()}
		var err error
		if s.title == shortTitle {
			var h *headline.Result
			if h, err = battles(ctx, o, shortBattles()); err == nil {
				m.Results = headlineResults("headline.Short", h)
			}
		} else {
			m.Results, m.Series, err = bench(ctx, s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
		f.Sections[s.title] = m
	}
	return nil
}

// bench runs one section's benchmarks, showing their progress.
func bench(ctx context.Context, s section) ([]result, map[string]chart.Series, error) {
	pkg, dir := s.pkg, ""
	if _, err := os.Stat(filepath.Join(pkg, "go.mod")); err == nil { // a module of its own
		pkg, dir = ".", pkg
	}
	c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", s.match, "-timeout", "20m", pkg)
	c.Dir = dir
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	var out strings.Builder
	c.Stdout = io.MultiWriter(&out, os.Stderr)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return nil, nil, err
	}
	results := parse(out.String())
	if len(results) == 0 {
		return nil, nil, fmt.Errorf("no benchmark of %s matches %s", s.pkg, s.match)
	}
	series, err := chart.Parse(out.String())
	return results, series, err
}
