package tilefence

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// How often Await tries: after awaitFirst, and then twice as long each time until awaitMost.
const (
	awaitFirst = 250 * time.Millisecond
	awaitMost  = 5 * time.Second
)

// Await calls open, which connects to a back end or prepares it, until it succeeds, ctx ends, or it fails for another
// reason than that a server does not answer, or not yet, which is a *fence.StoreError. So a process that starts while a
// master fails over waits, and one with a wrong setting ends at once. Each failure is a line of the log that names
// what; log may be nil. The error is that of open, or ctx's cause together with the last one of open.
func Await(ctx context.Context, log *slog.Logger, what string, open func(context.Context) error) error {
	log = orDiscard(log)
	began := time.Now()
	for try := 1; ; try++ {
		err := open(ctx)
		if _, away := errors.AsType[*fence.StoreError](err); !away {
			if err == nil && try > 1 {
				log.Info("a back end answers: starting", "backend", what, "waited",
					time.Since(began).Round(time.Second))
			}
			return err
		}
		if ctx.Err() == nil {
			log.Warn("waiting for a back end before starting", "backend", what, "waited",
				time.Since(began).Round(time.Second), "error", err)
		}
		if !wait.For(ctx, wait.Backoff(awaitFirst, awaitMost, try)) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
