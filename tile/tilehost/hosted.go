package tilehost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// role is how a hosted tile's processor begins.
type role int

const (
	asOwner    role = 1 // claims the tile unless it is held elsewhere
	asFollower role = 2
	asRival    role = 3 // takes it from the owner it finds
)

// hosted is a tile of a host, from the call that adds it until the host has forgotten it. In
// between it has one processor after the other, seldom more than one. Host.mu guards it.
type hosted struct {
	host *Host
	id   fence.TileID
	role role // of the processor, or the next one
	// wanted is the role that was asked for while the processor was ending: the tile stays. Zero: none.
	wanted role

	life   context.Context     // of the processor, or of the wait for the next one; nil before Run
	cancel context.CancelFunc  // ends it
	p      *tile.TileProcessor // nil between two
	leave  func()              // ends the processor's promotion; nil when it has none under way
	yield  func()              // gives its place to another tile's while it waits for replicas; nil: it has none

	follows bool          // it was followed until it was quarantined
	failed  int           // take-overs that its followers tried in vain
	last    *tile.Status  // of the processor before, if there was one
	err     error         // what ended it
	ended   error         // likewise, if it is tried again
	gone    bool          // the host has forgotten the tile
	changed chan struct{} // closed when any of this changes; nil while no call waits
}

// start gives the tile its goroutine. Host.mu is held.
func (t *hosted) start() {
	t.life, t.cancel = context.WithCancel(t.host.life)
	t.host.running.Go(func() { t.supervise() })
}

// stop ends a tile for good, unless it is wanted in a role meanwhile.
func (t *hosted) stop() {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	if t.cancel == nil {
		t.forget() // Run was not called
		return
	}
	t.cancel()
}

// supervise runs a tile's processors until the host forgets the tile.
func (t *hosted) supervise() {
	defer func() {
		select {
		case <-t.host.slots: // one tile less to drain
		default:
		}
	}()
	for failures := 0; ; {
		began := time.Now()
		err := t.runOnce()
		if time.Since(began) > maxRestartAfter {
			failures = 0
		}
		end := t.conclude(err, failures)
		if end.Next == StepRestart && end.Status.Quarantine == nil {
			t.host.ended.Error("the tile's processor ended; it begins again", "tile", t.id, "after", end.After,
				"error", err)
		}
		t.host.tell(&end)
		hook.Call(t.host.cfg.Hooks.Ended, end)
		if end.After > 0 {
			failures++
			t.wait(end.After)
		}
		if !t.again(end.Next) {
			return
		}
	}
}

// runOnce makes a processor in the tile's role and runs it. Its last status is in t.last.
func (t *hosted) runOnce() error {
	p, life, as, err := t.equip()
	if err != nil {
		t.host.mu.Lock()
		t.last = &tile.Status{Tile: t.id, State: tile.Stopped, Since: time.Now(), Contact: t.host.contact}
		if failed, ok := errors.AsType[*tile.RulesError](err); ok {
			t.last.Failures, t.last.Failure, t.last.FailedAt = 1, failed, time.Now()
		}
		t.host.mu.Unlock()
		return err
	}
	if as != asFollower {
		t.takeTurn(life, as)
	}
	err = p.Run(life) // also when life is over: it answers the clients that came meanwhile
	t.finishPromotion()
	last := p.Status()
	t.host.mu.Lock()
	t.p, t.last = nil, &last
	t.host.mu.Unlock()
	return err
}

