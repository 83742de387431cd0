package tile

import (
	"math"

	"github.com/tilefence/tilefence/fence"
)

// heat is how much happens in a tile: events a tick, each tick weighing a twentieth less than the next.
type heat struct {
	value float64
	tick  fence.Tick
}

const heatKept = 0.95 // of a tick's weight, a tick later

// add counts a tick's events. Ticks between this one and the last had none.
func (h *heat) add(tick fence.Tick, events int) {
	h.decay(tick)
	h.value += (1 - heatKept) * float64(events)
}

// decay lets quiet ticks pass.
func (h *heat) decay(tick fence.Tick) {
	switch {
	case tick == h.tick+1:
		h.value *= heatKept
	case tick > h.tick && h.value > 0:
		h.value *= math.Pow(heatKept, float64(tick-h.tick))
	}
	if h.value < 1e-6 {
		h.value = 0
	}
	h.tick = tick
}
