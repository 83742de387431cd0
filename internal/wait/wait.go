// Package wait waits, for a time, for goroutines or to be woken, or until a context ends.
package wait

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// For waits, and is false if ctx ends first.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Backoff is how long to wait after so many failures in a row: it doubles from first to most, less up to half of it at
// random, so that what failed together is not all tried again at once.
func Backoff(first, most time.Duration, failures int) time.Duration {
	d, doublings := most, max(failures-1, 0)
	if first <= most>>doublings {
		d = first << doublings
	}
	return d - rand.N(d/2+1)
}

// Group waits until the goroutines of a group have ended. If ctx ends first, it returns its cause.
func Group(ctx context.Context, g *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() {
		g.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wake puts an element into a channel that has room for one, unless there is one: what receives it looks at all that
// there is to do.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
