// Command conformance checks a client of Tilefence in any language: it plays a relay and a gateway that do what real
// ones do on a bad day, and compares what the client sends and shows with what docs/wire.md demands.
//
//	go run github.com/tilefence/tilefence/clients/conformance -list
//	go run github.com/tilefence/tilefence/clients/conformance -- ./adapter
//	go run github.com/tilefence/tilefence/clients/conformance -run 'gap|take-over' -v -- node adapter.mjs
//
// The adapter is a small program around the client. It is started once for each case, reads commands on standard input,
// and writes what the client shows on standard output, one line each. docs/guides/client.md describes both, and
// goclient
// beside this file is one. The exit status is 1 if a case fails, and 2 if the command line cannot be read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// testCase is one thing that a client must do.
type testCase struct {
	name string
	must string // what must be observed
	play func(*trial)
	slow bool // over 20 s
}

var cases = slices.Concat(viewCases, staleCases, tileCases, areaCases, connectionCases, gatewayCases)

// options is the command line.
type options struct {
	run      *regexp.Regexp
	list     bool
	short    bool
	verbose  bool
	parallel int
	patience time.Duration
	adapter  []string
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	case o.list:
		list(os.Stdout, o.run)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	failed := run(ctx, o, os.Stdout)
	stop()
	if failed > 0 {
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("conformance", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		fmt.Fprintln(out, "usage: conformance [flags] -- adapter [arguments]")
		f.PrintDefaults()
	}
	pattern := f.String("run", "", "play only the cases whose names match this `regexp`")
	f.BoolVar(&o.list, "list", false, "list the cases, and what must be observed in each")
	f.BoolVar(&o.short, "short", false, "leave out the cases that take longer than 20 s")
	f.BoolVar(&o.verbose, "v", false, "print what went over the wire in every case, not only in those that fail")
	f.IntVar(&o.parallel, "parallel", 8, "play so many cases at once")
	f.DurationVar(&o.patience, "patience", 20*time.Second,
		"wait so long for what must come at once: a busy machine needs more than an idle one")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	o.run, err = regexp.Compile(*pattern)
	o.adapter = f.Args()
	switch {
	case err != nil:
	case o.parallel < 1:
		err = fmt.Errorf("-parallel %d: want at least 1", o.parallel)
	case !o.list && len(o.adapter) == 0:
		err = errors.New("name the adapter's command behind --")
	}
	if err != nil {
		fmt.Fprintln(out, "conformance:", err)
	}
	return o, err
}

func list(out io.Writer, only *regexp.Regexp) {
	for _, c := range cases {
		if only.MatchString(c.name) {
			fmt.Fprintf(out, "%-24s %s\n", c.name, c.must)
		}
	}
}

// run plays the cases, prints a line for each in the order of the list, and returns how many failed.
func run(ctx context.Context, o *options, out io.Writer) (failed int) {
	began := time.Now()
	type played struct {
		testCase
		err error
		log []string
	}
	var all []chan played
	slots := make(chan struct{}, o.parallel)
	var work sync.WaitGroup
	for _, c := range cases {
		if !o.run.MatchString(c.name) || o.short && c.slow {
			continue
		}
		done := make(chan played, 1)
		all = append(all, done)
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			log, err := playCase(ctx, c, o)
			done <- played{c, err, log}
		})
	}
	for _, done := range all {
		p := <-done
		if p.err == nil {
			fmt.Fprintf(out, "ok    %s\n", p.name)
		} else {
			failed++
			fmt.Fprintf(out, "FAIL  %s: %s\n      %v\n", p.name, p.must, p.err)
		}
		if p.err != nil || o.verbose {
			fmt.Fprintf(out, "        %s\n", strings.Join(p.log, "\n        "))
		}
	}
	work.Wait()
	fmt.Fprintf(out, "%d of %d cases passed in %.0f s\n", len(all)-failed, len(all), time.Since(began).Seconds())
	if len(all) == 0 {
		return 1
	}
	return failed
}
