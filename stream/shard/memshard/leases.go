package memshard

import (
	"context"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/shard"
)

// Leases keeps the books of any number of groups in memory. It implements shard.Leases.
type Leases struct {
	now func() time.Time

	mu     sync.Mutex
	groups map[string]*book
}

var _ shard.Leases = (*Leases)(nil)

// New returns an empty Leases that goes by the wall clock.
func New() *Leases { return NewWithClock(time.Now) }

// NewWithClock returns an empty Leases that goes by another clock, so that a test can age leases.
func NewWithClock(now func() time.Time) *Leases {
	return &Leases{now: now, groups: map[string]*book{}}
}

// Sync implements shard.Leases. It waits for nothing; a *fence.StoreError is only returned for a context
// that has ended already.
func (l *Leases) Sync(ctx context.Context, r shard.Request) (shard.Reply, error) {
	if err := r.Validate(); err != nil {
		return shard.Reply{}, err
	}
	if ctx.Err() != nil {
		return shard.Reply{}, &fence.StoreError{Op: "sync shards", Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.groups[r.Group]
	if b == nil {
		b = &book{holders: map[string]*holder{}}
		l.groups[r.Group] = b
	}
	return b.sync(l.now(), &r)
}

// Forget loses everything, as a store without persistence does when it restarts.
func (l *Leases) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.groups)
}
