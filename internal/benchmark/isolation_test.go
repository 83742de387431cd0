//go:build linux

package benchmark

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream"
)

// plan is how much the tiles of BenchmarkIsolation do, and for how long it looks at them.
type plan struct {
	tiles         int
	tick          time.Duration
	snapshotEvery int           // ticks
	calm          time.Duration // before and after each fault
	fault         time.Duration
}

const (
	isolationPayload = 1 << 10 // bytes that a tick commits
	isolationState   = 8 << 10 // bytes of a tile's snapshot
	backlogSample    = 20      // tiles that are asked how far their consumers are behind
)

// faultLength is how long a fault of BenchmarkIsolation lasts: TILEFENCE_BENCH_FAULT, or 30 s.
func faultLength(tb testing.TB) time.Duration {
	text := os.Getenv("TILEFENCE_BENCH_FAULT")
	if text == "" {
		return 30 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(tb, err, "TILEFENCE_BENCH_FAULT")
	require.GreaterOrEqual(tb, d, time.Second, "TILEFENCE_BENCH_FAULT")
	return d
}

// BenchmarkIsolation shows what a fault of one plane does to the commits of another. 400 tiles at 2 Hz commit 1 KiB
// a tick; a bridge, a checkpointer and a relay with its clients work on them, each in a process of its own. Commits are
// measured before, during and after each fault, and while the part concerned catches up; the ratios compare with the
// mean of before and after. A fault that has no effect fails the benchmark.
func BenchmarkIsolation(b *testing.B) {
	length := faultLength(b)
	is := newIsolation(b, plan{tiles: 400, tick: 500 * time.Millisecond, snapshotEvery: 10, calm: length / 2,
		fault: length})
	run := func(name string, what func(testing.TB) (outcome, error)) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				o, err := what(b)
				require.NoError(b, err)
				o.report(b)
			}
		})
	}
	run("nothing-wrong", is.nothing)
	for _, f := range is.faults() {
		run(f.name, func(tb testing.TB) (outcome, error) { return is.suffer(tb, &f) })
	}
	for _, s := range storms {
		run(s.name, func(tb testing.TB) (outcome, error) { return is.weather(tb, &s) })
	}
}

var smallPlan = plan{tiles: 20, tick: 100 * time.Millisecond, snapshotEvery: 5, calm: time.Second,
	fault: 2 * time.Second}

// attempts is how often a fault may be repeated: windows this short are soon spoilt by what else the machine does.
const attempts = 4

// TestIsolationIsMeasured plays BenchmarkIsolation in small: the faults have their effect, and pass.
func TestIsolationIsMeasured(t *testing.T) {
	is := newIsolation(t, smallPlan)
	for _, f := range is.faults() {
		t.Run(f.name, func(t *testing.T) {
			o, err := is.suffer(t, &f)
			for range attempts {
				if !errors.Is(err, errNoEffect) {
					break
				}
				o, err = is.suffer(t, &f)
			}
			require.NoError(t, err)
			require.NotZero(t, o.during.Commit.N, "commits go on")
		})
	}
	for _, s := range storms {
		t.Run(s.name, func(t *testing.T) {
			_, err := is.weather(t, &s)
			require.NoError(t, err)
		})
	}
}

// TestAFaultWithoutEffectIsNoticed: what is measured beside a fault that did nothing says nothing.
func TestAFaultWithoutEffectIsNoticed(t *testing.T) {
	is := newIsolation(t, smallPlan)
	for _, f := range is.faults() {
		t.Run(f.name, func(t *testing.T) {
			f.hit = func(testing.TB) {}
			_, err := is.suffer(t, &f)
			for range attempts {
				if errors.Is(err, errNoEffect) {
					break
				}
				_, err = is.suffer(t, &f)
			}
			require.ErrorIs(t, err, errNoEffect)
		})
	}
}

// isolation is a deployment whose parts are broken in turn.
type isolation struct {
	*planes
	plan
	tiles  []fence.TileID
	sample []fence.TileID

	owner, bridge, checkpointer, relay *process

	last  window             // when nothing was wrong
	rates map[*process]rates // of the same time
}

// rates are what a part does in a second, by the names of its counts.
type rates map[string]float64

