package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tilefence/tilefence/internal/devstack"
)

const battleTitle = "A battle on real servers"

// battle builds and runs the reference deployment on the servers that make bench has started, and adds
// its report to the page.
func battle(ctx context.Context, w io.Writer, clients int, duration time.Duration) error {
	dir, err := os.MkdirTemp("", "benchreport-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "battle")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./examples/battle")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	args := []string{"-clients", strconv.Itoa(clients), "-duration", duration.String(), "-report", "json", "-no-page",
		"-redis", os.Getenv(devstack.EnvRedis), "-fanout", os.Getenv(devstack.EnvFanout),
		"-postgres", os.Getenv(devstack.EnvPostgres), "-dynamodb", os.Getenv(devstack.EnvDynamoDB)}
	c := exec.CommandContext(ctx, program, args...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%w; it reported:\n%s", err, out.String())
	}
	var figures map[string]any
	if err := json.Unmarshal(out.Bytes(), &figures); err != nil {
		return fmt.Errorf("its report is not JSON: %w", err)
	}
	fmt.Fprintf(w,
		"\n## %s\n\n`battle -stack local -clients %d -duration %s`: Redis Cluster 3+3, a fan-out cluster, PostgreSQL and a\n"+
			"DynamoDB-compatible server, with the bots, on this one machine.\n\n| figure | value |\n|---|---:|\n",
		battleTitle, clients, duration)
	writeFigures(w, "", figures)
	return nil
}

// writeFigures flattens the report: nested names are joined with a space.
func writeFigures(w io.Writer, prefix string, figures map[string]any) {
	names := make([]string, 0, len(figures))
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch v := figures[name].(type) {
		case map[string]any:
			writeFigures(w, prefix+name+" ", v)
		case float64:
			fmt.Fprintf(w, "| %s%s | %s |\n", prefix, name, figure(v))
		default:
			fmt.Fprintf(w, "| %s%s | %v |\n", prefix, name, v)
		}
	}
}
