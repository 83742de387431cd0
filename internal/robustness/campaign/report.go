//go:build unix

package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tally is what the runs of one kind of fault gave.
type tally struct {
	fault     *Fault
	runs      int
	failed    int
	skipped   string
	silences  []time.Duration
	detection []time.Duration
	takeover  []time.Duration
}

func (s *Summary) tallies() []*tally {
	var all []*tally
	for _, f := range s.Config.Faults {
		t := &tally{fault: f}
		for i := range s.Results {
			r := &s.Results[i]
			switch {
			case r.Fault.Name != f.Name:
				continue
			case r.Skipped != "":
				t.skipped = r.Skipped
				continue
			case r.Failed():
				t.failed++
			}
			t.runs++
			if r.Err == nil {
				t.silences = append(t.silences, r.Silence)
			}
			t.detection = append(t.detection, r.Detection...)
			t.takeover = append(t.takeover, r.Takeover...)
		}
		all = append(all, t)
	}
	return all
}

// Report is the summary as Markdown.
func (s *Summary) Report() string {
	var b strings.Builder
	runs, skipped, wide, answers, operations, records, violations, hung := 0, 0, 0, 0, 0, 0, 0, 0
	for i := range s.Results {
		r := &s.Results[i]
		if r.Skipped != "" {
			skipped++
			continue
		}
		runs++
		wide += max(0, r.Replicas-1)
		answers, operations, records = answers+r.Answers, operations+r.Operations, records+r.Records
		violations += len(r.Violations)
		if r.Err != nil {
			hung++
		}
	}
	fmt.Fprintf(&b,
		"# Robustness: the last campaign\n\nWritten by `make robustness`; docs/robustness.md says what was done and what is checked.\n\n")
	fmt.Fprintf(&b, "| | |\n|---|---|\n| begun | %s |\n| length | %v |\n| seed | %d |\n",
		s.Began.UTC().Format("2006-01-02 15:04 MST"), s.Took.Round(time.Second), s.Config.Seed)
	fmt.Fprintf(&b, "| system | %d tile servers, %d tiles, tick %v, %d gateways, %d bridges, %d relays, "+
		"checkpointer; Redis Cluster 3+3, in %d runs 3+6, fan-out 3, PostgreSQL, DynamoDB-compatible server |\n",
		workerCount, tileCount, tick, len(gatewayHosts), len(bridgeHosts), len(relayHosts), wide)
	fmt.Fprintf(&b,
		"| runs, one fault each | %d |\n| runs skipped | %d |\n| actions answered | %d |\n| operations recorded | %d |\n| records | %d |\n",
		runs, skipped, answers, operations, records)
	fmt.Fprintf(&b, "| runs that did not come to their end | %d |\n| **violations** | **%d** |\n\n", hung, violations)
	s.unbrokenTable(&b)
	if s.Ordinary() {
		s.faultTable(&b)
		s.coverageTable(&b)
	}
	s.findings(&b)
	return b.String()
}

func (s *Summary) faultTable(b *strings.Builder) {
	b.WriteString("## Faults\n\nSilence is the longest time that any tile answered no client, from the fault until every tile served again; a run's is its worst tile's.\n\n")
	b.WriteString("| fault | runs | with findings | silence: median | 90 % | worst |\n|---|---:|---:|---:|---:|---:|\n")
	for _, t := range s.tallies() {
		if t.runs == 0 {
			why := "not tried"
			if t.skipped != "" {
				why = "skipped: " + t.skipped
			}
			fmt.Fprintf(b, "| %s | 0 | %s | | | |\n", t.fault.Name, why)
			continue
		}
		fmt.Fprintf(b, "| %s | %d | %d | %s | %s | %s |\n", t.fault.Name, t.runs, t.failed,
			quantile(t.silences, 0.5), quantile(t.silences, 0.9), quantile(t.silences, 1))
	}
	b.WriteString("\n## Owners that fell silent\n\nFrom the fault to the first claim by another process (detection: by a warm follower after four silent ticks, in runs that have them, or by the supervisor after 400 ms), and from the claim to serving (take-over: mint, replay, install on every replica), for each tile of a worker that was killed or paused.\n\n")
	b.WriteString("| fault | tiles | detection: median | worst | take-over: median | 90 % | worst |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for _, t := range s.tallies() {
		if len(t.detection) > 0 {
			fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %s |\n", t.fault.Name, len(t.detection),
				quantile(t.detection, 0.5), quantile(t.detection, 1), quantile(t.takeover, 0.5),
				quantile(t.takeover, 0.9), quantile(t.takeover, 1))
		}
	}
	b.WriteString("\n## What each fault is\n\n")
	for _, f := range s.Config.Faults {
		fmt.Fprintf(b, "- **%s**: %s\n", f.Name, f.About)
	}
	b.WriteString("\n")
}

// findings lists what failed, with how to run it again.
func (s *Summary) findings(b *strings.Builder) {
	b.WriteString("## Findings\n\n")
	if !s.Failed() {
		b.WriteString("None.\n")
		return
	}
	for i := range s.Results {
		r := &s.Results[i]
		if !r.Failed() {
			continue
		}
		fmt.Fprintf(b, "### Run %d: %s on %s\n\n`%s`\n\n", r.Number, r.Fault.Name, r.Target, s.rerun(r))
		if r.Err != nil {
			fmt.Fprintf(b, "Did not come to its end: %v\n\n", r.Err)
		}
		for _, line := range r.State {
			fmt.Fprintf(b, "- %s\n", line)
		}
		for n, v := range r.Violations {
			if n == 20 {
				fmt.Fprintf(b, "- and %d more\n", len(r.Violations)-n)
				break
			}
			fmt.Fprintf(b, "- %s\n", v)
		}
		b.WriteString("\n")
	}
}

// rerun is the command that repeats a run.
func (s *Summary) rerun(r *Result) string {
	if r.Fault == unbroken {
		durable := ""
		if s.Config.Durable {
			durable = " -durable"
		}
		return fmt.Sprintf("go run ./internal/robustness/cmd/robustness -unbroken %v -travellers %d%s -replicas %d "+
			"-seed %d", s.Config.Unbroken, s.Config.Travellers, durable, r.Replicas, r.Seed)
	}
	return fmt.Sprintf("go run ./internal/robustness/cmd/robustness -fault %s -replicas %d -seed %d", r.Fault.Name,
		r.Replicas, r.Seed)
}

// quantile of durations, rounded for people; a dash for none.
func quantile(d []time.Duration, q float64) string {
	if len(d) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(d))
	i := int(q*float64(len(sorted))+0.5) - 1
	return sorted[max(0, min(i, len(sorted)-1))].Round(time.Millisecond).String()
}
