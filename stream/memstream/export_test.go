package memstream

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// AgeMarks makes all of a tile's marks look as if they had been written so much earlier.
func (l *Log) AgeMarks(tile fence.TileID, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, m := range l.marks[tile] {
		m.Moved -= d.Milliseconds()
		l.marks[tile][c] = m
	}
}
