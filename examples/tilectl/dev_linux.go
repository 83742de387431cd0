//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tilefence/tilefence/internal/devstack"
)

// Exit codes of dev's own, as shells and env(1) have them.
const (
	exitStack      = 125 // the servers could not be started
	exitNotRunning = 127 // the command could not be started
	exitSignal     = 128 // plus the number of the signal
)

// nodeTimeout is longer than a busy machine lets a node wait: nothing breaks these servers, and none of them is to
// be replaced.
const nodeTimeout = 5 * time.Second

const devUsage = `Usage: tilectl dev [flags] -- command [argument...]
       tilectl dev restart <server>     kill a server and start it again, from within the command: coord-1, postgres, …

Starts real servers for development on free loopback ports, runs the command with their addresses in its
environment, stops them when it is done, however it ends, and exits with the command's code. Without -parts it starts
what is installed, and says what is not.

  %-26s coordination Redis Cluster, host:port separated by commas
  %-26s fan-out Redis Cluster, host:port separated by commas
  %-26s Redis of the relays' views, host:port
  %-26s PostgreSQL, a URL
  %-26s DynamoDB-compatible server, an endpoint; AWS_ENDPOINT_URL_DYNAMODB is the same, and
  %-26s AWS_REGION and credentials are set for it
  %-26s 32 random bytes in hexadecimal, unless it is set: what processes prove to each other
  %-26s 1 if every server asked for runs: tests of Tilefence do not skip

SIGINT and SIGTERM are passed on to the command; the second one kills it. Nothing outlives a tilectl that is killed,
with one exception: in a terminal, where the command shares the foreground with the shell it was typed into, children
of the command run on.

Flags:

`

// dev runs a command with real servers at hand, and returns its exit code.
func dev(args []string, stderr io.Writer) int {
	if len(args) == 2 && args[0] == "restart" {
		return restart(args[1], stderr)
	}
	opts, code, done := parseDev(args, stderr)
	if done {
		return code
	}
	// The kernel ends the command when the thread that started it ends. This goroutine's lives as long as it does.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 8)
	// SIGPIPE is caught, and dropped below, so that a reader that closes our output cannot end us
	// before the servers are stopped.
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)

	stack, stoppedBy, err := startServers(opts, stderr, signals)
	if stoppedBy != nil {
		return exitSignal + int(stoppedBy.(syscall.Signal))
	}
	if err != nil {
		report(stderr, "%v", err)
		return exitStack
	}
	defer stack.Stop()
	socket, stop, err := takeOrders(stack)
	if err != nil {
		report(stderr, "%v", err)
		return exitStack
	}
	defer stop()
	env := append(stack.Env(), envDev+"="+socket)
	if os.Getenv("TILEFENCE_SECRET") == "" {
		env = append(env, "TILEFENCE_SECRET="+secret())
	}
	if opts.complete {
		env = append(env, devstack.EnvRequire+"=1")
	}
	return runCommand(opts.command, env, stderr, signals)
}

type devOptions struct {
	verbose, memory, noSync bool
	replicas                int // of each coordination master
	parts                   []devstack.Part
	complete                bool // every part that was asked for is installed
	command                 []string
}

// parseDev returns done, and the exit code, if there is nothing to run.
func parseDev(args []string, stderr io.Writer) (opts devOptions, code int, done bool) {
	flags := flag.NewFlagSet("tilectl dev", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprintf(stderr, devUsage, devstack.EnvRedis, devstack.EnvFanout, devstack.EnvViews,
			devstack.EnvPostgres, devstack.EnvDynamoDB, "", "TILEFENCE_SECRET", devstack.EnvRequire)
		flags.PrintDefaults()
	}
	flags.BoolVar(&opts.verbose, "v", false, "print a line for each server that is ready")
	flags.BoolVar(&opts.memory, "memory", false,
		"Redis writes no files, as most tests want: production's settings refuse it")
	flags.BoolVar(&opts.noSync, "nosync", false,
		"PostgreSQL commits without waiting for the disk: for tests, not for figures")
	flags.IntVar(&opts.replicas, "replicas", 1, "replicas of each coordination master: with 2, one may fail while a "+
		"tile that is replicated goes on")
	engine := flags.String("engine", os.Getenv(devstack.EnvEngine), "`program` to start as Redis, in PATH or a path, "+
		"such as valkey-server ($TILEFENCE_ENGINE; default redis-server, or valkey-server where that alone is installed)")
	parts := flags.String("parts", "", "start these `servers` of coordination,fanout,postgres,dynamodb,views, "+
		"or fail: all, or a list (default: those that are installed)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return opts, 0, true
		}
		return opts, statusUsage, true
	}
	if opts.replicas < 1 || opts.replicas > 5 {
		report(stderr, "-replicas %d: want 1 to 5", opts.replicas)
		return opts, statusUsage, true
	}
	err := os.Setenv(devstack.EnvEngine, *engine) // also for what the command starts
	if err != nil {
		report(stderr, "-engine: %v", err)
		return opts, statusUsage, true
	}
	if opts.parts, opts.complete, err = chooseParts(*parts, stderr); err != nil {
		report(stderr, "%v", err)
		return opts, statusUsage, true
	}
	opts.command = flags.Args()
	if len(opts.command) == 0 {
		report(stderr, "no command given")
		flags.Usage()
		return opts, statusUsage, true
	}
	return opts, 0, false
}

