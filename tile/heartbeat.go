package tile

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/internal/watchdog"
)

// heartbeat refreshes the owner hash beside the loop while the rules compute for longer than it may stay unchanged. An
// owner whose rules are slow is late, not dead, and a follower that took the tile from it would be as slow. Rules that
// do not return lose their tile. Nothing else may be committed while a refresh is under way.
type heartbeat struct {
	*base
	dog *watchdog.Watchdog // guards the rest

	ctx   context.Context
	next  fence.Commit // epoch 0: the rules do not compute
	beats fence.Tick   // refreshes since they were counted
	call  string
	subs  []submission  // that the call is about
	limit time.Duration // after which the rules are given up
}

func newHeartbeat(c *base) *heartbeat {
	h := &heartbeat{base: c}
	h.dog = watchdog.New(c.cfg.quiet(), h.beat)
	return h
}

// begin is called before the rules. c is a refresh at the end of the history in the store.
func (h *heartbeat) begin(ctx context.Context, c fence.Commit, call string, subs []submission) {
	h.dog.Start(func() {
		h.ctx, h.next, h.call, h.subs = ctx, c, call, subs
		// The processor chose how many intents the call is about, so their number alone must not be why it takes too
		// long.
		h.limit = h.cfg.RulesTimeout + time.Duration(max(0, len(subs)-1))*h.cfg.TickInterval/4
	})
}

// end is called after them. It waits for a refresh that is under way, and does not return if the rules were given up.
func (h *heartbeat) end() {
	h.dog.Stop(func() { h.ctx, h.next, h.subs = nil, fence.Commit{}, nil })
}

// beat refreshes the owner hash, unless the rules have had all their time.
func (h *heartbeat) beat(took time.Duration) bool {
	if took >= h.limit {
		return false
	}
	if took >= stuckAfter {
		e := h.failure(took)
		if took-h.cfg.quiet() < stuckAfter {
			h.cfg.Logger.Warn("the game's rules do not return", "tick", e.Tick, "call", e.Call, "error", e,
				"given_up_after", h.limit)
		}
		h.inbox.update(func(s *Status) { s.Failure, s.FailedAt = e, time.Now() })
	}
	h.beats++
	c := h.next
	c.Tick += h.beats
	if _, err := h.commit(h.ctx, c); err != nil {
		h.cfg.Logger.Debug("owner hash not refreshed while the rules compute", "error", err) // a commit will say why
	}
	return true
}

// failure is the call that goes on.
func (h *heartbeat) failure(took time.Duration) *RulesError {
	e := &RulesError{Tile: h.tile, Tick: h.next.Tick, Call: h.call, Err: fmt.Errorf("%w for %v", ErrHangs, took)}
	switch {
	case len(h.subs) == 1:
		in := h.subs[0].intent
		e.Intent = &in
	case len(h.subs) > 1:
		in := &h.subs[0].intent
		e.Err = fmt.Errorf("%w, with %d intents, the first of %q (action %q)", e.Err, len(h.subs), in.Actor,
			in.ActionID)
	}
	return e
}

// count is how often the owner hash was refreshed since the last call: so many ticks have passed and are not played.
func (h *heartbeat) count() (n fence.Tick) {
	h.dog.Inspect(func(time.Duration) { n, h.beats = h.beats, 0 })
	return n
}
