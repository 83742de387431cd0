package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
)

// throttled is the fault that DynamoDB refuses all requests for a while. The ledger and the checkpointer go on
// afterwards: it is over when the ledger answers, and each snapshot that the stream holds by then is a checkpoint.
func throttled() Fault {
	return Fault{faultinject.DurableThrottled, on(Durable, func(r *Runner) Injection {
		t, before, began := r.Throttle, int64(0), time.Time{}
		var back time.Duration
		return Injection{Lasts: r.between(2*time.Second, 4*time.Second),
			Inject: Always(func() {
				began, before = time.Now(), t.Refused.Load()
				t.Share.Store(1000)
			}),
			Repair: func(ctx context.Context) error {
				err := Until(ctx, "DynamoDB is asked", func() bool { return t.Refused.Load() > before })
				t.Share.Store(0)
				err = errors.Join(err, r.caughtUp(ctx))
				back = time.Since(began)
				return err
			},
			Recovered: func() time.Duration { return back }}
	})}
}

// caughtUp waits until the ledger answers and the durable store has the snapshots that there are now.
func (r *Runner) caughtUp(ctx context.Context) error {
	err := Until(ctx, "the ledger answers", func() bool {
		_, err := r.Backends.Ledger.Balance(ctx, "chaos", "chaos") // an account that there need not be
		return err == nil
	})
	for _, id := range r.Tiles {
		if err != nil {
			return err
		}
		var latest fence.Snapshot
		var found bool
		if latest, found, err = r.Backends.Log.Snapshot(ctx, id); err == nil && found {
			err = Until(ctx, "the latest snapshot of tile "+id.String()+" is a checkpoint", func() bool {
				stored, found, err := r.Backends.Durable.Get(ctx, id)
				return err == nil && found && !checkpoint.Supersedes(latest.Position, stored.Position)
			})
		}
	}
	return err
}
