package tile

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/retry"
	"github.com/tilefence/tilefence/tile/internal/turn"
)

// tileFollower keeps a tile's state up to date while another processor owns it, and takes the tile over when it has a
// reason to.
type tileFollower struct {
	*base
	ownership   *ownership
	acquisition *acquisition
	suspector   *suspector

	damaged bool // the history could not be read, and that was logged
}

// run follows the tile until this processor has acquired it. Nothing but ctx, Drain or a quarantine ends a follower:
// what it cannot read now it may be able to read later.
func (f *tileFollower) run(ctx context.Context) (got acquired, done func(), err error) {
	for {
		f.inbox.enter(Following, f.ownership.grant.Epoch)
		f.inbox.sendAway()
		s, err := f.follow(ctx)
		if err != nil {
			return got, nil, err
		}
		if got, done, err = f.take(ctx, s); err == nil {
			return got, done, nil
		}
		if ctx.Err() != nil {
			f.ownership.release(ctx)
			return got, nil, errDrained
		}
		if errors.Is(err, ErrQuarantined) {
			return got, nil, err
		}
		f.resign(s, err)
	}
}

// follow keeps the state up to date until there is a reason to ask for the tile.
func (f *tileFollower) follow(ctx context.Context) (suspicion, error) {
	wait, _ := f.pace()
	timer := time.NewTimer(turn.Phase(f.tile, wait))
	defer timer.Stop()
	var report *gossipSuspicion // nil: there is none to look into
	for {
		select {
		case <-ctx.Done():
			return suspicion{}, errDrained
		case i := <-f.inbox.inspections:
			i.done <- f.inbox.redirected()
			continue
		case d := <-f.inbox.drains:
			if d.successor == "" {
				d.answer <- nil
				return suspicion{}, errDrained
			}
			d.answer <- f.inbox.redirected()
			continue
		case why := <-f.inbox.takeOvers.calls:
			if why != OwnerDied || f.watch.Epoch() == 0 {
				return f.suspector.suspect(why), nil
			}
			if report != nil {
				continue // however many there are, the tile is read no more often for them
			}
			report = &gossipSuspicion{suspicion: f.suspector.suspect(why)}
		case <-timer.C:
		}
		n, err := f.pass(ctx)
		f.note(err)
		if f.suspector.silent() {
			if err = f.giveUp(ctx, err); err == nil || errors.Is(err, ErrQuarantined) {
				return f.suspector.suspect(SilentOwner), err
			}
		}
		switch f.suspector.judge(report, err) {
		case ownerDead:
			return report.suspicion, nil
		case ownerAlive:
			report = nil
		}
		wait = f.nextPass(wait, n, report != nil)
		timer.Reset(wait)
	}
}

// giveUp puts a tile into quarantine whose owner is silent and whose history the rules of this follower cannot fold,
// as err says, when other followers have had as much time again to take it. Otherwise it returns err.
func (f *tileFollower) giveUp(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*RulesError](err); !ok || f.watch.Silent/2 < f.cfg.SuspectAfter {
		return err
	}
	h, failure := f.acquisition.recover(ctx)
	if failure == nil {
		failure = f.acquisition.replay(&h.Snapshot, h.Entries)
	}
	f.watch.Silent = 0 // should the quarantine fail
	return f.ownership.quarantine(ctx, f.watch.Epoch(), failure)
}

// nextPass is how long the follower waits after a pass that found n new entries, having waited wait before it.
func (f *tileFollower) nextPass(wait time.Duration, n int, reported bool) time.Duration {
	often, seldom := f.pace()
	switch {
	case n >= stream.DefaultLimit:
		return 0 // there is more
	case n > 0:
		return often
	case f.damaged: // it may be reading the whole history each time
		return min(max(2*wait, seldom), max(seldom, damagedWait))
	case reported:
		return min(often, f.suspector.judgeAfter())
	}
	return min(max(2*wait, often), seldom)
}

// damagedWait is how long a follower waits at most before it reads a history again that cannot be read.
const damagedWait = 5 * time.Second

// pace is how long a follower waits between two readings: while events flow, and at most.
func (f *tileFollower) pace() (often, seldom time.Duration) {
	quarter := f.cfg.SuspectAfter / 4
	often = min(f.cfg.TickInterval, quarter)
	return often, max(often, min(8*f.cfg.TickInterval, quarter))
}

