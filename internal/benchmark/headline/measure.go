//go:build linux

package headline

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/internal/figures"
)

// sliceLength is how often the figures are cut within a window: each cut is a line of progress.
const sliceLength = 5 * time.Second

// load is what everything has taken of the machine until a moment.
type load struct {
	at    time.Time
	kinds map[string]Usage // Cores: seconds of processor time so far
	busy  time.Duration
}

// load reads what each kind of process has used.
func (b *battle) load() (load, error) {
	l := load{at: time.Now(), kinds: map[string]Usage{}}
	all, err := processes("/proc")
	if err != nil {
		return l, err
	}
	if l.busy, err = busy("/proc"); err != nil {
		return l, err
	}
	add := func(kind string, pid int) {
		p, u := tree(all, pid), l.kinds[kind]
		l.kinds[kind] = Usage{Name: kind, Processes: u.Processes + 1, Cores: u.Cores + p.used.Seconds(),
			MiB: u.MiB + float64(p.resident)/(1<<20)}
	}
	for _, p := range b.actors() {
		add(p.kind, p.cmd.Process.Pid)
	}
	for _, s := range b.stack.Processes() {
		kind, _, _ := strings.Cut(s.Name(), "-")
		add(map[string]string{"coord": "coordination Redis", "fanout": "fan-out Redis", "postgres": "PostgreSQL",
			"dynamodb": "DynamoDB-compatible"}[kind], s.Pid())
	}
	return l, nil
}

// since is what each kind took of the processors between two moments, the hungriest first; what the whole machine
// did; and what of that was none of the battle's.
func (l *load) since(before load) (actors []Usage, busy, others float64) {
	seconds := l.at.Sub(before.at).Seconds()
	busy = (l.busy - before.busy).Seconds() / seconds
	others = busy
	for _, u := range l.kinds {
		u.Cores = (u.Cores - before.kinds[u.Name].Cores) / seconds
		others -= u.Cores
		actors = append(actors, u)
	}
	slices.SortFunc(actors, func(a, b Usage) int {
		if a.Cores != b.Cores {
			return map[bool]int{true: -1, false: 1}[a.Cores > b.Cores]
		}
		return strings.Compare(a.Name, b.Name)
	})
	return actors, busy, max(others, 0)
}

// measure fills a run with what happens in its window.
func (b *battle) measure(ctx context.Context, run *Run) error {
	first, err := cuts(b.actors())
	if err != nil {
		return err
	}
	before, err := b.load()
	if err != nil {
		return err
	}
	began, last := time.Now(), before
	sum := figures.Set{}
	for {
		if err := pause(ctx, min(sliceLength, b.Window-time.Since(began))); err != nil {
			return err
		}
		now, err := cuts(b.actors())
		if err != nil {
			return err
		}
		slice, err := histogramsOf(now)
		if err != nil {
			return err
		}
		if sum, err = figures.Sum(sum, slice); err != nil {
			return err
		}
		l, err := b.load()
		if err != nil {
			return err
		}
		if err := b.progress(run, slice, l, last, began); err != nil {
			return err
		}
		last = l
		if time.Since(began) < b.Window {
			continue
		}
		var grown []figures.Set
		for p, s := range now {
			grown = append(grown, figures.Set{Counters: s.Since(first[p]).Counters})
		}
		if sum, err = figures.Sum(append(grown, sum)...); err != nil {
			return err
		}
		run.Seconds = l.at.Sub(before.at).Seconds()
		run.Actors, run.Busy, run.Overhead = l.since(before)
		return b.fill(run, sum)
	}
}

// histogramsOf puts together what the processes recorded since the cut before.
func histogramsOf(sets map[*process]figures.Set) (figures.Set, error) {
	var all []figures.Set
	for s := range maps.Values(sets) {
		all = append(all, figures.Set{Histograms: s.Histograms})
	}
	return figures.Sum(all...)
}

// progress notes one slice, and says what it was.
func (b *battle) progress(run *Run, slice figures.Set, now, before load, began time.Time) error {
	clients, err := slice.Histograms["commit_to_client"].Latency()
	if err != nil {
		return err
	}
	_, busy, others := now.since(before)
	s := Slice{At: time.Since(began).Seconds(), P50: clients.P50, P99: clients.P99, Cores: busy}
	run.Slices = append(run.Slices, s)
	b.say("%3.0f s: commit to client p50 %.1f ms, p99 %.1f ms; %.2f cores busy, %.2f of them with something else\n",
		s.At, s.P50, s.P99, busy, others)
	return nil
}

// fill takes a run's figures from the sum over all processes.
func (b *battle) fill(run *Run, sum figures.Set) (err error) {
	c := sum.Counters
	for name, to := range map[string]*figures.Latency{"commit_to_client": &run.Latency.CommitToClient,
		"commit": &run.Latency.Commit, "lateness": &run.Latency.Lateness, "order": &run.Latency.Order,
		"refusal": &run.Latency.Refusal} {
		if *to, err = sum.Histograms[name].Latency(); err != nil {
			return err
		}
	}
	if run.Latency.Bars, err = coarse(sum.Histograms["commit_to_client"]); err != nil {
		return err
	}
	clientTicks := float64(b.Players) * run.Seconds / tick.Seconds()
	run.Traffic = Traffic{BytesPerClientTick: c["client_bytes"] / clientTicks,
		WirePerClientTick: c["servers_relay_sent_bytes_total"] / clientTicks, Frames: c["client_frames"],
		Dropped: c["servers_relay_slow_drops_total"],
		Stale:   c["servers_relay_stale_drops_total"] + c["servers_bridge_dropped_total/superseded"],
		Gaps:    c["client_gaps"], Resyncs: c["client_resyncs"], Syncs: c["client_syncs"], Corrupt: c["client_corrupt"]}
	run.Ticks = Ticks{Played: c["servers_tile_tick_seconds"], Missed: c["servers_tile_missed_ticks_total"],
		Commits: c["servers_tile_commit_seconds"], Events: c["servers_tile_events_total"]}
	run.Orders = Orders{Moves: c["moves_sent"], Failed: c["moves_failed"], Refused: c["moves_refused"],
		Cards: c["cards_played"], Ledger: map[string]float64{}}
	for name, n := range c {
		if outcome, is := strings.CutPrefix(name, "ledger_outcomes_"); is && n > 0 {
			run.Orders.Ledger[outcome] = n
		}
	}
	return nil
}

// coarse are the bars of a histogram, some twenty to each factor of ten: enough for a curve.
func coarse(s figures.Sample) (few []figures.Bar, err error) {
	bars, err := s.Bars()
	var start float64 // of the last coarse bar
	for _, b := range bars {
		if len(few) > 0 && b.Upto <= start*1.12 {
			last := &few[len(few)-1]
			last.Upto, last.Count = b.Upto, last.Count+b.Count
			continue
		}
		few, start = append(few, b), b.Upto
	}
	return few, err
}
