package history

import (
	"math"

	"github.com/tilefence/tilefence/fence"
)

// Heat is how much happens in a tile: events a tick, each tick weighing a twentieth less than the next.
type Heat struct {
	Value float64
	tick  fence.Tick
}

const heatKept = 0.95 // of a tick's weight, a tick later

// add counts a tick's events. Ticks between this one and the last had none.
func (h *Heat) add(tick fence.Tick, events int) {
	h.Decay(tick)
	h.Value += (1 - heatKept) * float64(events)
}

// Decay lets quiet ticks pass.
func (h *Heat) Decay(tick fence.Tick) {
	switch {
	case tick == h.tick+1:
		h.Value *= heatKept
	case tick > h.tick && h.Value > 0:
		h.Value *= math.Pow(heatKept, float64(tick-h.tick))
	}
	if h.Value < 1e-6 {
		h.Value = 0
	}
	h.tick = tick
}
