// Battle is the reference deployment of Tilefence: a little authoritative game of ships, put together by package
// tilefence as a game server would be.
//
//	go run ./examples/battle              # everything in one process, nothing else needed
//	go run ./examples/battle -stack local # the same on real servers, started for the occasion
//	go run ./examples/battle -chaos       # the same while one thing after another is broken
//	go run ./examples/battle -h
//
// With -chaos a fault comes every few seconds: hosts that die, stop or are cut off, connections, a storm of viewers,
// and with -stack local the servers, and DynamoDB short of capacity. The next comes when every tile is well; -seed says
// which in what order. Every battle ends with a check: each client's view must equal its owner's state, and under chaos
// each card must have in the ledger the one outcome that its player got.
//
// Ships sail from tile to tile, and bots follow theirs. At the end a census of what is committed must find each ship
// that was born in one tile: afloat, or sunk.
//
// Besides the bots, -lobby players come through a lobby: they ask for a match, wait, get seats on a tile, play and
// leave; entrance.go says how to ask by hand. At the end every ticket that was created is seated, cancelled, timed out
// or still waiting, or the battle has failed.
//
// Of each tile, -pilots ships are flown by a slow planner as well: a stand-in for a model, whose calls take 1 to 5 s.
// The ships fly on as their bots say; plans come as orders when they are ready. The page shows which ships wait.
//
// The page, and GET /api/status, say who owns what, since when, under which epoch, and how often it moved; GET /metrics
// has the library's metrics, of which most figures of the report are. Every few seconds, and never while something
// is broken, a host with clearly more tiles than the average hands its coldest over to the host with the fewest.
//
// Each actor also runs as a process of its own: tile, bridge, checkpointer, relay, gateway, bots. There the members
// gossip; a host keeps warm copies of the tiles that -follow names:
//
//	battle tile -own 0,1,2 -follow all -listen 127.0.0.1:7000 -gossip 127.0.0.1:7946 -redis …
//	battle gateway -listen 127.0.0.1:8081 -gossip 127.0.0.1:7948 -gossip-seeds 127.0.0.1:7946 -redis …
//
// With TILEFENCE_SECRET, the same for all, they prove themselves to each other and encrypt their gossip. Without it
// every process that reaches their ports is believed. With -secure and -certificates beside it they encrypt all that
// they say.
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

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // something broke, or the battle did not converge
	exitUsage  = 2
)

// sameSignal is how soon after the first signal another one is taken for the same.
const sameSignal = time.Second

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	o, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
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
		if !errors.Is(err, errStopped) {
			return exitFailed
		}
	}
	return exitOK
}
