// Package figures holds what processes measure, in a form that travels between them and can be put together: histograms
// of durations, and counters by name. The battle, the benchmarks and the page about them share it.
package figures

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Durations outside these bounds count as the bound. The histograms keep three significant digits.
const (
	shortest = time.Microsecond
	longest  = time.Minute
	digits   = 3
)

// Histogram records durations. Create one with NewHistogram. It is safe for concurrent use.
type Histogram struct {
	mu           sync.Mutex
	all          *hdrhistogram.Histogram // since the last Cut
	last, filled *hdrhistogram.Histogram // the last whole period of Recent, and the one being filled
	began        time.Time               // of the one being filled
}

// recentLength is how far back Recent looks, at least.
const recentLength = 3 * time.Second

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{all: empty(), last: empty(), filled: empty(), began: time.Now()}
}

func empty() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(shortest/time.Microsecond), int64(longest/time.Microsecond), digits)
}

// Record adds a duration.
func (h *Histogram) Record(d time.Duration) {
	us := min(max(d, shortest), longest).Microseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.all.RecordValue(us) // within the bounds, so it cannot be refused
	_ = h.filled.RecordValue(us)
}

// Latency is the distribution since the last Cut.
func (h *Histogram) Latency() Latency {
	h.mu.Lock()
	defer h.mu.Unlock()
	return latencyOf(h.all)
}

// Recent is the distribution of the last whole 3 s or more, for one caller that asks more often than that.
func (h *Histogram) Recent() Latency {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.began) >= recentLength {
		h.last, h.filled, h.began = h.filled, h.last, time.Now()
		h.filled.Reset()
	}
	return latencyOf(h.last)
}

// Cut returns what was recorded since the cut before, and begins anew. Recent is not changed.
func (h *Histogram) Cut() Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := sampleOf(h.all)
	h.all.Reset()
	return s
}

// Latency is a distribution of durations in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return Latency{h.TotalCount(), ms(h.ValueAtQuantile(50)), ms(h.ValueAtQuantile(99)), ms(h.Max())}
}

// Sample is a histogram on its way to another process: HdrHistogram's compressed encoding, in base 64. The empty string
// is an empty histogram.
type Sample string

func sampleOf(h *hdrhistogram.Histogram) Sample {
	if h.TotalCount() == 0 {
		return ""
	}
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic(err) // it only writes to memory
	}
	return Sample(b)
}

// Bar is one bar of a histogram: how many durations were at most Upto, and longer than the bar before says.
type Bar struct {
	Upto  float64 `json:"upto_ms"`
	Count int64   `json:"count"`
}

// Bars are the bars of a sample that are not empty, ascending. Errors: what Merge returns.
func (s Sample) Bars() ([]Bar, error) {
	h, err := s.decode()
	if err != nil {
		return nil, err
	}
	var bars []Bar
	for _, b := range h.Distribution() {
		if b.Count > 0 {
			bars = append(bars, Bar{Upto: float64(b.To) / 1000, Count: b.Count})
		}
	}
	return bars, nil
}

// Latency is the distribution of a sample. Errors: what Merge returns.
func (s Sample) Latency() (Latency, error) {
	h, err := s.decode()
	if err != nil {
		return Latency{}, err
	}
	return latencyOf(h), nil
}

func (s Sample) decode() (*hdrhistogram.Histogram, error) {
	if s == "" {
		return empty(), nil
	}
	return hdrhistogram.Decode([]byte(s))
}

// Merge puts samples of several processes together, as if one histogram had recorded them all. An error means that one
// of them is not what Cut returned.
func Merge(samples ...Sample) (Sample, error) {
	sum := empty()
	for _, s := range samples {
		h, err := s.decode()
		if err != nil {
			return "", err
		}
		sum.Merge(h)
	}
	return sampleOf(sum), nil
}

// Set is what one process measured: counters since it began, and histograms since the last cut.
type Set struct {
	Counters   map[string]float64 `json:"counters"`
	Histograms map[string]Sample  `json:"histograms"`
}

// Since is what was measured between two cuts of one process: the histograms of the later one, and what its counters
// have grown by. A counter that the earlier cut lacks began at zero.
func (s Set) Since(earlier Set) Set {
	d := Set{Counters: map[string]float64{}, Histograms: maps.Clone(s.Histograms)}
	for name, v := range s.Counters {
		d.Counters[name] = v - earlier.Counters[name]
	}
	return d
}

// Sum puts the sets of several processes together. Errors: what Merge returns.
func Sum(sets ...Set) (Set, error) {
	sum := Set{Counters: map[string]float64{}, Histograms: map[string]Sample{}}
	for _, s := range sets {
		for name, v := range s.Counters {
			sum.Counters[name] += v
		}
		for name, h := range s.Histograms {
			both, err := Merge(sum.Histograms[name], h)
			if err != nil {
				return Set{}, err
			}
			sum.Histograms[name] = both
		}
	}
	return sum, nil
}

// Flatten returns the numbers of a value that was decoded from JSON, by their names joined with an underscore.
func Flatten(value map[string]any) map[string]float64 {
	flat := map[string]float64{}
	flatten(flat, "", value)
	return flat
}

func flatten(flat map[string]float64, prefix string, value map[string]any) {
	for name, v := range value {
		switch v := v.(type) {
		case float64:
			flat[prefix+name] = v
		case map[string]any:
			flatten(flat, prefix+name+"_", v)
		}
	}
}

// Obey is how a program that starts others reads their figures: each line "cut" on in is answered on out by what cut
// returns, a Set in JSON. It returns nil at the end of in, and an error for any other line.
func Obey(in io.Reader, out io.Writer, cut func() (Set, error)) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() != "cut" {
			return fmt.Errorf("there is no order %q, only cut", lines.Text())
		}
		set, err := cut()
		if err == nil {
			err = json.NewEncoder(out).Encode(set)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}
