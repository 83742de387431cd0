package tile

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/stream"
)

// acquireWatched is acquire in a goroutine of its own, which is left behind if the rules do not return.
func (p *TileProcessor) acquireWatched(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- p.acquire(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-p.replays.dog.Hung():
		return p.acquisition.quarantineHung(ctx)
	}
}

// serveWatched is serve in a goroutine of its own, which is left behind if the rules do not return.
func (o *tileOwner) serveWatched(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- o.serve(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-o.heartbeat.dog.Hung():
		return o.giveUp(ctx)
	case <-o.replays.dog.Hung(): // while it read the history again
		return o.acquisition.quarantineHung(ctx)
	}
}

// quarantineHung quarantines a tile at whose history the rules hang. The goroutine that was left behind no longer
// counts among the take-overs.
func (a *acquisition) quarantineHung(ctx context.Context) error {
	if a.paced != nil {
		a.paced()
	}
	var failed *replayError
	a.replays.dog.Inspect(func(took time.Duration) {
		failed = &replayError{RulesError: a.replays.failure(took), at: a.replays.at}
	})
	return a.ownership.quarantine(ctx, a.ownership.grant.Epoch, failed)
}

// rejections is how often an owner whose rules do not return presents its last batch.
const rejections = 3

// giveUp ends an owner whose rules do not return. Resolve changes nothing, so the owner can still reject the intents
// of the tick: it cannot tell which of them is to blame, and every owner that was sent them again would hang as well.
func (o *tileOwner) giveUp(ctx context.Context) error {
	h := o.heartbeat
	var failed *RulesError
	h.dog.Inspect(func(took time.Duration) { failed = h.failure(took) })
	c, subs := h.next, h.subs // nothing changes them any more
	c.Tick += h.beats + 1
	if failed.Call != "Resolve" || len(subs) == 0 {
		return failed
	}
	b, err := newPending(c, subs, stream.Batch{}, nil)
	if err == nil && len(b.batch.Resolutions) > 0 {
		b.commit.Replicas = o.needed(b)
		for range rejections {
			if _, _, err = o.commitThrough(ctx, b.commit); err == nil {
				break
			}
			o.report(err)
			time.Sleep(o.cfg.quiet())
		}
	}
	if err != nil {
		o.pending = b // its outcome is not known
		return failed
	}
	for _, s := range subs {
		s.answer(stream.Rejected, nil)
	}
	return failed
}
