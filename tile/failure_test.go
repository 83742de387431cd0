package tile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// brittle is a ledger whose rules fail where they are set to. The switches may be thrown while it runs.
type brittle struct {
	ledgerRules
	mu      sync.Mutex
	resolve func(intents []tile.Intent) // before Resolve
	apply   func(events [][]byte)       // before Apply
	calls   int                         // of Resolve
	save    func()                      // before Snapshot
	load    func()                      // before Restore
}

func (b *brittle) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func run[F any](b *brittle, which func() F, call func(F), nothing func(F) bool) {
	b.mu.Lock()
	f := which()
	b.mu.Unlock()
	if !nothing(f) {
		call(f)
	}
}

func (b *brittle) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	run(b, func() func([]tile.Intent) { b.calls++; return b.resolve }, func(f func([]tile.Intent)) { f(intents) },
		func(f func([]tile.Intent)) bool { return f == nil })
	return b.ledgerRules.Resolve(tick, intents)
}

func (b *brittle) Apply(tick fence.Tick, events [][]byte) error {
	run(b, func() func([][]byte) { return b.apply }, func(f func([][]byte)) { f(events) },
		func(f func([][]byte)) bool { return f == nil })
	return b.ledgerRules.Apply(tick, events)
}

func (b *brittle) Snapshot() ([]byte, error) {
	run(b, func() func() { return b.save }, func(f func()) { f() }, func(f func()) bool { return f == nil })
	return b.ledgerRules.Snapshot()
}

func (b *brittle) Restore(s []byte) error {
	run(b, func() func() { return b.load }, func(f func()) { f() }, func(f func()) bool { return f == nil })
	return b.ledgerRules.Restore(s)
}

// fragile is a processor with brittle rules.
type fragile struct {
	*runner
	rules    *brittle
	failures func() []*tile.RulesError
}

func (w *world) fragile(contact string, cfg tile.Config, rules *brittle) *fragile {
	w.t.Helper()
	var mu sync.Mutex
	var all []*tile.RulesError
	cfg.Hooks.RulesFailed = func(e *tile.RulesError) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e)
	}
	p, err := tile.New(testTile, contact, w.seams(), rules, &cfg)
	require.NoError(w.t, err)
	return &fragile{runner: launch(w.t, p, nil), rules: rules, failures: func() []*tile.RulesError {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}}
}

// outcomes submits intents at once and returns what became of each.
func (f *fragile) outcomes(words ...string) map[string]stream.Outcome {
	var mu sync.Mutex
	var all sync.WaitGroup
	got := map[string]stream.Outcome{}
	for _, word := range words {
		all.Go(func() {
			o, err := f.Submit(context.Background(), tile.Intent{Tile: testTile, ActionID: word, Actor: "ann",
				Body: []byte(word)})
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				got[word] = o.Outcome
			}
		})
	}
	all.Wait()
	return got
}

// panicsAt panics if Resolve is given all of the words.
func panicsAt(words ...string) func([]tile.Intent) {
	return func(intents []tile.Intent) {
		for _, word := range words {
			if !slices.ContainsFunc(intents, func(in tile.Intent) bool { return string(in.Body) == word }) {
				return
			}
		}
		panic("no rule for " + fmt.Sprint(words))
	}
}

// TestAnIntentThatPanicsIsRejected: alone, and for good, with any others in the tick, and under any later owner.
func TestAnIntentThatPanicsIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &brittle{resolve: func(intents []tile.Intent) {
			for _, in := range intents {
				if bytes.HasPrefix(in.Body, []byte("bad")) {
					panic(errors.New("index out of range"))
				}
			}
		}}
		p := w.fragile("a:1", tile.Config{}, rules)
		var words []string
		for i := range 100 {
			words = append(words, fmt.Sprint("good", i))
			if i%30 == 7 {
				words = append(words, fmt.Sprint("bad", i))
			}
		}
		got := p.outcomes(words...)
		require.Len(t, got, len(words))
		var applied []string
		for word, outcome := range got {
			if word[0] == 'b' {
				assert.Equal(t, stream.Rejected, outcome, word)
			} else {
				assert.Equal(t, stream.Applied, outcome, word)
				applied = append(applied, word)
			}
		}
		assert.ElementsMatch(t, applied, w.history())
		assert.Less(t, rules.calls, 64, "the culprits are searched for, not every intent tried")
		failures := p.failures()
		require.Len(t, failures, 4)
		for _, e := range failures {
			require.ErrorIs(t, e, tile.ErrRules)
			assert.Equal(t, "Resolve", e.Call)
			assert.Equal(t, e.Intent.ActionID, string(e.Intent.Body))
			assert.Contains(t, string(e.Stack), "failure_test.go")
			assert.ErrorContains(t, e, "index out of range")
		}
		s := p.Status()
		assert.Equal(t, tile.Serving, s.State)
		assert.EqualValues(t, 1, s.Epoch)
		assert.EqualValues(t, 4, s.Failures)
		require.NoError(t, p.drain())

		next := w.fragile("b:1", tile.Config{}, rules)
		assert.Equal(t, map[string]stream.Outcome{"bad7": stream.Rejected, "good3": stream.Applied},
			next.outcomes("bad7", "good3"))
		assert.Empty(t, next.failures(), "the successor remembers")
		require.NoError(t, next.drain())
	})
}

