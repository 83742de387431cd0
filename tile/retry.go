package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// errDrained ends everything that a processor does when its context has ended.
var errDrained = errors.New("drained")

// retry repeats f while its error is retryable, for as long as limit says; zero means without end. Each error that is
// followed by another attempt goes to report. When ctx ends first, the error is errDrained.
func retry(ctx context.Context, limit time.Duration, report func(error), f func() error) error {
	began := time.Now()
	for attempt := 0; ; attempt++ {
		err := f()
		if err == nil || !retryable(err) || limit > 0 && time.Since(began) > limit {
			return err
		}
		report(err)
		if sleep(ctx, backoff(attempt)) != nil {
			return errDrained
		}
	}
}

// retryable reports whether the same request may be presented again: it had no answer, or not enough confirmations.
func retryable(err error) bool {
	return errors.Is(err, fence.ErrNotApplied) || errors.Is(err, fence.ErrUnknownOutcome) || errors.Is(err,
		fence.ErrUnconfirmed)
}

// maxBackoff is the longest wait between two attempts.
const maxBackoff = 320 * time.Millisecond

// backoff is 5 ms doubling to maxBackoff.
func backoff(attempt int) time.Duration { return 5 * time.Millisecond << min(attempt, 6) }

// sleep waits. The error is ctx's cause, if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