// chooseParts returns the parts that a list names, and true. Without a list it returns those that are installed, says
// what is not, and whether that was all.
func chooseParts(list string, stderr io.Writer) (parts []devstack.Part, complete bool, err error) {
	switch list {
	case "":
		parts, missing := devstack.Installed()
		for _, m := range missing {
			report(stderr, "%v", m)
		}
		return parts, len(missing) == 0, nil
	case "all":
		return devstack.AllParts(), true, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		part, err := devstack.ParsePart(name)
		if err != nil {
			return nil, false, err
		}
		parts = append(parts, part)
	}
	return parts, true, nil
}

// startServers starts the stack. If a signal comes first, it returns the signal, and nothing runs.
func startServers(opts devOptions, stderr io.Writer, signals <-chan os.Signal) (*devstack.Stack, os.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		stack *devstack.Stack
		err   error
	}
	started := make(chan result, 1)
	began := time.Now()
	log := &logWriter{to: stderr}
	log.quiet.Store(!opts.verbose)
	go func() {
		stack, err := devstack.Start(ctx, devstack.Config{Parts: opts.parts, Log: log, AppendOnly: !opts.memory,
			NoSync: opts.noSync, NodeTimeout: nodeTimeout, Replicas: opts.replicas})
		log.quiet.Store(false) // from here on only unexpected events are logged
		started <- result{stack, err}
	}()
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGPIPE {
				continue
			}
			cancel()
			if r := <-started; r.stack != nil {
				r.stack.Stop()
			}
			return nil, sig, nil
		case r := <-started:
			if r.err == nil {
				report(stderr, "%s ready in %.1fs", names(opts.parts), time.Since(began).Seconds())
			}
			return r.stack, nil, r.err
		}
	}
}

// runCommand runs the command to its end and returns the exit code.
func runCommand(command, env []string, stderr io.Writer, signals <-chan os.Signal) int {
	inTerminal := isForeground()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	// In a terminal the command stays in the foreground group, where it can read and be interrupted;
	// elsewhere it gets a group of its own, so that its children can be signalled with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	group := 0
	if !inTerminal {
		var release func()
		var err error
		if group, release, err = guard(); err != nil {
			report(stderr, "%v", err)
			return exitNotRunning
		}
		defer release()
		cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, group
	}
	if err := cmd.Start(); err != nil {
		report(stderr, "%v", err)
		return exitNotRunning
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // what it says is in ProcessState
		close(ended)
	}()

	target := cmd.Process.Pid
	if !inTerminal {
		target = -group
	}
	asked := false
	for {
		select {
		case <-ended:
			return exitCode(cmd.ProcessState)
		case sig := <-signals:
			switch {
			case sig == syscall.SIGPIPE:
			case inTerminal && sig != syscall.SIGTERM:
				// The terminal has sent it to the command as well.
			case asked:
				_ = syscall.Kill(target, syscall.SIGKILL)
			default:
				asked = true
				_ = syscall.Kill(target, sig.(syscall.Signal))
			}
		}
	}
}

// guard makes a process group, which the command will be in, and a process of it that kills the group when this process
// is gone, however it went: what the command started would otherwise live on without its servers. The shell waits
// for the end of a pipe that only this process holds open, and minds no signal to the group. release kills the group.
func guard() (group int, release func(), err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = reader.Close() }()
	cmd := exec.Command("/bin/sh", "-c", `trap "" HUP INT QUIT TERM; read -r _; kill -s KILL 0`)
	cmd.Stdin = reader
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = writer.Close()
		return 0, nil, err
	}
	group = cmd.Process.Pid
	return group, func() {
		_ = syscall.Kill(-group, syscall.SIGKILL)
		_ = writer.Close()
		_ = cmd.Wait() // it was killed
	}, nil
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return state.ExitCode()
}

// isForeground reports whether a terminal sends its Ctrl-C to this process's group.
func isForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer func() { _ = tty.Close() }()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// secret is 32 random bytes in hexadecimal.
func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// names lists servers for people.
func names(parts []devstack.Part) string {
	var all []string
	for _, p := range parts {
		all = append(all, string(p))
	}
	return strings.Join(all, ", ")
}

func report(to io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(to, "tilectl dev: "+format+"\n", args...)
}

// logWriter writes the lines of the stack's log with a prefix, unless quiet.
type logWriter struct {
	to    io.Writer
	quiet atomic.Bool
}

func (w *logWriter) Write(line []byte) (int, error) {
	if !w.quiet.Load() {
		report(w.to, "%s", strings.TrimSuffix(string(line), "\n"))
	}
	return len(line), nil
}
