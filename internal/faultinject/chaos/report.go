package chaos

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Seconds formats a duration for a person.
func Seconds(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", ms(d))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Count formats a number of things.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Report is what a Runner broke, and how long the tiles that suffered took to recover.
type Report struct {
	Seed        uint64                 `json:"seed"`
	Faults      int                    `json:"faults"`
	Unrecovered int                    `json:"unrecovered"`
	Kinds       map[string]*KindReport `json:"kinds"`
}

// KindReport is all faults of one kind. Durations are in milliseconds: from the fault until the last of the tiles it
// hit had recovered.
type KindReport struct {
	Count       int     `json:"count"`
	Recovery    float64 `json:"recovery_ms"` // on average
	RecoveryMax float64 `json:"recovery_max_ms"`
	Detection   float64 `json:"detection_ms,omitempty"` // of it, until another host claimed the tile; on average
	Takeover    float64 `json:"takeover_ms,omitempty"`  // and from there until the last was served; on average
	moved       int     // faults after which a tile changed hands
}

// add counts a fault that is over.
func (r *Report) add(kind string, recovered bool, detection, recovery time.Duration) {
	k := r.Kinds[kind]
	if k == nil {
		k = &KindReport{}
		r.Kinds[kind] = k
	}
	if !recovered {
		r.Unrecovered++
	}
	k.Count++
	k.Recovery += (ms(recovery) - k.Recovery) / float64(k.Count)
	k.RecoveryMax = max(k.RecoveryMax, ms(recovery))
	if detection > 0 {
		k.moved++
		k.Detection += (ms(detection) - k.Detection) / float64(k.moved)
		k.Takeover += (ms(recovery-detection) - k.Takeover) / float64(k.moved)
	}
}

// Write adds the lines of a report for a person.
func (r *Report) Write(line func(name, format string, args ...any)) {
	line("faults", "%d, %d not recovered from; -seed %d", r.Faults, r.Unrecovered, r.Seed)
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		k := r.Kinds[kind]
		text := fmt.Sprintf("%d×, well after %.0f ms, at most %.0f ms", k.Count, k.Recovery, k.RecoveryMax)
		if k.moved > 0 {
			text += fmt.Sprintf(" (noticed after %.0f ms, taken over in %.1f ms)", k.Detection, k.Takeover)
		}
		line("  "+kind, "%s", text)
	}
}
