package share

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// NewMemoryWithClock returns a list that is judged by a clock that can be stepped.
func NewMemoryWithClock(now func() time.Time) *Memory {
	m := NewMemory()
	m.now = now
	return m
}

// Forget loses a list.
func (m *Memory) Forget(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, group)
}

// MemberOf is the member of a list that is to work on a tile.
func MemberOf(names []string, tile fence.TileID) string {
	v := view{}
	v.set(names)
	return v.member(tile)
}