// equip gives a tile its next processor.
func (t *hosted) equip() (p *tile.TileProcessor, life context.Context, as role, err error) {
	rules, err := tile.MakeRules(t.id, t.host.rules)
	if err != nil {
		return nil, nil, 0, err
	}
	h := t.host
	cfg := h.tile
	if h.cfg.Configure != nil {
		h.cfg.Configure(t.id, &cfg)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	cfg.Follow, cfg.TakeOver, cfg.Pace = t.role == asFollower, t.role == asRival, h.pace
	cfg.Phase = h.spread.Take
	cfg.Hooks.Transition, cfg.Hooks.Refused = h.transition, h.refused
	if t.p, err = tile.New(t.id, h.contact, h.seams, rules, &cfg); err != nil {
		return nil, nil, 0, err
	}
	t.notify()
	return t.p, t.life, t.role, nil
}

// takeTurn waits until the pacer lets a tile be claimed; its turn ends when it serves. A follower comes by
// way of pace instead.
func (t *hosted) takeTurn(life context.Context, as role) {
	class := heatClass(0)
	if as == asRival {
		class = urgentClass // a call waits for it: TakeOver or Accept
	}
	done, err := t.host.turn(life, t.id, 0, 0, class)
	if err != nil {
		return // life is over
	}
	t.host.mu.Lock()
	t.leave = done
	t.host.mu.Unlock()
}

func (t *hosted) finishPromotion() {
	t.host.mu.Lock()
	leave := t.leave
	t.leave = nil
	t.host.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// conclude decides what becomes of a tile whose processor has ended.
func (t *hosted) conclude(err error, failures int) EndInfo {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	t.err, t.ended = err, nil
	end := EndInfo{Status: *t.last, Err: err, Next: StepForget}
	switch {
	case err == nil || t.life.Err() != nil:
	case errors.Is(err, tile.ErrSuperseded):
		if t.host.cfg.Refollow {
			t.role, end.Next = asFollower, StepFollow
		}
	case errors.Is(err, tile.ErrQuarantined):
		t.follows = t.follows || t.role == asFollower
		t.role, end.Next, end.After = asOwner, StepRestart, wait.Backoff(maxRestartAfter, maxRestartAfter, 1)
	case errors.Is(err, fence.ErrLost):
		if t.follows {
			t.role, t.follows, end.Next = asFollower, false, StepFollow
		}
	case t.host.cfg.Restart:
		t.ended = err
		end.Next, end.After = StepRestart, wait.Backoff(firstRestart, maxRestartAfter, failures+1)
		if t.role == asRival {
			t.role = asOwner // what it wanted to take may be in better hands by then
		}
	}
	return end
}

// wait lets time pass until the tile's restart, or until its life ends.
func (t *hosted) wait(d time.Duration) {
	t.host.mu.RLock()
	life := t.life
	t.host.mu.RUnlock()
	_ = retry.Sleep(life, d) // again looks at life itself
}

// again reports whether the tile gets another processor; if not, it is forgotten.
func (t *hosted) again(next NextStep) bool {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	if t.wanted != 0 && t.host.phase == hostRunning {
		t.role, t.wanted = t.wanted, 0
		t.cancel()
		t.life, t.cancel = context.WithCancel(t.host.life)
		return true
	}
	if next != StepForget && t.life.Err() == nil {
		return true
	}
	t.cancel()
	t.forget()
	return false
}

// await waits until done, which is called under Host.mu, says so. The error is ctx's cause.
func (t *hosted) await(ctx context.Context, done func() bool) error {
	for {
		t.host.mu.Lock()
		if done() {
			t.host.mu.Unlock()
			return nil
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.host.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitServing waits until the tile is served under an epoch above the one given, or until more take-overs than
// failures were tried in vain. The error is ctx's cause; what ended the tile's last processor; a *fence.LostError
// that names the owner, as far as the follower knows, which stayed one.
func (t *hosted) awaitServing(ctx context.Context, above fence.Epoch, failures int) error {
	serves, inVain := false, false
	var ended error
	var quarantined *tile.QuarantinedError
	var s tile.Status
	err := t.await(ctx, func() bool {
		if t.p != nil {
			s = t.p.Status()
			serves = (s.State == tile.Serving || s.State == tile.Healing) && s.Epoch > above
		}
		inVain, ended = t.failed > failures, t.ended
		if t.p == nil && t.wanted == 0 && t.last != nil {
			quarantined = t.last.Quarantine
		}
		return serves || t.gone || inVain || quarantined != nil
	})
	switch {
	case serves:
		return nil
	case err != nil:
		return because(err, ended)
	case quarantined != nil:
		return quarantined
	case inVain:
		return &fence.LostError{Tile: t.id, Current: fence.Grant{Tile: t.id, Epoch: s.Owner.Epoch,
			Contact: s.Owner.Contact}}
	case t.err != nil: // gone: it is not written any more
		return t.err
	}
	return t.host.redirect(ctx, t.id) // it was drained
}

// because says, beside that a call has waited in vain, what ended the tile's last processor; nil: nothing.
func because(err, ended error) error {
	if ended == nil {
		return err
	}
	return fmt.Errorf("%w; the tile's last processor ended: %w", err, ended)
}

// forget removes a tile. Host.mu is held.
func (t *hosted) forget() {
	t.gone = true
	delete(t.host.tiles, t.id)
	if errors.Is(t.err, tile.ErrRules) {
		if len(t.host.broken) == maxBroken {
			clear(t.host.broken)
		}
		t.host.broken[t.id] = t.err // for a call that awaits the tile a moment later
	}
	t.notify()
}

const maxBroken = 256

// status is Host.TileStatus. Host.mu is held.
func (t *hosted) status() tile.Status {
	switch {
	case t.p != nil:
		s := t.p.Status()
		if s.State < tile.Serving && s.State != tile.Following || s.State == tile.Stopped {
			s.Ended = t.ended // until this one has got further
		}
		if t.last != nil && s.State <= tile.Claiming {
			s.Quarantine = cmp.Or(s.Quarantine, t.last.Quarantine) // until this one has asked
		}
		return s
	case t.last != nil:
		s := *t.last
		s.Ended = t.ended
		return s
	}
	return tile.Status{Tile: t.id, State: tile.Idle, Contact: t.host.contact}
}

// ending reports whether the tile's processor takes no more orders. Host.mu is held.
func (t *hosted) ending() bool {
	if t.p == nil {
		return t.last != nil
	}
	switch t.p.Status().State {
	case tile.Draining, tile.StoodDown, tile.Stopped:
		return true
	}
	return t.life != nil && t.life.Err() != nil
}

// want lets a tile that is ending begin anew in a role. Host.mu is held.
func (t *hosted) want(r role) {
	t.wanted = r
	if t.p == nil && t.cancel != nil {
		t.cancel() // it may be waiting for its restart
	}
}

// notify wakes the calls that wait for a change of the tile. Host.mu is held.
func (t *hosted) notify() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}
