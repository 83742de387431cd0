package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
)

// battleLog keeps the last things that happened, for the spectator page.
type battleLog struct {
	mu     sync.Mutex
	last   uint64
	events []spectator.Event // at most logLimit
}

const logLimit = 200

func (l *battleLog) add(
	kind spectator.Kind, tile fence.TileID, owner string, epoch fence.Epoch, format string, args ...any,
) {
	l.put(spectator.Event{Kind: kind, Tile: tile, Owner: owner, Epoch: epoch, Text: fmt.Sprintf(format, args...)})
}

// put adds an event, and numbers and dates it.
func (l *battleLog) put(e spectator.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.ID, e.At = l.last, time.Now().UnixMilli()
	l.events = append(l.events[max(0, len(l.events)+1-logLimit):], e)
}

// after returns the events newer than id, oldest first.
func (l *battleLog) after(id uint64) []spectator.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events[len(l.events)-int(min(l.last-min(id, l.last), uint64(len(l.events)))):])
}
