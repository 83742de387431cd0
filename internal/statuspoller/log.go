package statuspoller

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
)

// Log keeps the last things that happened, for the spectator page. It may be used from any goroutine.
type Log struct {
	mu     sync.Mutex
	last   uint64
	events []spectator.Event // at most logLimit
}

const logLimit = 200

// Add adds an event.
func (l *Log) Add(
	kind spectator.Kind, tile fence.TileID, owner string, epoch fence.Epoch, format string, args ...any,
) {
	l.Put(spectator.Event{Kind: kind, Tile: tile, Owner: owner, Epoch: epoch, Text: fmt.Sprintf(format, args...)})
}

// Put adds an event, and numbers and dates it.
func (l *Log) Put(e spectator.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.ID, e.At = l.last, time.Now().UnixMilli()
	l.events = append(l.events[max(0, len(l.events)+1-logLimit):], e)
}

// After returns the events newer than id, oldest first.
func (l *Log) After(id uint64) []spectator.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events[len(l.events)-int(min(l.last-min(id, l.last), uint64(len(l.events)))):])
}
