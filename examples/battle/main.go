// Battle is the reference deployment of Tilefence: a little authoritative game of ships, composed from
// the packages as a game server would compose them.
//
//	go run ./examples/battle              # everything in one process, nothing else needed
//	go run ./examples/battle -stack local # the same on real servers, started for the occasion
//	go run ./examples/battle -chaos       # the same while one thing after another is broken
//	go run ./examples/battle -h
//
// With -chaos a fault comes every few seconds (-chaos-every): owners are killed, paused and robbed, replies are
// lost, the store is out of reach, the bridge stops, connections break; with -stack local also masters, replicas,
// PostgreSQL and fan-out nodes are stopped or killed, and the functions flushed. The page shows each as it
// happens. One comes at a time, and the next only when every tile is well; -seed says which in what order. The
// battle ends like any other: every client's view must equal its owner's state, every card must have in the
// ledger the one outcome its player was told, and the report says how long each kind took to recover from.
//
// An operator asks GET /ownership who owns what, since when, under which epoch, and how often it moved; the page
// shows the same as a table. GET /metrics counts, as Prometheus reads it: changes of ownership, supersessions,
// commits, refusals by reason.
//
// The hosts and the gateway are members of one group (fence/route): each knows who lives, and who owns what. The
// gateway asks its own copy of that first, then the owner hash, then follows redirects; the report, /metrics and
// the page count the answers of each and how many were stale. A host that hears of a death takes over the tiles
// it follows, without waiting for their silence.
//
// Take-overs pile tiles up, since a host that comes back owns nothing: every few seconds (-balance-every), and
// never while something is broken, a host with clearly more tiles than the average hands its coldest over to the
// host with the fewest. That is in one process only; processes leave it to whoever deploys them.
//
// Each actor also runs as a process of its own: tile, bridge, checkpointer, relay, gateway, bots. There the
// members gossip, when -gossip says where; a host keeps warm copies of the tiles that -follow names:
//
//	battle tile -own 0,1,2 -follow all -listen 127.0.0.1:7000 -gossip 127.0.0.1:7946 -redis …
//	battle tile -own 3,4,5 -follow all -listen 127.0.0.1:7001 -gossip 127.0.0.1:7947 -gossip-seeds 127.0.0.1:7946 -redis …
//	battle gateway -listen 127.0.0.1:8081 -gossip 127.0.0.1:7948 -gossip-seeds 127.0.0.1:7946,127.0.0.1:7947 -redis …
//
// Its gossip is neither encrypted nor authenticated (a game sets gossip.Config.SecretKey): keep those ports private.
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