// pass reads what was committed since the last pass and folds it. Where that does not continue the state, it
// reads everything again. n is the number of entries that were new.
func (f *tileFollower) pass(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	h := f.history
	before := h.Position
	c, err := readTail(ctx, f.seams.Log, f.tile, before.Seq)
	if err != nil {
		f.watch.Failed()
		return 0, err
	}
	_, seldom := f.pace()
	f.watch.Saw(c.Owner, 2*seldom)
	if !h.Warm || !h.Extend(&c) || h.Divergence != nil {
		h.Warm = false
		r, err := stream.Recover(ctx, f.seams.Log, f.tile)
		if err == nil {
			err = h.Replay(&r.Snapshot, r.Entries)
		}
		if err != nil {
			return 0, err
		}
		h.Warm = true
	}
	f.compared()
	if !h.Saw(f.watch.Last.Tick) {
		f.reminder.Error("the tick of the owner hash cannot be; it is ignored", "tick", f.watch.Last.Tick)
	}
	h.Tick = max(h.Tick, h.Seen)
	h.Seen = h.Tick
	h.Heat.Decay(h.Tick)
	f.watch.Wrote = h.Position.Epoch
	f.ownership.saw(f.watch.Epoch())
	f.inbox.update(func(s *Status) {
		s.Position, s.Tick, s.Owner, s.Heat = h.Position, h.Tick, f.watch.Latest(), h.Heat.Value
		s.Silent = f.watch.Silent
	})
	if h.Position == before {
		return 0, nil
	}
	return max(1, len(c.Entries)), nil
}

// note logs what keeps a follower from following, once each time it changes. Store errors are for Hooks.Refused.
func (f *tileFollower) note(err error) {
	damaged := err != nil && !retry.Able(err) && !errors.Is(err, context.Canceled)
	switch {
	case damaged && !f.damaged:
		f.cfg.Logger.Error("tile cannot be followed: its history cannot be read; the follower keeps trying",
			"at", f.history.Position, "error", err)
		if failed, ok := errors.AsType[*RulesError](err); ok {
			f.rulesFailed(failed)
		}
	case err == nil && f.damaged:
		f.cfg.Logger.Info("tile can be followed again", "at", f.history.Position)
	}
	if err != nil {
		f.report(err)
	}
	f.damaged = damaged || f.damaged && err != nil
}

// take takes a suspicion to the authority. On success the tile is this processor's, and done, which may be nil, is to
// be called when it serves. After an error the state may be anything.
func (f *tileFollower) take(ctx context.Context, s suspicion) (got acquired, done func(), err error) {
	a := f.acquisition
	a.steps, a.lapped = TakeoverInfo{Tile: f.tile, Why: s.why, Silent: s.silent}, s.began
	if f.cfg.Pace != nil {
		if done, err = f.cfg.Pace(ctx, f.inbox.read(), s.why); err != nil {
			return got, nil, err
		}
		if done != nil {
			done = sync.OnceFunc(done)
		}
		a.paced = done
	}
	if err = f.lookAgain(ctx, s); err == nil {
		if got, err = a.run(ctx, fromStore); err == nil {
			f.inbox.resume()
			f.suspector.failed = 0
			return got, done, nil
		}
	}
	if done != nil {
		done()
	}
	return got, nil, err
}

// errRecovered means: while the follower waited for its turn, the owner moved again, or another took over.
var errRecovered = errors.New("the tile has an owner that is alive")

// lookAgain brings the state up to date once more, so that little is left to be read when the epoch is minted. A
// follower that cannot read the tile, or its journal, does not take it from an owner that can.
func (f *tileFollower) lookAgain(ctx context.Context, s suspicion) error {
	err := f.ownership.retry(ctx, func() error {
		if _, err := f.pass(ctx); err != nil {
			return err
		}
		return f.acquisition.durable.Readable(ctx, f.history.Position.Seq)
	})
	if err != nil {
		f.note(err)
		return err
	}
	switch moved := f.watch.Epoch() != s.of; {
	case s.why == SilentOwner || s.why == OwnerDied && s.of > 0:
		_, standing := f.inbox.takeOvers.deathReported()
		if moved || !s.cutOff && f.watch.Silent < s.silent || s.cutOff && !standing {
			return errRecovered
		}
	}
	return nil
}

// resign returns to following after an attempt that failed. What was presented under the epoch it had, if any, does
// not matter: it was empty, and no client was served.
func (f *tileFollower) resign(s suspicion, err error) {
	var lost *fence.LostError
	var superseded *SupersededError
	level := slog.LevelInfo
	switch {
	case errors.As(err, &lost):
		f.watch.Rival = lost.Current
	case errors.As(err, &superseded):
		o := superseded.Successor
		f.watch.Rival = fence.Grant{Tile: f.tile, Epoch: o.Epoch, Contact: o.Contact}
		f.history.Warm = false
	case errors.Is(err, errRecovered), errors.Is(err, ErrRedirect):
	default:
		level = slog.LevelWarn
		if !retry.Able(err) {
			f.suspector.failedAttempt()
		}
		if f.ownership.grant.Epoch > 0 {
			f.watch.Rival = f.ownership.grant // taken over from at the next attempt
		}
		f.history.Warm = false
	}
	f.cfg.Logger.Log(context.Background(), level, "tile not taken over; it is followed", "why", s.why, "error", err)
	f.ownership.grant, f.ownership.skip, f.watch.Silent = fence.Grant{}, nil, 0
	f.inbox.update(func(st *Status) { st.Owner = f.watch.Latest() })
	select {
	case why := <-f.inbox.takeOvers.calls:
		if why == HandedOver || why == Ordered {
			f.inbox.takeOvers.order(why) // asked for since; the owner that died may have been another
		}
	default:
	}
}
