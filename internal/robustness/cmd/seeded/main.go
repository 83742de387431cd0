// Seeded runs a command in which the go command builds with package seeded's standard library: whatever Go does at
// random in a bubble of testing/synctest is drawn from a seed.
//
//	go run ./internal/robustness/cmd/seeded go test -v -run EqualSeeds ./internal/robustness/simulation
//
// The first build takes a minute, since it is one of the standard library as well.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/tilefence/tilefence/internal/robustness/seeded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var ended *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &ended) && ended.Exited(): // it has said why
		os.Exit(ended.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return errors.New("usage: seeded go test ./package…, or another command that calls the go command")
	}
	dir, err := os.MkdirTemp("", "tilefence-seeded-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	replace, err := seeded.Overlay(ctx, dir)
	if err != nil {
		return err
	}
	overlay, err := seeded.Write(dir, replace)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), strings.TrimSpace(
		fmt.Sprintf("GOFLAGS=%s -overlay=%s -tags=%s", os.Getenv("GOFLAGS"), overlay, seeded.Tag)))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd.Run()
}
