package main

import (
	"maps"
	"slices"
	"time"
)

// chaosReport is what chaos broke, and how long the tiles that suffered took to be well.
type chaosReport struct {
	Seed        uint64                `json:"seed"`
	Faults      int                   `json:"faults"`
	Unrecovered int                   `json:"unrecovered"`
	Kinds       map[string]*chaosKind `json:"kinds"`
}

// chaosKind is all faults of one kind. Durations are in milliseconds: from the fault until the last of the
// tiles it hit was well.
type chaosKind struct {
	Count       int     `json:"count"`
	Recovery    float64 `json:"recovery_ms"`            // on average
	RecoveryMax float64 `json:"recovery_max_ms"`        //
	Detection   float64 `json:"detection_ms,omitempty"` // of it, until somebody else claimed the tile; on average, where one did
	Takeover    float64 `json:"takeover_ms,omitempty"`  // and from there until the last was served; on average
	moved       int     // faults after which a tile changed hands
}

// report sums up what is over.
func (c *chaos) report() *chaosReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &chaosReport{Seed: c.options.seed, Faults: len(c.results), Kinds: map[string]*chaosKind{}}
	for _, f := range c.results {
		k := r.Kinds[f.kind]
		if k == nil {
			k = &chaosKind{}
			r.Kinds[f.kind] = k
		}
		k.Count++
		if !f.recovered {
			r.Unrecovered++
		}
		k.Recovery += ms(f.recovery)
		k.RecoveryMax = max(k.RecoveryMax, ms(f.recovery))
		if f.detection > 0 {
			k.moved++
			k.Detection += ms(f.detection)
			k.Takeover += ms(f.takeover)
		}
	}
	for _, k := range r.Kinds {
		k.Recovery /= float64(k.Count)
		k.Detection /= float64(max(k.moved, 1))
		k.Takeover /= float64(max(k.moved, 1))
	}
	return r
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// write adds the lines of a report for a person.
func (r *chaosReport) write(line func(name, format string, args ...any)) {
	line("faults", "%d, %d not recovered from; -seed %d", r.Faults, r.Unrecovered, r.Seed)
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		k := r.Kinds[kind]
		if k.moved == 0 {
			line("  "+kind, "%d×, well after %.0f ms, at most %.0f ms", k.Count, k.Recovery, k.RecoveryMax)
		} else {
			line("  "+kind, "%d×, well after %.0f ms, at most %.0f ms (noticed after %.0f ms, taken over in %.1f ms)",
				k.Count, k.Recovery, k.RecoveryMax, k.Detection, k.Takeover)
		}
	}
}
