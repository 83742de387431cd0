package relay

import (
	"sync"
	"time"
)

// syncBudget bounds the bytes of Syncs over time. A Sync can be a million times as long as the request for it, and a
// client may ask again as soon as it has it. Balance may become negative by one Sync; the next waits until it is not.
// A nil one has no bound.
type syncBudget struct {
	rate  float64 // bytes a second
	burst float64 // most that is saved up

	mu      sync.Mutex
	balance float64
	at      time.Time // of the balance
}

// syncBurst is for how many seconds of its rate a budget saves up: what a client that comes to all its tiles needs.
const syncBurst = 16

// relaySyncRate is that of all clients together, in bytes a second.
const relaySyncRate = 512 << 20

func newSyncBudget(rate int) *syncBudget {
	burst := float64(rate) * syncBurst
	return &syncBudget{rate: float64(rate), burst: burst, balance: burst, at: time.Now()}
}

// wait is how long the next Sync has to wait.
func (b *syncBudget) wait(now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balance = min(b.burst, b.balance+b.rate*now.Sub(b.at).Seconds())
	b.at = now
	if b.balance >= 0 {
		return 0
	}
	return time.Duration(-b.balance/b.rate*float64(time.Second)) + time.Millisecond
}

// spend counts a Sync that is sent.
func (b *syncBudget) spend(bytes int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balance -= float64(bytes)
}

// syncWait is how long the client's next Sync has to wait, for its own budget or the relay's.
func (q *queue) syncWait() time.Duration {
	now := time.Now()
	return max(q.own.wait(now), q.all.wait(now))
}

// spendSync counts a Sync that was queued.
func (q *queue) spendSync(bytes int) {
	q.own.spend(bytes)
	q.all.spend(bytes)
}

// syncPause is how long a writer that waits for a budget leaves frames of other tiles waiting.
const syncPause = 50 * time.Millisecond