// TestIntentsThatFailTogetherAreParted: neither is at fault, so both are resolved, in ticks of their own.
func TestIntentsThatFailTogetherAreParted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.fragile("a:1", tile.Config{}, &brittle{resolve: panicsAt("cat", "dog")})
		got := p.outcomes("cat", "dog", "cow", "hen")
		assert.Equal(t, map[string]stream.Outcome{"cat": stream.Applied, "dog": stream.Applied, "cow": stream.Applied,
			"hen": stream.Applied}, got)
		assert.Empty(t, p.failures())
		require.NoError(t, p.drain())
	})
}

// TestATickThatPanicsByItselfHasNoEvents: the tile goes on, keeps its owner hash alive, and its intents wait.
func TestATickThatPanicsByItselfHasNoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &brittle{resolve: func([]tile.Intent) { panic("no rule for the full moon") }}
		p := w.fragile("a:1", tile.Config{}, rules)
		answered := make(chan map[string]stream.Outcome, 1)
		go func() { answered <- p.outcomes("wolf", "bat") }()
		time.Sleep(time.Minute)
		assert.Empty(t, answered)
		s := p.Status()
		assert.Equal(t, tile.Serving, s.State)
		assert.Greater(t, s.Tick, fence.Tick(100))
		assert.Greater(t, len(p.failures()), 100)
		assert.Nil(t, s.Failure.Intent)
		rules.set(func() { rules.resolve = nil })
		assert.Equal(t, map[string]stream.Outcome{"wolf": stream.Applied, "bat": stream.Applied}, <-answered)
		require.NoError(t, p.drain())
	})
}

// TestAStackIsLoggedOnce of each place that panics, however often it does; of the other lines a sample.
func TestAStackIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &brittle{resolve: func([]tile.Intent) { panic("no rule for the full moon") }}
		var text bytes.Buffer
		p := w.fragile("a:1", tile.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}, rules)
		time.Sleep(time.Minute)
		rules.set(func() { rules.resolve = func([]tile.Intent) { panic("nor for the new one") } })
		time.Sleep(time.Minute)
		failures := len(p.failures())
		require.NoError(t, p.drain())
		var stacks []string
		lines := 0
		for line := range strings.Lines(text.String()) {
			if !strings.Contains(line, "the game's rules failed") {
				continue
			}
			lines++
			if _, stack, found := strings.Cut(line, "stack="); found {
				stacks = append(stacks, stack)
			}
		}
		require.Len(t, stacks, 2)
		assert.Contains(t, stacks[0], "full moon")
		assert.Contains(t, stacks[1], "nor for the new one")
		assert.Greater(t, failures, 200)
		assert.InDelta(t, failures/2, lines, float64(failures)/8, "ten in ten seconds, of two a second")
		assert.Contains(t, text.String(), "left_out=")
	})
}

// TestAnIntentWhoseEventsDoNotFitIsRejected: it stopped the tile before, and its retry the next owner.
func TestAnIntentWhoseEventsDoNotFitIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &wordy{}
		p, err := tile.New(testTile, "a:1", w.seams(), rules, nil)
		require.NoError(t, err)
		r := launch(w.t, p, nil)
		assert.Equal(t, stream.Rejected, r.say(t, "x", "flood"))
		assert.Equal(t, stream.Applied, r.say(t, "y", "drop"))
		assert.Equal(t, tile.Serving, p.Status().State)
		assert.ErrorContains(t, p.Status().Failure, `action "x"`)
		require.NoError(t, r.drain())
		assert.Equal(t, []string{"drop"}, w.history())
	})
}

// wordy makes events that no batch can hold of the word flood.
type wordy struct{ ledgerRules }

func (w *wordy) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	events, outcomes := w.ledgerRules.Resolve(tick, intents)
	for _, in := range intents {
		if string(in.Body) == "flood" {
			events = append(events, make([]byte, 2<<20))
		}
	}
	return events, outcomes
}

