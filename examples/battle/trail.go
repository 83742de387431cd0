package main

import (
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// trail is where a tile's history was at which tick, as the tower has seen it: of each sequence the first sight.
type trail []sight

type sight struct {
	seq  fence.Seq
	tick fence.Tick
}

// trailLength bounds a trail whose tile gets no checkpoint: beyond it, every other sight is forgotten.
const trailLength = 1000

// note adds a sight. A history that a failover has set back continues from there.
func (t *trail) note(seq fence.Seq, tick fence.Tick) {
	all := *t
	for len(all) > 0 && all[len(all)-1].seq > seq {
		all = all[:len(all)-1]
	}
	if len(all) == 0 || all[len(all)-1].seq < seq {
		all = append(all, sight{seq, tick})
	}
	if len(all) > trailLength {
		n := 0
		all = slices.DeleteFunc(all, func(sight) bool {
			n++
			return n%2 == 0
		})
	}
	*t = all
}

// after is how many ticks the tile has played since a sequence, at most; nil if the trail does not go back that far.
// It forgets what was before.
func (t *trail) after(seq fence.Seq, now fence.Tick) *fence.Tick {
	if seq == 0 {
		return &now
	}
	all := *t
	i := len(all) - 1
	for i >= 0 && all[i].seq > seq {
		i--
	}
	if i < 0 {
		return nil
	}
	*t = all[i:]
	ticks := max(now, all[i].tick) - all[i].tick
	if last := len(all) - 1; all[last].seq == seq {
		ticks = 0 // quiet ticks have left nothing to lose
	}
	return &ticks
}
