package simulation

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// seeds gives the seeds to run: the one in TILEFENCE_SEED, or the first n (TILEFENCE_SEEDS overrides n). With the race
// detector, which costs five times as much, it is the first third of n: the run without it plays them all.
func seeds(t *testing.T, n int) []uint64 {
	t.Helper()
	if text := os.Getenv("TILEFENCE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	if raced {
		n = (n + 2) / 3
	}
	if text := os.Getenv("TILEFENCE_SEEDS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(i) + 1
	}
	return list
}

// repeats makes what Go does at random a function of a seed, until it is called with zero. It is nil in a test program
// that was built without package seeded: there, equal seeds give runs that differ in who was first.
var repeats func(seed uint64)

// simulate runs one seed in a bubble. Built with package seeded, it is the same run each time. Garbage is collected
// before it and not meanwhile: a goroutine that allocates while a collection is under way may have to help, and wait,
// so that others of the same instant go first.
func simulate(t *testing.T, seed uint64, o Options) (r Result) {
	t.Helper()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cryptotest.SetGlobalRandom(t, seed)
	if repeats != nil {
		repeats(seed)
		defer repeats(0)
	}
	synctest.Test(t, func(*testing.T) { r = Run(seed, o) })
	return r
}

// promise runs seeds and requires that no check finds anything. It gives up after the third seed that
// breaks a promise.
func promise(t *testing.T, list []uint64, o Options) (total Stats) {
	t.Helper()
	began := time.Now()
	total.Faults = map[string]int{}
	failed := 0
	for _, seed := range list {
		r := simulate(t, seed, o)
		total.add(&r.Stats)
		if len(r.Violations) == 0 {
			continue
		}
		for _, v := range r.Violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		t.Logf("rerun: make simulation SEED=%d RUN='^%s$'", seed, t.Name())
		keep(t, &r)
		if failed++; failed == 3 {
			break
		}
	}
	took := time.Since(began)
	t.Logf("%d seeds in %s, %.0f hours an hour: %+v", len(list), took.Round(time.Millisecond),
		float64(total.Simulated)/float64(took), total)
	return total
}

func TestProtocolKeepsItsPromises(t *testing.T) { promise(t, seeds(t, 40), Options{}) }

// While one copy of the store answers at all times, every answer is checked against the whole specification.
func TestOneCopyAnswersAsSpecified(t *testing.T) { promise(t, seeds(t, 10), Options{Calm: true}) }

// An authority that is restored to an older state forgets owners and epochs; the store does not.
func TestRestoredAuthority(t *testing.T) {
	total := promise(t, seeds(t, 25), Options{Restores: true})
	n := total.Faults["owner wakes behind an older standby"]
	assert.GreaterOrEqual(t, 4*total.LeftAlone, n, "healthy successors keep their tiles, but for what else fails")
	assert.GreaterOrEqual(t, 5*total.Twins, total.Faults["epoch granted twice"], "the situation must come about")
}

// Bridges, relays, a checkpointer and watchers, on a store that fails over, and an authority that is restored.
func TestWatchersConverge(t *testing.T) {
	total := promise(t, seeds(t, 15), Options{Watched: true, Restores: true})
	assert.Greater(t, total.Frames, total.Actions, "three watchers see what happens")
	assert.Greater(t, total.Resets, 10, "and begin anew when they must")
}

// Every copy of what owners have committed is lost while they sleep.
func TestEveryCopyIsLost(t *testing.T) {
	promise(t, seeds(t, 25), Options{Restores: true, Loses: true, Watched: true})
}

// The whole system, with players who pay, through gateways that are killed and hear of owners late, or never.
func TestPlayersPayOnce(t *testing.T) {
	total := promise(t, seeds(t, 15), Options{Paid: true, Restores: true, Watched: true})
	assert.Greater(t, total.Paid, 100, "players act")
	assert.Greater(t, total.Refunded, 5, "and some get their price back")
}

// Travellers cross from tile to tile, over messages that are lost, late and repeated, whatever dies.
func TestTravellersAreInOnePlace(t *testing.T) {
	total := promise(t, seeds(t, 20), Options{Travels: true, Tiles: 3})
	assert.Greater(t, total.Crossings, 100)
}

// Tiles that write through keep their travellers when every copy of what they have committed is lost.
func TestTravellersOutliveEveryCopy(t *testing.T) {
	promise(t, seeds(t, 10), Options{Travels: true, Tiles: 3, Restores: true, Loses: true})
}
