//go:build unix

// Command robustness breaks a running system in every way it knows, again and again, and checks from the
// recorded histories that every promise was kept.
//
//	robustness [-duration 10m] [-unbroken 30m [-travellers 10000] [-durable]] [-seed N] [-fault name[,name...]]
//	           [-replicas 1|2] [-followers] [-report file] [-dir directory]
//
// Without -duration every fault (or every one named) comes once; with -unbroken there is one run in which they follow
// one another while travellers cross from tile to tile, after those of -duration if that is given. A line for each run
// goes to standard error; the report, Markdown, to the file. It starts its own servers, on loopback, and needs root for
// the faults that part hosts: without, those are skipped, and the report says so. Exit code 1: something was found; 2:
// the campaign could not be run. docs/robustness.md has the rest.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/tilefence/tilefence/internal/robustness/campaign"
)

func main() {
	campaign.RunWorker()
	campaign.EnterNamespace()
	os.Exit(run())
}

func run() int {
	cfg := campaign.Config{Progress: os.Stderr}
	flag.DurationVar(&cfg.Duration, "duration", 0, "how long new runs are begun; 0: every fault once")
	flag.Uint64Var(&cfg.Seed, "seed", 0, "what decides; 0: draw one")
	flag.StringVar(&cfg.Dir, "dir", "", "where the histories of failed runs are kept")
	flag.BoolVar(&cfg.Followers, "followers", false,
		"give every tile a warm follower in every run; else in half of them")
	flag.IntVar(&cfg.Replicas, "replicas", 0, "how many replicas each master has, 1 or 2; 0: 1 and 2 by turns")
	flag.DurationVar(&cfg.Unbroken, "unbroken", 0, "how long one run takes that has one fault after another; 0: none")
	flag.IntVar(&cfg.Travellers, "travellers", 0, "how many cross borders in it; 0: 10,000")
	flag.BoolVar(&cfg.Durable, "durable", false, "give its tiles journals, and let all of coordination be lost")
	names := flag.String("fault", "", "the faults to choose from, separated by commas; empty: all")
	report := flag.String("report", "", "file to write the report to")
	flag.Parse()
	if *names != "" {
		for name := range strings.SplitSeq(*names, ",") {
			f, err := campaign.FindFault(name)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 2
			}
			cfg.Faults = append(cfg.Faults, f)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	summary, err := campaign.Run(ctx, cfg)
	if summary != nil && *report != "" {
		if err := os.WriteFile(*report, []byte(summary.Report()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	if summary != nil && summary.Ordinary() {
		if never := summary.Never(); never != nil {
			fmt.Fprintf(os.Stderr, "never acted, so nothing is proved about: %s\n", strings.Join(never, ", "))
		}
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 2
	case summary.Failed():
		return 1
	}
	return 0
}
