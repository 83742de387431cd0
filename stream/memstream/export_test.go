package memstream

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// AgeMarks makes all of a tile's marks look as if they had been written so much earlier.
func (l *Log) AgeMarks(tile fence.TileID, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if marks := l.marks[tile]; marks != nil {
		for c, m := range marks.of {
			m.Moved -= d.Milliseconds()
			marks.of[c] = m
		}
	}
}
