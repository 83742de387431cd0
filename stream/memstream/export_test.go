package memstream

import (
	"maps"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// AgeMarks makes all of a tile's marks look as if they had been written, and found silent, so much earlier.
func (l *Log) AgeMarks(tile fence.TileID, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if marks := l.marks[tile]; marks != nil {
		for c, m := range marks.of {
			m.Moved -= d.Milliseconds()
			if m.Silent != 0 {
				m.Silent -= d.Milliseconds()
			}
			marks.of[c] = m
		}
	}
}

// FreezeMarks remembers a tile's marks and returns a function that puts them back.
func (l *Log) FreezeMarks(tile fence.TileID) (thaw func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	frozen := Marks{of: map[stream.Consumer]stream.Mark{}}
	if m := l.marks[tile]; m != nil {
		frozen = Marks{of: maps.Clone(m.of), trimmed: m.trimmed}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.marks[tile] = &Marks{of: maps.Clone(frozen.of), trimmed: frozen.trimmed}
	}
}
