package directory

import "time"

// Step steps the clock of a record, and of all others, forward.
func (m *Memory) Step(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now
	m.now = func() time.Time { return now().Add(by) }
}

// Forget loses all records.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.players)
}
