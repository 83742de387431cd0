//go:build unix

// Mutants takes rules of the protocol out, one at a time, and reports which detectors notice. Nothing in the tree is
// changed: a mutant is an overlay of the build.
//
//	go run ./internal/robustness/cmd/mutants -o docs/mutants.md
//	go run ./internal/robustness/cmd/mutants -mutant "install without asking,a twin is not noticed" -detector campaign
//
// A file that is there keeps the rows of mutants that were not tried.
//
// Detectors that need servers have servers of their own: a mutant may be in what is loaded on them. Simulations are
// built with package seeded, so that they find the same each time.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tilefence/tilefence/internal/robustness/seeded"
)

// verdict is what a detector made of a mutant.
type verdict string

const (
	caught verdict = "caught"
	missed verdict = "missed"
	broken verdict = "broken" // the mutant does not build, or the detector could not decide
)

// patience bounds one detector: a mutant that makes it hang, or turn without end, is caught. It is several times what
// the detector has taken without a mutant, so a machine that is slow catches nothing. Those with servers, or with many
// seeds, get more in any case.
func (d *detector) patience(intact time.Duration) time.Duration {
	least := 2 * time.Minute
	switch {
	case d.seeded:
		least = 8 * time.Minute
	case d.servers, d.campaign():
		least = 4 * time.Minute
	}
	return max(least, 4*intact)
}

