// Package retry repeats calls of back ends that had no answer.
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// ErrEnded is what Do returns when its context has ended.
var ErrEnded = errors.New("drained")

// Do repeats f while its error is retryable, for as long as limit says; zero means without end. Each error that is
// followed by another attempt goes to report. When ctx ends first, the error is ErrEnded.
func Do(ctx context.Context, limit time.Duration, report func(error), f func() error) error {
	began := time.Now()
	for attempt := 0; ; attempt++ {
		err := f()
		if err == nil || !Able(err) || limit > 0 && time.Since(began) > limit {
			return err
		}
		report(err)
		if Sleep(ctx, Backoff(attempt)) != nil {
			return ErrEnded
		}
	}
}

// Able reports whether the same request may be presented again: it had no answer, or not enough confirmations.
func Able(err error) bool {
	return errors.Is(err, fence.ErrNotApplied) || errors.Is(err, fence.ErrUnknownOutcome) || errors.Is(err,
		fence.ErrUnconfirmed)
}

// MaxBackoff is the longest wait between two attempts.
const MaxBackoff = 320 * time.Millisecond

// Backoff is 5 ms doubling to MaxBackoff.
func Backoff(attempt int) time.Duration { return 5 * time.Millisecond << min(attempt, 6) }

// Sleep waits. The error is ctx's cause, if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	wait.For(ctx, d)
	return context.Cause(ctx)
}
