package bridge

import (
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream/fanout"
)

// inbox is what callers have asked of a bridge and its loop has not taken yet.
type inbox struct {
	changed chan struct{} // signals the loop that there is something to take

	mu     sync.Mutex
	wanted map[fence.TileID]*want  // the tiles to forward
	woken  []*want                 // of these, the ones wake was called for since the loop looked
	hints  [fanout.HintGroups]bool // of which groups hints arrive
	lapsed [fanout.HintGroups]bool // of which they did not for a while since the loop looked
	edited bool                    // wanted has changed since the loop looked
	turned bool                    // hints has changed since the loop looked
}

// want is a tile that is to be forwarded.
type want struct {
	woken bool  // is in inbox.woken
	tile  *tile // the loop's; nil while it does not know of it
}

func (b *inbox) add(tiles []fence.TileID) {
	b.mu.Lock()
	for _, t := range tiles {
		if b.wanted[t] == nil {
			b.wanted[t] = &want{}
		}
	}
	b.edited = true
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) remove(tiles []fence.TileID) {
	b.mu.Lock()
	for _, t := range tiles {
		delete(b.wanted, t)
	}
	b.edited = true
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.wanted)
}

func (b *inbox) wake(tiles []fence.TileID) {
	b.mu.Lock()
	before := len(b.woken)
	for _, id := range tiles {
		if w := b.wanted[id]; w != nil && !w.woken {
			w.woken = true
			b.woken = append(b.woken, w)
		}
	}
	first := before == 0 && len(b.woken) > 0
	b.mu.Unlock()
	if first {
		b.signal()
	}
}

func (b *inbox) setHints(group int, up bool) {
	b.mu.Lock()
	b.hints[group] = up
	b.lapsed[group] = b.lapsed[group] || !up
	b.turned = true
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() { wait.Wake(b.changed) }
