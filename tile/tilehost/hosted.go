package tilehost

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// start gives a tile its goroutine. h.mu is held.
func (h *Host) start(t *hosted) {
	t.life, t.cancel = context.WithCancel(h.life)
	h.running.Go(func() { h.supervise(t) })
}

// stop ends a tile for good, unless it is wanted in a role meanwhile.
func (h *Host) stop(t *hosted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.cancel == nil {
		h.forget(t) // Run was not called
		return
	}
	t.cancel()
}

// supervise runs a tile's processors until the host forgets the tile.
func (h *Host) supervise(t *hosted) {
	defer func() {
		select {
		case <-h.slots: // one tile less to drain
		default:
		}
	}()
	for failures := 0; ; {
		began := time.Now()
		err := h.runOnce(t)
		if time.Since(began) > maxRestartAfter {
			failures = 0
		}
		end := h.conclude(t, err, failures)
		h.tell(&end)
		h.cfg.Hooks.Ended(end)
		if end.After > 0 {
			failures++
			h.wait(t, end.After)
		}
		if !h.again(t, end.Next) {
			return
		}
	}
}

// runOnce makes a processor in the tile's role and runs it. Its last status is in t.last.
func (h *Host) runOnce(t *hosted) error {
	p, life, as, err := h.equip(t)
	if err != nil {
		h.mu.Lock()
		t.last = &tile.Status{Tile: t.id, State: tile.Stopped, Since: time.Now(), Contact: h.contact}
		h.mu.Unlock()
		return err
	}
	if as != asFollower {
		h.takeTurn(life, t, as)
	}
	err = p.Run(life) // also when life is over: it answers the clients that came meanwhile
	h.finishPromotion(t)
	last := p.Status()
	h.mu.Lock()
	t.p, t.last = nil, &last
	h.mu.Unlock()
	return err
}

