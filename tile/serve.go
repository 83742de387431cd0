package tile

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/stream"
)

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

// serve ticks until ctx ends or the tile is lost. The error is never nil.
func (o *tileOwner) serve(ctx context.Context) error {
	wait, done := o.cfg.Phase(o.tile, o.cfg.TickInterval)
	if done != nil {
		defer done()
	}
	due := time.Now().Add(wait)
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return o.drain(ctx)
		case i := <-o.inbox.inspections:
			o.inspected(i)
			continue
		case d := <-o.inbox.drains:
			if d.successor == "" {
				d.answer <- nil
				return o.drain(ctx)
			}
			if err := o.handOver(ctx, d); err != nil {
				return err
			}
			timer.Reset(time.Until(due))
			continue
		case r := <-o.snapshots.results:
			if err := o.tookSnapshot(ctx, r); err != nil {
				return err
			}
			continue
		case a := <-o.recordCheck.answers:
			o.recordCheck.judge(a)
			continue
		case <-timer.C:
			if ctx.Err() != nil { // of two that are ready, select takes either
				return o.drain(ctx)
			}
		}
		var err error
		if due, err = o.advance(ctx, due); err != nil {
			return err
		}
		if o.pending != nil {
			timer.Reset(o.pending.retryAfter(o.cfg))
		} else {
			timer.Reset(time.Until(due))
		}
	}
}

// tookSnapshot takes the result of a snapshot.
func (o *tileOwner) tookSnapshot(ctx context.Context, r snapshotResult) error {
	o.snapshots.done(r)
	o.work.spent += r.info.Encode
	return o.shownAbove(ctx, r.info.Trimmed)
}

// advance plays a tick, or presents the batch of the last one again. next is when the next tick is due. What came while
// the loop was busy is taken first: of several that are ready, select takes any.
func (o *tileOwner) advance(ctx context.Context, due time.Time) (next time.Time, err error) {
	select {
	case r := <-o.snapshots.results:
		if err := o.tookSnapshot(ctx, r); err != nil {
			return due, err
		}
	default:
	}
	select {
	case a := <-o.recordCheck.answers:
		o.recordCheck.judge(a)
	default:
	}
	if frozen, err := o.attendJournal(ctx); err != nil || frozen {
		return due, err
	}
	if o.pending == nil {
		missed := o.missed(time.Since(due))
		due = due.Add(time.Duration(missed) * o.dilation.interval())
		err = o.play(ctx, due, missed)
		due = due.Add(o.dilation.interval())
	} else {
		o.inbox.sweep()
		err = o.present(ctx)
	}
	if err != nil || o.pending != nil {
		return due, err
	}
	o.snapshots.saveIfDue(ctx, o.settled)
	return due, o.outlast(ctx)
}

// missed counts the ticks whose time passed while the tick before ran or waited. They are not played.
func (o *tileOwner) missed(late time.Duration) int {
	missed := int(max(0, late) / o.dilation.interval())
	if missed == 0 && o.missing == 0 {
		return 0
	}
	for range min(missed, 100) {
		o.missing += (1 - o.missing) / missWeight
	}
	if o.missing -= o.missing / missWeight; o.missing < 0.01 {
		o.missing = 0
	}
	o.inbox.update(func(s *Status) { s.Missed, s.Missing = s.Missed+int64(missed), o.missing })
	return missed
}

// missWeight is over how many ticks Status.Missing is weighted.
const missWeight = 20

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
	b, err := newPending(c, subs, stream.Batch{}, &Outputs{})
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
		s.answer(Result{Outcome: stream.Rejected, Why: whyFailed}, nil)
	}
	return failed
}
