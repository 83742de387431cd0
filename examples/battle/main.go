// Battle is the reference deployment of Tilefence: a little authoritative game of ships, composed from
// the packages as a game server would compose them.
//
//	go run ./examples/battle              # everything in one process, nothing else needed
//	go run ./examples/battle -stack local # the same on real servers, started for the occasion
//	go run ./examples/battle -h
//
// Each actor also runs as a process of its own: tile, bridge, checkpointer, relay, gateway, bots.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // something broke, or the battle did not converge
	exitUsage  = 2
)

// sameSignal is how soon after the first signal another one is taken for the same.
const sameSignal = time.Second

func run(args []string, out, errs io.Writer) int {
	o, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal drains; a second one ends at once. Shells and supervisors often send the same signal
	// to the process and to its group, so one that comes at the same moment is not the second. The servers
	// of -stack local end with the process either way.
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })

	logger := slog.New(slog.DiscardHandler)
	if o.verbose {
		logger = slog.New(slog.NewTextHandler(errs, nil))
	}
	dir, err := os.MkdirTemp("", "battle-")
	if err != nil {
		fmt.Fprintln(errs, "battle:", err)
		return exitFailed
	}
	defer os.RemoveAll(dir)

	if o.command == "" {
		err = battle(ctx, o, dir, logger, out, errs)
	} else {
		err = actor(ctx, o, dir, logger, out, errs)
	}
	if err != nil {
		fmt.Fprintln(errs, "battle:", err)
		return exitFailed
	}
	return exitOK
}