// equip gives a tile its next processor.
func (h *Host) equip(t *hosted) (p *tile.TileProcessor, life context.Context, as role, err error) {
	rules, err := tile.MakeRules(t.id, h.rules)
	if err != nil {
		return nil, nil, 0, err
	}
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
func (h *Host) takeTurn(life context.Context, t *hosted, as role) {
	class := heatClass(0)
	if as == asRival {
		class = urgentClass // a call waits for it: TakeOver or Accept
	}
	done, err := h.turn(life, t.id, 0, 0, class)
	if err != nil {
		return // life is over
	}
	h.mu.Lock()
	t.leave = done
	h.mu.Unlock()
}

// turn waits for a promotion's turn; done reports it.
func (h *Host) turn(ctx context.Context, id fence.TileID, why tile.Suspicion, heat float64, class int) (done func(),
	err error) {
	asked := time.Now()
	leave, err := h.pacer.enter(ctx, class)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	if t := h.tiles[id]; t != nil {
		t.yield = leave
	}
	h.mu.Unlock()
	began := time.Now()
	return func() {
		leave()
		h.cfg.Hooks.Promoted(PromotionInfo{Tile: id, Why: why, Heat: heat, Waited: began.Sub(asked),
			Took: time.Since(began)})
	}, nil
}

func (h *Host) finishPromotion(t *hosted) {
	h.mu.Lock()
	leave := t.leave
	t.leave = nil
	h.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// pace is tile.Config.Pace of the host's followers.
func (h *Host) pace(ctx context.Context, s tile.Status, why tile.Suspicion) (done func(), err error) {
	if err := h.allow(s.Tile); err != nil {
		return nil, err
	}
	class := heatClass(s.Heat)
	if why == tile.HandedOver || why == tile.Ordered {
		class = urgentClass
	}
	return h.turn(ctx, s.Tile, why, s.Heat, class)
}

// refused is Hooks.Refused of the host's processors. A tile that is installed on its master, and waits for
// replicas, gives its turn away: it asks no store anything, and a shard whose replica is down must not keep the
// tiles of the others waiting.
func (h *Host) refused(i tile.RefusalInfo) {
	if errors.Is(i.Err, fence.ErrUnconfirmed) {
		h.mu.Lock()
		var yield func()
		if t := h.tiles[i.Tile]; t != nil {
			yield, t.yield = t.yield, nil
		}
		h.mu.Unlock()
		if yield != nil {
			yield()
		}
	}
	h.cfg.Tile.Hooks.Refused(i)
}

// transition is Hooks.Transition of the host's processors.
func (h *Host) transition(i tile.TransitionInfo) {
	h.mu.Lock()
	t := h.tiles[i.Tile]
	if t != nil {
		switch {
		case i.To == tile.Serving:
			t.wanted = 0 // it has what it wanted, or has not ended after all
		case i.To == tile.Following && i.From != tile.Idle:
			t.failed++
		}
		t.notify()
	}
	h.mu.Unlock()
	if i.To == tile.Serving {
		if t != nil {
			h.finishPromotion(t)
		}
		h.cfg.Announce(fence.Owner{Tile: i.Tile, Epoch: i.Epoch, Contact: h.contact})
	}
	h.cfg.Tile.Hooks.Transition(i)
}

// conclude decides what becomes of a tile whose processor has ended.
func (h *Host) conclude(t *hosted, err error, failures int) EndInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.err = err
	end := EndInfo{Status: *t.last, Err: err, Next: StepForget}
	switch {
	case err == nil || t.life.Err() != nil:
	case errors.Is(err, tile.ErrSuperseded):
		if h.cfg.Refollow {
			t.role, end.Next = asFollower, StepFollow
		}
	case errors.Is(err, tile.ErrQuarantined):
		t.follows = t.follows || t.role == asFollower
		t.role, end.Next, end.After = asOwner, StepRestart, restartAfter(math.MaxInt)
	case errors.Is(err, fence.ErrLost):
		if t.follows {
			t.role, t.follows, end.Next = asFollower, false, StepFollow
		}
	case h.cfg.Restart:
		end.Next, end.After = StepRestart, restartAfter(failures)
		if t.role == asRival {
			t.role = asOwner // what it wanted to take may be in better hands by then
		}
	}
	return end
}

// restartAfter doubles with each failure in a row; half of it is random.
func restartAfter(failures int) time.Duration {
	d := min(firstRestart<<min(failures, 16), maxRestartAfter)
	return d/2 + rand.N(d/2+1)
}

// tell announces what the end of a processor says about the tile's owner.
func (h *Host) tell(end *EndInfo) {
	s := &end.Status
	o := fence.Owner{Tile: s.Tile, Epoch: s.Epoch}
	sup, superseded := errors.AsType[*tile.SupersededError](end.Err)
	lost, claimLost := errors.AsType[*fence.LostError](end.Err)
	held, quarantined := errors.AsType[*tile.QuarantinedError](end.Err)
	switch {
	case superseded:
		o.Epoch, o.Contact = sup.Successor.Epoch, sup.Successor.Contact
	case claimLost:
		o.Epoch, o.Contact = lost.Current.Epoch, lost.Current.Contact
	case quarantined && held.Quarantine.By == h.contact:
		o.Epoch, o.Contact = held.Epoch, h.contact // where clients learn why nothing happens
	case s.Successor.Present(): // handed over
		o.Epoch, o.Contact = s.Successor.Epoch, s.Successor.Contact
	}
	if o.Epoch > 0 {
		h.cfg.Announce(o)
	}
}

// wait lets time pass until the tile's restart, or until its life ends.
func (h *Host) wait(t *hosted, d time.Duration) {
	h.mu.RLock()
	life := t.life
	h.mu.RUnlock()
	_ = retry.Sleep(life, d) // again looks at life itself
}

// again reports whether the tile gets another processor; if not, it is forgotten.
func (h *Host) again(t *hosted, next NextStep) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.wanted != 0 && h.phase == hostRunning {
		t.role, t.wanted = t.wanted, 0
		t.cancel()
		t.life, t.cancel = context.WithCancel(h.life)
		return true
	}
	if next != StepForget && t.life.Err() == nil {
		return true
	}
	t.cancel()
	h.forget(t)
	return false
}
