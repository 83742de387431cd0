package figures_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/figures"
)

// TestMergeIsOneHistogram spreads durations over several histograms, and wants the same distribution as from one, and
// the percentiles that sorting gives, to three digits.
func TestMergeIsOneHistogram(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	one := figures.NewHistogram()
	parts := []*figures.Histogram{figures.NewHistogram(), figures.NewHistogram(), figures.NewHistogram()}
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(rng.ExpFloat64() * float64(20*time.Millisecond))
		all = append(all, max(d, time.Microsecond))
		one.Record(d)
		parts[rng.IntN(2)].Record(d) // the third stays empty
	}
	merged, err := figures.Merge(parts[0].Cut(), parts[1].Cut(), parts[2].Cut())
	require.NoError(t, err)
	got, err := merged.Latency()
	require.NoError(t, err)
	assert.Equal(t, one.Latency(), got)

	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	assert.EqualValues(t, len(all), got.Count)
	assert.InEpsilon(t, ms(all[len(all)/2-1]), got.P50, 0.01)
	assert.InEpsilon(t, ms(all[len(all)*99/100-1]), got.P99, 0.01)
	assert.InEpsilon(t, ms(all[len(all)-1]), got.Max, 0.01)

	bars, err := merged.Bars()
	require.NoError(t, err)
	var sum int64
	for _, b := range bars {
		sum += b.Count
	}
	assert.EqualValues(t, len(all), sum)
}

func TestCutBeginsAnew(t *testing.T) {
	h := figures.NewHistogram()
	h.Record(time.Second)
	h.Cut()
	h.Record(time.Millisecond)
	l, err := h.Cut().Latency()
	require.NoError(t, err)
	assert.EqualValues(t, 1, l.Count)
	assert.InEpsilon(t, 1, l.Max, 0.01, "what was before the cut is gone")
	assert.Empty(t, h.Cut())
	assert.Zero(t, h.Latency())
}

func TestBounds(t *testing.T) {
	h := figures.NewHistogram()
	h.Record(-time.Second)
	h.Record(time.Hour)
	l := h.Latency()
	assert.EqualValues(t, 2, l.Count, "nothing is dropped")
	assert.InEpsilon(t, 60_000, l.Max, 0.01)
	assert.InDelta(t, 0.001, l.P50, 1e-9)
}

func TestMergeRefusesWhatIsNoSample(t *testing.T) {
	_, err := figures.Merge("nonsense")
	assert.Error(t, err)
	_, err = figures.Sum(figures.Set{Histograms: map[string]figures.Sample{"a": "nonsense"}})
	assert.Error(t, err)
}

func TestSets(t *testing.T) {
	sample := func(d ...time.Duration) figures.Sample {
		h := figures.NewHistogram()
		for _, d := range d {
			h.Record(d)
		}
		return h.Cut()
	}
	early := figures.Set{Counters: map[string]float64{"ticks": 10}, Histograms: map[string]figures.Sample{
		"commit": sample(time.Second)}}
	late := figures.Set{Counters: map[string]float64{"ticks": 25, "missed": 2},
		Histograms: map[string]figures.Sample{"commit": sample(time.Millisecond)}}
	during := late.Since(early)
	assert.Equal(t, map[string]float64{"ticks": 15, "missed": 2}, during.Counters)

	other := figures.Set{Counters: map[string]float64{"ticks": 5},
		Histograms: map[string]figures.Sample{"commit": sample(3 * time.Millisecond), "tick": sample(time.Second)}}
	sum, err := figures.Sum(during, other)
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"ticks": 20, "missed": 2}, sum.Counters)
	l, err := sum.Histograms["commit"].Latency()
	require.NoError(t, err)
	assert.EqualValues(t, 2, l.Count)
	assert.InEpsilon(t, 3, l.Max, 0.01)

	text, err := json.Marshal(sum)
	require.NoError(t, err)
	var back figures.Set
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, sum, back, "a set travels as JSON")
}

func ExampleFlatten() {
	var report map[string]any
	_ = json.Unmarshal([]byte(`{"ticks": 3, "ledger": {"applied": 2}, "converged": true}`), &report)
	flat := figures.Flatten(report)
	fmt.Println(flat["ticks"], flat["ledger_applied"], len(flat))
	// Output: 3 2 2
}
