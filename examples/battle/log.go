package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
)

// battleLog keeps the last things that happened, for the spectator page.
type battleLog struct {
	mu     sync.Mutex
	next   uint64
	events []spectator.Event // at most logLimit
}

const logLimit = 200

func newBattleLog() *battleLog { return &battleLog{next: 1} }

func (l *battleLog) add(kind spectator.Kind, tile fence.TileID, owner string, epoch fence.Epoch, format string, args ...any) {
	l.put(spectator.Event{Kind: kind, Tile: tile, Owner: owner, Epoch: epoch, Text: fmt.Sprintf(format, args...)})
}

// put adds an event, and numbers and dates it.
func (l *battleLog) put(e spectator.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID, e.At = l.next, time.Now().UnixMilli()
	l.events = append(l.events, e)
	l.next++
	if len(l.events) > logLimit {
		l.events = append([]spectator.Event(nil), l.events[len(l.events)-logLimit:]...)
	}
}

// after returns the events newer than id, oldest first.
func (l *battleLog) after(id uint64) []spectator.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.events {
		if e.ID > id {
			return append([]spectator.Event(nil), l.events[i:]...)
		}
	}
	return nil
}
