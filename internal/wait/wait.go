// Package wait waits, for a time or until a context ends.
package wait

import (
	"context"
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
