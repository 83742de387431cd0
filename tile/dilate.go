package tile

import (
	"cmp"
	"time"
)

// Dilatable is implemented by Rules that announce to clients when the tile's time is dilated (Limits.MaxDilation).
type Dilatable interface {
	// Dilated is the event that says how long a tick lasts from now on, in tick intervals: 1 is the usual pace. It is
	// the first event of the next tick, and of the first tick of each owner; an empty one is left out. It changes
	// nothing: Apply and the game's clients do with the event what they like.
	Dilated(pace float64) (event []byte)
}

// The pace is a multiple of paceStep, so that not each slow tick is announced to clients.
const (
	paceStep  = 0.25
	busy      = 0.8 // what of an interval a tick may take
	calmTicks = 20  // after which the pace is raised by a step, if all of them would have had time at that pace
)

// dilation is the pace of an owner's ticks, the usual one at first.
type dilation struct {
	*base
	pace     float64 // how many tick intervals a tick lasts; zero: 1
	calm     int     // ticks in a row that had time at the next higher pace
	announce bool
}

// interval is how long a tick lasts.
func (d *dilation) interval() time.Duration {
	return time.Duration(cmp.Or(d.pace, 1) * float64(d.cfg.TickInterval))
}

// adapt changes the pace after a tick whose batch is committed. It slows down at once as far as needed, and returns
// step by step.
func (d *dilation) adapt(took time.Duration) {
	most := float64(d.cfg.MaxDilation)
	if most <= 1 {
		return
	}
	pace, needed := cmp.Or(d.pace, 1), 1.0
	for needed < most && float64(took) > busy*needed*float64(d.cfg.TickInterval) {
		needed += paceStep
	}
	switch {
	case needed > pace:
		d.calm = 0
		d.set(needed)
	case needed == pace || pace == 1:
		d.calm = 0
	default:
		if d.calm++; d.calm >= calmTicks {
			d.calm = 0
			d.set(pace - paceStep)
		}
	}
}

func (d *dilation) set(pace float64) {
	before := cmp.Or(d.pace, 1)
	d.pace, d.announce = pace, true
	d.inbox.update(func(s *Status) { s.Dilation = pace })
	switch {
	case before == 1:
		d.cfg.Logger.Warn("ticks take longer than they may: the tile's time is dilated", "pace", pace, "tick",
			d.history.Tick)
	case pace == 1:
		d.cfg.Logger.Info("the tile's time has its usual pace again", "tick", d.history.Tick)
	}
}

// announcement is the event that announces the pace; nil if there is nothing to announce.
func (d *dilation) announcement(rules Dilatable) []byte {
	if !d.announce {
		return nil
	}
	return rules.Dilated(cmp.Or(d.pace, 1))
}
