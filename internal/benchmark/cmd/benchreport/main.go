// Benchreport runs the benchmarks and writes docs/benchmarks.md from what they print; no figure in that
// page was typed by hand. Run it through make bench, which starts the servers it measures against.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	output    string
	benchtime string
	only      string
	fault     time.Duration
	clients   int
	duration  time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.output, "o", "docs/benchmarks.md", "`file` to write")
	flag.StringVar(&o.benchtime, "benchtime", "1s", "`time` or count per benchmark, as go test takes it")
	flag.StringVar(&o.only, "only", "", "run only the sections whose title contains this `text`")
	flag.DurationVar(&o.fault, "fault", 30*time.Second, "length of each fault of the section about isolation")
	flag.IntVar(&o.clients, "clients", 1000, "clients of the battle")
	flag.DurationVar(&o.duration, "duration", 60*time.Second, "length of the battle")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := report(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

// report runs every section and writes the page only when all have run.
func report(ctx context.Context, o options) error {
	var page strings.Builder
	fmt.Fprintf(&page, "# Benchmarks\n\nWritten by `make bench` on %s from its own output: %s, %s, %d cores.\n"+
		"Absolute figures are this machine's and noisy; the ratios compare with a baseline in the same run.\n",
		time.Now().UTC().Format("2006-01-02"), runtime.Version(), processor(), runtime.NumCPU())
	for _, s := range sections {
		if !strings.Contains(s.title, o.only) {
			continue
		}
		fmt.Fprintln(os.Stderr, "benchreport:", s.title)
		lines, err := bench(ctx, s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
		s.write(&page, lines)
	}
	if strings.Contains(battleTitle, o.only) {
		fmt.Fprintln(os.Stderr, "benchreport:", battleTitle)
		if err := battle(ctx, &page, o.clients, o.duration); err != nil {
			return fmt.Errorf("%s: %w", battleTitle, err)
		}
	}
	return os.WriteFile(o.output, []byte(page.String()), 0o644)
}

// processor is the CPU's name as the kernel gives it.
func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// bench runs one section's benchmarks, showing their progress.
func bench(ctx context.Context, s section, o options) ([]result, error) {
	c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", s.match, "-benchtime", o.benchtime, "-timeout",
		"20m", s.pkg)
	c.Env = append(os.Environ(), "TILEFENCE_BENCH_FAULT="+o.fault.String())
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	var out strings.Builder
	c.Stdout = io.MultiWriter(&out, os.Stderr)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return nil, err
	}
	results := parse(out.String())
	if len(results) == 0 {
		return nil, fmt.Errorf("no benchmark of %s matches %s", s.pkg, s.match)
	}
	return results, nil
}
