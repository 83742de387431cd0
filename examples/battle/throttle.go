package main

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// throttled is the fault that DynamoDB refuses all requests for a while. The ledger and the checkpointer go on
// afterwards: it is over when the ledger answers, and each snapshot that the stream holds by then is a checkpoint.
func throttled() fault {
	return fault{"DynamoDB throttled", "Every request is refused for want of capacity. The tiles go on; cards and " +
		"checkpoints wait.",
		on(durable, func(c *chaos) strike {
			t, before, began := c.backends.throttle, int64(0), time.Time{}
			var back time.Duration
			return strike{lasts: c.between(2*time.Second, 4*time.Second),
				hit: always(func() {
					began, before = time.Now(), t.Refused.Load()
					t.Share.Store(1000)
				}),
				heal: func(ctx context.Context) error {
					err := c.until(ctx, "DynamoDB is asked", func() bool { return t.Refused.Load() > before })
					t.Share.Store(0)
					err = errors.Join(err, c.caughtUp(ctx))
					back = time.Since(began)
					return err
				},
				recovery: func() time.Duration { return back }}
		})}
}

// caughtUp waits until the ledger answers and the durable store has the snapshots that there are now.
func (c *chaos) caughtUp(ctx context.Context) error {
	err := c.until(ctx, "the ledger answers", func() bool {
		_, err := c.backends.Ledger.Balance(ctx, botName(0), energy)
		return err == nil
	})
	for _, id := range c.world {
		if err != nil {
			return err
		}
		var latest fence.Snapshot
		var found bool
		if latest, found, err = c.backends.Log.Snapshot(ctx, id); err == nil && found {
			err = c.until(ctx, "the latest snapshot of tile "+id.String()+" is a checkpoint", func() bool {
				stored, found, err := c.backends.Durable.Get(ctx, id)
				return err == nil && found && !checkpoint.Supersedes(latest.Position, stored.Position)
			})
		}
	}
	return err
}