func main() {
	out := flag.String("o", "", "file to write the matrix to; empty: standard output")
	only := flag.String("mutant", "", "try these only, separated by commas")
	by := flag.String("detector", "", "run only the detectors whose names begin so, separated by commas")
	atOnce := flag.Int("p", 2, "how many detectors run at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *out, plan(*only, *by), *atOnce)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// trial is one detector on one mutant; without a mutant, it is to pass.
type trial struct {
	mutant   *mutant
	detector detector
	verdict  verdict
	took     time.Duration
	detail   string // of a broken one
}

func run(ctx context.Context, out string, trials []trial, atOnce int) error {
	if len(trials) == 0 {
		return errors.New("there is no such mutant, or it has no such detector")
	}
	dir, err := os.MkdirTemp("", "tilefence-mutants-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", dir, "./examples/tilectl")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building tilectl: %w: %s", err, said)
	}
	library, err := seeded.Overlay(ctx, dir)
	if err != nil {
		return err
	}
	began := time.Now()
	intact := map[string]time.Duration{} // how long each detector took
	tryAll(trials, false, atOnce, func(i int, t *trial) {
		t.verdict, t.detail = t.try(ctx, dir, i, library, time.Hour)
	})
	for i := range trials {
		if t := &trials[i]; t.mutant == nil {
			intact[t.detector.key()] = t.took
		}
	}
	tryAll(trials, true, atOnce, func(i int, t *trial) {
		t.verdict, t.detail = t.try(ctx, dir, i, library, t.detector.patience(intact[t.detector.key()]))
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text, failed := matrix(trials, began, kept(out))
	if out == "" {
		fmt.Print(text)
	} else if err := os.WriteFile(out, []byte(text), 0o644); err != nil {
		return err
	}
	return failed
}

// tryAll makes the trials with a mutant, or those without, so many at once.
func tryAll(trials []trial, mutated bool, atOnce int, try func(int, *trial)) {
	slots := make(chan struct{}, atOnce)
	var campaigns sync.Mutex // each has a network and servers of its own, and wants a machine
	var wg sync.WaitGroup
	for i := range trials {
		t := &trials[i]
		if mutated != (t.mutant != nil) {
			continue
		}
		wg.Go(func() {
			if t.detector.campaign() {
				campaigns.Lock()
				defer campaigns.Unlock()
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			start := time.Now()
			try(i, t)
			t.took = time.Since(start)
			fmt.Fprintf(os.Stderr, "%-8s %-45s %-28s %v\n", t.verdict, t.name(), t.detector.name,
				t.took.Round(time.Second))
		})
	}
	wg.Wait()
}

// kept are the rows of a matrix that was written before, by mutant; none if there is none.
func kept(file string) map[string]string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := cellsOf(line); len(cells) == 6 {
			rows[cells[0]] = line
		}
	}
	return rows
}

func cellsOf(row string) []string { return strings.Split(strings.Trim(row, "| \n"), " | ") }

// plan lists the trials: each detector without a mutant, and with each that it is to notice. Of mutants and detectors
// it takes those that are named; all if none are.
func plan(only, by string) (trials []trial) {
	intact := map[string]bool{}
	for i := range mutants {
		m := &mutants[i]
		if only != "" && !slices.Contains(strings.Split(only, ","), m.name) {
			continue
		}
		for _, d := range m.by {
			named := func(prefix string) bool { return strings.HasPrefix(d.name, prefix) }
			if !slices.ContainsFunc(strings.Split(by, ","), named) {
				continue
			}
			if !intact[d.key()] {
				intact[d.key()] = true
				trials = append(trials, trial{detector: d})
			}
			trials = append(trials, trial{mutant: m, detector: d})
		}
	}
	return trials
}

// key tells detectors apart that run different commands.
func (d *detector) key() string { return strings.Join(append(slices.Clone(d.env), d.command...), " ") }

func (t *trial) name() string {
	if t.mutant == nil {
		return "intact"
	}
	return t.mutant.name
}

// try runs the detector over the mutant, in a directory of its own below dir.
func (t *trial) try(ctx context.Context, dir string, number int, library map[string]string,
	patience time.Duration) (verdict, string) {
	args, replace := slices.Clone(t.detector.command), map[string]string{}
	own := filepath.Join(dir, fmt.Sprint(number))
	if err := os.Mkdir(own, 0o700); err != nil {
		return broken, err.Error()
	}
	if t.detector.seeded {
		maps.Copy(replace, library)
		args = slices.Insert(args, 2, "-tags", seeded.Tag) // after go test, or go run
	}
	if t.mutant != nil {
		if err := t.mutant.write(own, replace); err != nil {
			return broken, err.Error()
		}
	}
	overlay, err := seeded.Write(own, replace)
	if err != nil {
		return broken, err.Error()
	}
	args = slices.Insert(args, 2, "-overlay", overlay)
	if t.detector.servers {
		dev := []string{filepath.Join(dir, "tilectl"), "dev", "-parts", cmp.Or(t.detector.parts, "coordination"),
			"-memory", "--"}
		args = append(dev, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(append(cmd.Environ(), "TILEFENCE_PATIENCE=1"), t.detector.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	text, err := cmd.CombinedOutput()
	said := string(text)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return broken, "the run was stopped"
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return caught, "it hung"
	case err == nil:
		return missed, ""
	case strings.Contains(said, "build failed"), strings.Contains(said, "setup failed"),
		strings.HasPrefix(said, "# "), strings.HasSuffix(said, "exit status 2\n") && !strings.Contains(said, "panic"):
		return broken, said[:min(len(said), 2000)]
	}
	return caught, said[:min(len(said), 2000)]
}

// write writes the mutated file to dir, and puts it in place of the tree's.
func (m *mutant) write(dir string, replace map[string]string) error {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return fmt.Errorf("mutant %q: its text is in %s %d times, not once", m.name, m.file, n)
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	replace[original] = filepath.Join(dir, filepath.Base(m.file))
	return os.WriteFile(replace[original], []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600)
}

// matrix is the result as Markdown, and the error if a detector fails without a mutant, or a rule has no guard. Mutants
// that were not tried keep their rows.
func matrix(trials []trial, began time.Time, rows map[string]string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Mutants\n\nWritten by `internal/robustness/cmd/mutants` on %s, after %v. Each line takes\n"+
		"one rule of [the protocol](protocol.md) out of the code and says which detectors noticed, when it was last\n"+
		"tried. A rule should have two that are independent of each other. The program has the edits. The fifth\n"+
		"column is the rule of the specification (`internal/robustness/spec`) without which a search finds a broken\n"+
		"invariant; a model is not the code, so it does not count.\n\n"+
		"| mutant | the rule it takes out | caught by | missed by | needed in the model | tried |\n"+
		"|---|---|---|---|---|---|\n",
		began.UTC().Format("2006-01-02 15:04 MST"), time.Since(began).Round(time.Second))
	var failures []error
	two, total := 0, 0
	for i := range mutants {
		m := &mutants[i]
		by := map[verdict][]string{}
		tried := false
		for _, t := range trials {
			if t.mutant == m {
				tried = true
				by[t.verdict] = append(by[t.verdict], t.detector.name)
				if t.verdict == broken {
					failures = append(failures, fmt.Errorf("%s, %s: %s", m.name, t.detector.name, t.detail))
				}
			}
		}
		row := rows[m.name]
		if tried {
			cell := func(v verdict) string { return cmp.Or(strings.Join(by[v], "; "), "-") }
			row = fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", m.name, m.rule, cell(caught), cell(missed),
				cmp.Or(string(modelled[m.name]), "-"), began.UTC().Format(time.DateOnly))
			if len(by[caught]) == 0 {
				failures = append(failures, fmt.Errorf("the mutant %q survives", m.name))
			}
		}
		if row == "" {
			continue
		}
		b.WriteString(row)
		if total++; strings.Contains(cellsOf(row)[2], "; ") {
			two++
		}
	}
	fmt.Fprintf(&b, "\n**%d of %d mutants were caught by two detectors or more.** ", two, total)
	sound := 0
	for _, t := range trials {
		if t.mutant != nil {
			continue
		}
		if sound++; t.verdict != missed {
			failures = append(failures, fmt.Errorf("%s fails without a mutant: %s", t.detector.name, t.detail))
			fmt.Fprintf(&b, "**%s failed without a mutant: what it caught proves nothing.** ", t.detector.name)
		}
	}
	fmt.Fprintf(&b, "Without a mutant, %d detectors were run last.\n", sound)
	return b.String(), errors.Join(failures...)
}
