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

func main() {
	output := flag.String("o", "docs/benchmarks.md", "`file` to write")
	benchtime := flag.String("benchtime", "1s", "`time` or count per benchmark, as go test takes it")
	only := flag.String("only", "", "run only the sections whose title contains this `text`")
	clients := flag.Int("clients", 1000, "clients of the battle")
	duration := flag.Duration("duration", 60*time.Second, "length of the battle")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := report(ctx, *output, *benchtime, *only, *clients, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

// report runs every section and writes the page only when all have run.
func report(ctx context.Context, output, benchtime, only string, clients int, duration time.Duration) error {
	var page strings.Builder
	fmt.Fprintf(&page, "# Benchmarks\n\nWritten by `make bench` on %s from its own output: %s, %s, %d cores.\n"+
		"Absolute figures are this machine's and noisy; the ratios compare with a baseline in the same run.\n",
		time.Now().UTC().Format("2006-01-02"), runtime.Version(), processor(), runtime.NumCPU())
	for _, s := range sections {
		if !strings.Contains(s.title, only) {
			continue
		}
		fmt.Fprintln(os.Stderr, "benchreport:", s.title)
		lines, err := bench(ctx, s, benchtime)
		if err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
		s.write(&page, lines)
	}
	if strings.Contains(battleTitle, only) {
		fmt.Fprintln(os.Stderr, "benchreport:", battleTitle)
		if err := battle(ctx, &page, clients, duration); err != nil {
			return fmt.Errorf("%s: %w", battleTitle, err)
		}
	}
	return os.WriteFile(output, []byte(page.String()), 0o644)
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
func bench(ctx context.Context, s section, benchtime string) ([]result, error) {
	c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", s.match, "-benchtime", benchtime, "-timeout", "20m", s.pkg)
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
