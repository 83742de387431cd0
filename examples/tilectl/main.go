// Tilectl inspects tiles and matchmaking, restores one from its checkpoint, and handles dead letters.
//
//	tilectl -redis 127.0.0.1:7000 -postgres postgres://… tiles
//	tilectl -redis 127.0.0.1:7000 tail 85283083fffffff
//	tilectl -redis 127.0.0.1:7000 -postgres postgres://… repair -apply 85283083fffffff
//	tilectl -redis 127.0.0.1:7000 match tickets ranked-eu
//	tilectl -dynamodb aws -ledger tilefence-ledger ledger
//	tilectl -redis 127.0.0.1:7000 -fanout 127.0.0.1:7100 deadletters replay 85283083fffffff -dry-run
//
//	tilectl new mygame
//	tilectl dev -- go run .
//
// new writes a small game, and dev runs a command with servers for development at hand; the other commands work on a
// deployment.
//
// tilectl -h lists the commands. Tables are for people, and long texts in them are cut; with -json every row is one
// JSON object a line with all of its texts, and sentences go to standard error.
// All but "slots move", "checkpoint restore", "deadletters replay" and "drop", "plan replay" and "drop",
// "repair -apply", "ledger settle" and "resolve", "tables create" only read. The exit status is 0 on success, 1 if
// something failed or is damaged, 2 for a wrong command line.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/smithy-go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// Statuses of the program.
const (
	statusOK     = 0
	statusFailed = 1
	statusUsage  = 2
)

// usageError is a wrong command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// errDamaged ends the program with status 1 after the damage has been shown.
var errDamaged = errors.New("damage was found, see above")

// run is the program; its result is the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == "new" {
		return newGame(args[1:], out, errs)
	}
	if len(args) > 0 && args[0] == "dev" {
		return dev(args[1:], errs)
	}
	shown := &printer{errs}
	o, err := parse(args, shown.stream())
	if err == nil {
		err = execute(ctx, o, in, out, shown)
	}
	return o.status(ctx, err, shown)
}

// status says how a command ended.
func (o *options) status(ctx context.Context, err error, errs *printer) int {
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp), errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return statusOK
	case errors.As(err, &usage):
		errs.printf("tilectl: %s (tilectl -h lists the commands)\n", err)
		return statusUsage
	case errors.Is(err, errDamaged):
	default:
		for _, text := range lines(err) {
			errs.printf("tilectl: %s\n", text)
		}
		if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "ResourceNotFoundException" {
			errs.printf("tilectl: DynamoDB has not all of the tables %s and %s; name yours with -ledger and "+
				"-checkpoints: a game of tilectl new has <game>-ledger and <game>-checkpoints, or "+
				"<game>-<world>-ledger and <game>-<world>-checkpoints in a world with a name\n",
				o.ledger, o.checkpoints)
		}
	}
	return statusFailed
}

// execute opens what the command needs and runs it.
func execute(ctx context.Context, o *options, in io.Reader, out io.Writer, errs *printer) error {
	c, rest, err := find(o.args)
	if err != nil {
		return err
	}
	if rest, err = c.arguments(rest); err != nil {
		return err
	}
	t := &tool{options: o, in: in, out: &printer{out}, raw: out, errs: errs}
	defer t.close()
	if err := t.open(ctx, c.needs); err != nil {
		return err
	}
	return c.run(ctx, t, rest)
}