func newIsolation(tb testing.TB, how plan) *isolation {
	tb.Helper()
	is := &isolation{planes: newPlanes(tb, devstack.Coordination, devstack.Fanout, devstack.DynamoDB), plan: how,
		tiles: someTiles(how.tiles)}
	is.sample = is.tiles[:min(backlogSample, len(is.tiles))]
	hints := os.Getenv("TILEFENCE_BENCH_HINTS") != "off"
	is.owner = is.start(tb, partConfig{Role: "owner", Tiles: is.tiles, Tick: how.tick, SnapshotEvery: how.snapshotEvery,
		Payload: isolationPayload, State: isolationState, Hints: hints})
	// Its marks say how far it is behind, so they must be more recent than that.
	is.bridge = is.start(tb, partConfig{Role: "bridge", Tiles: is.tiles, Hints: hints,
		MarkEvery: how.tick})
	is.checkpointer = is.start(tb, partConfig{Role: "checkpointer", Tiles: is.tiles, Table: stacktest.UniqueName(tb)})
	is.relay = is.start(tb, partConfig{Role: "relay", Tiles: is.tiles})
	waittest.Until(tb, func() bool {
		return is.relay.counts()["frames"] > 0 && is.checkpointer.counts()["durable"] >= int64(len(is.tiles))
	}, time.Minute, 100*time.Millisecond, "every tile is delivered and durable")
	is.rest(tb)
	return is
}

// rest measures while nothing is wrong.
func (is *isolation) rest(tb testing.TB) window {
	tb.Helper()
	before := map[*process]counts{}
	for _, p := range []*process{is.bridge, is.checkpointer, is.relay} {
		before[p] = p.counts()
	}
	is.last = is.owner.measure(tb, is.calm)
	is.rates = map[*process]rates{}
	for p, was := range before {
		is.rates[p] = rates{}
		for name, n := range p.counts() {
			is.rates[p][name] = float64(n-was[name]) / is.calm.Seconds()
		}
	}
	return is.last
}

// outcome is what was measured around something that went wrong.
type outcome struct {
	before, during, after window

	catching window        // from the end of the fault until no consumer lags any more
	took     time.Duration // that; zero: there was nothing to catch up with
	behind   float64       // entries a tile, when it was over
	reads    float64       // recoveries a second
}

// report gives the commits during a fault, and how they compare.
func (o *outcome) report(b *testing.B) {
	base := (ms(o.before.Commit.P99) + ms(o.after.Commit.P99)) / 2
	b.ReportMetric(ms(o.during.Commit.P50), "p50-ms")
	b.ReportMetric(ms(o.during.Commit.P99), "p99-ms")
	b.ReportMetric(ms(o.during.Commit.Max), "max-ms")
	b.ReportMetric(base, "calm-p99-ms")
	b.ReportMetric(ms(o.during.Late.P99)/((ms(o.before.Late.P99)+ms(o.after.Late.P99))/2), "x-late-p99")
	b.ReportMetric(ms(o.during.Commit.P99)/base, "x-p99")
	b.ReportMetric(float64(o.during.Missed+o.catching.Missed), "missed")
	if o.took > 0 {
		b.ReportMetric(o.behind, "behind")
		b.ReportMetric(ms(o.catching.Commit.P99)/base, "x-catching-up")
		b.ReportMetric(o.took.Seconds(), "catch-up-s")
	}
	if o.reads > 0 {
		b.ReportMetric(o.reads, "reads/s")
	}
	b.ReportMetric(0, "ns/op") // the length of the windows: it says nothing
}

// nothing goes wrong: how far two windows differ by themselves.
func (is *isolation) nothing(tb testing.TB) (o outcome, err error) {
	o.before = is.last
	o.during = is.owner.measure(tb, is.fault)
	o.after = is.rest(tb)
	return o, nil
}

// errNoEffect means: something was to go wrong, and did not.
var errNoEffect = errors.New("the fault had no effect")

// fault is one part, or the servers behind it, that stalls.
type fault struct {
	name      string
	hit, heal func(testing.TB)
	idle      *process        // what gets nothing done meanwhile
	count     string          // by this count
	consumer  stream.Consumer // which falls behind
}

// faults are those of BenchmarkIsolation, in order.
func (is *isolation) faults() []fault {
	servers := func(prefix string, sig syscall.Signal) func(testing.TB) {
		return func(tb testing.TB) {
			for _, s := range is.stack.Processes() {
				if strings.HasPrefix(s.Name(), prefix) {
					require.NoError(tb, s.Signal(sig))
				}
			}
		}
	}
	part := func(p *process, sig syscall.Signal) func(testing.TB) {
		return func(tb testing.TB) { require.NoError(tb, p.cmd.Process.Signal(sig)) }
	}
	return []fault{
		{"durable-frozen", servers("dynamodb", devstack.Pause), servers("dynamodb", devstack.GoOn), is.checkpointer,
			"durable", stream.Checkpointed},
		{"fanout-frozen", servers("fanout-", devstack.Pause), servers("fanout-", devstack.GoOn), is.bridge,
			"batches", stream.BridgeAcked},
		{"bridge-stopped", part(is.bridge, devstack.Pause), part(is.bridge, devstack.GoOn), is.relay, "frames",
			stream.BridgeAcked},
	}
}

