package relay

import (
	"math"
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
	recent  float64   // spent, each byte counting half as much with each half of syncMemory
	at      time.Time // of both
}

// syncBurst is for how many seconds of its rate a budget saves up: what a client that comes to all its tiles needs.
const syncBurst = 16

// syncMemory is how long what was spent counts where a budget that many share is used up: the actor that has
// spent least goes first.
const syncMemory = 2 * time.Minute

// syncReserve is for how many seconds of its rate a shared budget goes below zero, for actors that have spent little.
const syncReserve = 4

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
	b.advance(now)
	if b.balance >= 0 {
		return 0
	}
	return b.until(0)
}

// waitOf is wait of a budget that many share, for one of them that has spent a part of what it can at once. The more
// the budget is overdrawn, the less one may have spent.
func (b *syncBudget) waitOf(spent float64, now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	least := -max(0, 1-spent) * b.rate * syncReserve
	if b.balance >= least {
		return 0
	}
	return b.until(least)
}

// spent is how much of what can be spent at once was spent lately.
func (b *syncBudget) spent(now time.Time) float64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	return b.recent / b.burst
}

func (b *syncBudget) advance(now time.Time) {
	passed := now.Sub(b.at).Seconds()
	b.balance = min(b.burst, b.balance+b.rate*passed)
	if b.recent > 0 {
		b.recent *= math.Exp2(-2 * passed / syncMemory.Seconds())
	}
	b.at = now
}

// until is how long the balance is below a value.
func (b *syncBudget) until(balance float64) time.Duration {
	return time.Duration((balance-b.balance)/b.rate*float64(time.Second)) + time.Millisecond
}

// spend counts a Sync that is sent.
func (b *syncBudget) spend(bytes int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balance -= float64(bytes)
	b.recent += float64(bytes)
}