// TestASnapshotThatPanicsStopsNothing: it is tried again in its turn.
func TestASnapshotThatPanicsStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &brittle{}
		p := w.fragile("a:1", tile.Config{SnapshotEvery: 5}, rules)
		p.say(t, "", "first")
		rules.set(func() { rules.save = func() { panic("no room") } })
		for i := range 20 {
			p.say(t, "", fmt.Sprint("w", i))
		}
		assert.NotEmpty(t, p.failures())
		assert.Equal(t, "Snapshot", p.failures()[0].Call)
		rules.set(func() { rules.save = nil })
		require.NoError(t, p.drain())
		assert.Len(t, w.history(), 21)
	})
}

// TestAStateThatCannotBeRestored: the processor ends before it has served, with the reason.
func TestAStateThatCannotBeRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.fragile("a:1", tile.Config{}, &brittle{load: func() { panic("an old format") }})
		<-p.done
		require.ErrorIs(t, p.err, tile.ErrRules)
		require.ErrorContains(t, p.err, "Restore panicked: an old format")
		assert.Len(t, p.failures(), 1)
	})
}

// TestSlowRulesAreLateNotDead: a tick takes three times as long as a follower waits. The owner keeps the tile, and its
// intents are resolved.
func TestSlowRulesAreLateNotDead(t *testing.T) {
	for _, slow := range []string{"Resolve", "Apply"} {
		t.Run(slow, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				cfg := tile.Config{TickInterval: 100 * time.Millisecond, SuspectAfter: time.Second}
				rules := &brittle{}
				if slow == "Resolve" {
					rules.resolve = func([]tile.Intent) { time.Sleep(3 * time.Second) }
				} else {
					rules.apply = func([][]byte) { time.Sleep(3 * time.Second) }
				}
				p := w.fragile("a:1", cfg, rules)
				cfg.Follow = true
				follower := w.fragile("b:1", cfg, &brittle{})
				var last fence.Tick
				for i := range 20 {
					p.say(t, "", fmt.Sprint("w", i))
					s := p.Status()
					assert.Greater(t, s.Tick, last)
					last = s.Tick
				}
				assert.EqualValues(t, 1, p.Status().Epoch)
				assert.Equal(t, tile.Following, follower.Status().State)
				assert.Len(t, w.history(), 20)
				assert.Greater(t, last, fence.Tick(20*25), "the ticks that passed are counted")
				require.NoError(t, follower.drain())
				require.NoError(t, p.drain())
			})
		})
	}
}

// TestTimeGoesNoFasterThanClocks: whatever part of a tick the rules take, a tile plays and counts together as many
// ticks as there were. An action's outcome would be forgotten too early else.
func TestTimeGoesNoFasterThanClocks(t *testing.T) {
	const ms = time.Millisecond
	for _, took := range []time.Duration{0, 490 * ms, 510 * ms, 700 * ms, 1010 * ms, 1700 * ms} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				rules := &brittle{}
				rules.resolve = func([]tile.Intent) { time.Sleep(took) }
				p := w.fragile("a:1", tile.Config{}, rules)
				p.say(t, "", "first")
				before, began := p.Status().Tick, time.Now()
				time.Sleep(time.Minute)
				p.say(t, "", "last")
				ticks, due := p.Status().Tick-before, fence.Tick(time.Since(began)/(500*ms))
				assert.InDelta(t, float64(due), float64(ticks), 5)
				require.NoError(t, p.drain())
			})
		})
	}
}

// TestAnOutcomeForEachIntent: rules that give another number of outcomes have failed, and nothing happens.
func TestAnOutcomeForEachIntent(t *testing.T) {
	for name, outcomes := range map[string][]stream.Outcome{"none": nil, "two": {stream.Applied, stream.Applied}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				rules := &miscounting{outcomes: outcomes}
				seams := w.seams()
				p, err := tile.New(testTile, "a:1", seams, rules, nil)
				require.NoError(t, err)
				r := launch(w.t, p, nil)
				outcome, err := r.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("x")})
				require.NoError(t, err)
				assert.Equal(t, stream.Rejected, outcome.Outcome)
				assert.Empty(t, w.history())
				require.NotNil(t, r.Status().Failure)
				require.ErrorContains(t, r.Status().Failure,
					fmt.Sprintf("returned %d outcomes for 1 intents", len(outcomes)))
				require.NoError(t, r.drain())
			})
		})
	}
}

// miscounting are rules that give the outcomes that they are set to.
type miscounting struct {
	ledgerRules
	outcomes []stream.Outcome
}

func (m *miscounting) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	events, _ := m.ledgerRules.Resolve(tick, intents)
	if len(intents) == 0 {
		return events, nil
	}
	return events, m.outcomes
}
