package statuspoller

import (
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// sequenceTimes records at which tick the poller first observed each sequence of a tile.
type sequenceTimes []observed

type observed struct {
	seq  fence.Seq
	tick fence.Tick
}

// maxObserved bounds the record of a tile that gets no checkpoint: beyond it, every other entry is removed.
const maxObserved = 1000

// note adds an observation. A stream that a failover has set back continues from there.
func (t *sequenceTimes) note(seq fence.Seq, tick fence.Tick) {
	all := *t
	for len(all) > 0 && all[len(all)-1].seq > seq {
		all = all[:len(all)-1]
	}
	if len(all) == 0 || all[len(all)-1].seq < seq {
		all = append(all, observed{seq, tick})
	}
	if len(all) > maxObserved {
		n := 0
		all = slices.DeleteFunc(all, func(observed) bool {
			n++
			return n%2 == 0
		})
	}
	*t = all
}

// after is how many ticks the tile has played since a sequence, at most; nil if the record does not go back that
// far. It removes what was before.
func (t *sequenceTimes) after(seq fence.Seq, now fence.Tick) *fence.Tick {
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