// suffer measures a fault.
func (is *isolation) suffer(tb testing.TB, f *fault) (o outcome, err error) {
	tb.Helper()
	o.before = is.last
	is.owner.window(tb)
	f.hit(tb)
	half := is.fault / 2
	time.Sleep(half) // what was sent before it arrives, and is counted
	done := f.idle.counts()[f.count]
	time.Sleep(half)
	done = f.idle.counts()[f.count] - done
	o.during = is.owner.window(tb)
	o.behind = is.behind(tb, f.consumer)
	f.heal(tb)
	ticks, usual := float64(o.during.Commit.N/len(is.tiles)), is.rates[f.idle][f.count]*half.Seconds()
	if float64(done) > usual/4 || o.behind < ticks/2 { // not zero: a count may come late from a busy machine
		return o, fmt.Errorf("%s: %w: %d %s in its second half, expected %.0f; %s lags %.1f entries after %.0f ticks",
			f.name, errNoEffect, done, f.count, usual, f.consumer, o.behind, ticks)
	}
	if o.took, err = is.catchUp(tb, f.consumer); err != nil {
		return o, fmt.Errorf("%s: %w", f.name, err)
	}
	o.catching = is.owner.window(tb)
	o.after = is.rest(tb)
	return o, nil
}

// catchUp waits until a consumer is about a second behind, as it is when nothing is wrong, and at least as long as
// makes a window of commits.
func (is *isolation) catchUp(tb testing.TB, c stream.Consumer) (took time.Duration, err error) {
	began := time.Now()
	few := float64(max(is.snapshotEvery, int(time.Second/is.tick)))
	for is.behind(tb, c) > few {
		if time.Since(began) > time.Minute {
			return 0, fmt.Errorf("%s is still behind after a minute", c)
		}
		time.Sleep(countEvery)
	}
	took = time.Since(began)
	time.Sleep(time.Until(began.Add(is.plan.calm / 3)))
	return took, nil
}

// behind is how many entries a tile a consumer is behind, on average.
func (is *isolation) behind(tb testing.TB, c stream.Consumer) float64 {
	tb.Helper()
	stats, err := is.log.Stat(tb.Context(), is.sample)
	require.NoError(tb, err)
	sum := 0
	for i := range stats {
		require.NoError(tb, stats[i].Err)
		end := stats[i].Last.Seq
		if c == stream.Checkpointed {
			end = stats[i].Snapshot.Seq
		}
		if at := stats[i].Marks[c].Seq; at < end {
			sum += int(end - at)
		}
	}
	return float64(sum) / float64(len(stats))
}

// storm is a tier of relays that reads all tiles again and again.
type storm struct {
	name   string
	atOnce int
	pause  time.Duration // at most, at random, before each, as a relay waits before a repair
}

var storms = []storm{
	{"reader-storm", relay.DefaultMaxRepairs, 20 * time.Millisecond},
	{"reader-storm-unlimited", 256, 0},
}

// weather measures a storm.
func (is *isolation) weather(tb testing.TB, s *storm) (o outcome, err error) {
	tb.Helper()
	o.before = is.last
	reader := is.startReader(tb, partConfig{Tiles: is.tiles, AtOnce: s.atOnce, Pause: s.pause})
	defer reader.kill()
	o.reads, o.during, err = reader.readsBeside(tb, is.owner, is.plan.fault/2)
	reader.kill()
	o.after = is.rest(tb)
	return o, err
}

// startReader starts a reader, and returns when it reads.
func (p *planes) startReader(tb testing.TB, cfg partConfig) *process {
	tb.Helper()
	cfg.Role = "reader"
	reader := p.start(tb, cfg)
	waittest.Until(tb, func() bool { return reader.counts()["reads"] > int64(len(cfg.Tiles)) }, time.Minute, countEvery)
	return reader
}

// readsBeside measures an owner while p reads, and how much that is a second.
func (p *process) readsBeside(
	tb testing.TB, owner *process, during time.Duration,
) (reads float64, w window, err error) {
	tb.Helper()
	before, began := p.newCounts(tb), time.Now()
	w = owner.measure(tb, during)
	after := p.newCounts(tb)
	done, failed := after["reads"]-before["reads"], after["failures"]-before["failures"]
	reads = float64(done) / time.Since(began).Seconds()
	if done == 0 || failed > done/100 {
		return reads, w, fmt.Errorf("%w: %d reads, and %d failed", errNoEffect, done, failed)
	}
	return reads, w, nil
}
