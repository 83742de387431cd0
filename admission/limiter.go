package admission

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tilefence/tilefence/internal/lru"
)

// Rate is a token bucket.
type Rate struct {
	PerSecond float64 // tokens added a second, one intent each
	Burst     int     // tokens it holds at most
}

func (r Rate) orDefault(d Rate) Rate {
	return Rate{PerSecond: cmp.Or(r.PerSecond, d.PerSecond), Burst: cmp.Or(r.Burst, d.Burst)}
}

// limiter keeps a token bucket for each of the actors seen last. An actor that is forgotten comes back
// with a full bucket, so the bound is on memory, and on rates only while fewer actors are active.
type limiter struct {
	rate Rate

	mu      sync.Mutex
	buckets *lru.Map[string, *rate.Limiter]
}

func newLimiter(r Rate, actors int) *limiter {
	return &limiter{rate: r, buckets: lru.New[string, *rate.Limiter](actors)}
}

// take spends a token of the actor. Otherwise it says when there will be one.
func (l *limiter) take(actor string) (wait time.Duration, ok bool) {
	l.mu.Lock()
	b, known := l.buckets.Get(actor)
	if !known {
		b = rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)
		l.buckets.Put(actor, b)
	}
	l.mu.Unlock()
	r := b.Reserve()
	wait = r.Delay()
	if wait > 0 {
		r.Cancel()
	}
	return wait, wait == 0
}
