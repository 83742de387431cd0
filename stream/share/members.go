package share

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Members lists the living members of groups. It is safe for concurrent use by any number of processes.
type Members interface {
	// Beat enters, atomically and by the clock of the store, that the member is alive now, removes the members that
	// were not heard for ttl, and returns the rest in ascending order. known reports whether the member itself was
	// on the list before: if not, it was silent for too long, or the list was lost. A member that the clock of the
	// store says was heard in the future, because the clock was stepped back, counts as heard now. All members of
	// a group have the same ttl. If the list cannot be asked, the error is a *fence.StoreError.
	Beat(ctx context.Context, group, member string, ttl time.Duration) (living []string, known bool, err error)

	// Leave removes the member. A member that is not on the list is no error.
	Leave(ctx context.Context, group, member string) error
}

// Memory is a list for the members of one process.
type Memory struct {
	now func() time.Time

	mu     sync.Mutex
	groups map[string]map[string]time.Time // when each member was last heard
}

// NewMemory returns an empty list.
func NewMemory() *Memory { return &Memory{now: time.Now, groups: map[string]map[string]time.Time{}} }

// Beat implements Members. It fails only if ctx has ended.
func (m *Memory) Beat(ctx context.Context, group, member string, ttl time.Duration) ([]string, bool, error) {
	if ctx.Err() != nil {
		return nil, false, &fence.StoreError{Op: "heartbeat", Outcome: fence.ErrUnknownOutcome, Err: context.Cause(ctx)}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if m.groups[group] == nil {
		m.groups[group] = map[string]time.Time{}
	}
	heard := m.groups[group]
	for name, at := range heard {
		switch {
		case at.After(now):
			heard[name] = now
		case now.Sub(at) >= ttl:
			delete(heard, name)
		}
	}
	_, known := heard[member]
	heard[member] = now
	return slices.Sorted(maps.Keys(heard)), known, nil
}

// Leave implements Members.
func (m *Memory) Leave(ctx context.Context, group, member string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups[group], member)
	return context.Cause(ctx)
}
