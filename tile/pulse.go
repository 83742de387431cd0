package tile

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// ErrHangs is why a call of the rules has failed that did not return within Timeouts.RulesTimeout.
var ErrHangs = errors.New("the call does not return")

// stuckAfter is after how long a call of the rules that goes on is reported. A follower suspects nothing meanwhile.
const stuckAfter = 2 * time.Second

// pulse refreshes the owner hash beside the loop while the rules compute for longer than it may stand still. An owner
// whose rules are slow is late, not dead, and a follower that took the tile from it would be as slow. Rules that do
// not return lose their tile. What counts is how often the pulse has beaten meanwhile, and not the clock: a process
// that was paused has not hung.
type pulse struct {
	*core
	every time.Duration
	hung  chan struct{} // closed when the rules are given up: their goroutine ends if they ever return

	mu    sync.Mutex // held while a refresh is under way: nothing else may be committed then
	timer *time.Timer
	ctx   context.Context
	next  fence.Commit // epoch 0: the rules do not compute
	beats fence.Tick   // refreshes since they were counted

	call  string
	subs  []submission  // that the call is about
	limit time.Duration // after which the rules are given up
	since time.Duration // that the call has taken, in beats
	over  bool          // hung is closed
}

func newPulse(c *core) *pulse {
	return &pulse{core: c, every: c.cfg.quiet(), hung: make(chan struct{})}
}

// begin is called before the rules. c is a refresh at the end of the history in the store.
func (p *pulse) begin(ctx context.Context, c fence.Commit, call string, subs []submission) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx, p.next, p.call, p.subs, p.since = ctx, c, call, subs, 0
	// The processor chose how many intents the call is about, so their number alone must not be why it takes too long.
	p.limit = p.cfg.RulesTimeout + time.Duration(max(0, len(subs)-1))*p.cfg.TickInterval/4
	if p.timer == nil {
		p.timer = time.AfterFunc(p.every, p.beat)
	} else {
		p.timer.Reset(p.every)
	}
}

// end is called after them. It waits for a refresh that is under way. It does not return if the rules were given up:
// what their goroutine has is another's by now.
func (p *pulse) end() {
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		runtime.Goexit()
	}
	p.ctx, p.next, p.subs = nil, fence.Commit{}, nil
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Epoch == 0 {
		return
	}
	before := p.since
	p.since += p.every
	if p.since >= p.limit {
		p.over = true
		close(p.hung)
		return
	}
	if p.since >= stuckAfter {
		e := p.failure()
		if before < stuckAfter {
			p.cfg.Logger.Warn("the game's rules do not return", "tick", e.Tick, "call", e.Call, "error", e,
				"given_up_after", p.limit)
		}
		p.desk.update(func(s *Status) { s.Failure, s.FailedAt = e, time.Now() })
	}
	p.beats++
	c := p.next
	c.Tick += p.beats
	if _, err := p.commit(p.ctx, c); err != nil {
		p.cfg.Logger.Debug("owner hash not refreshed while the rules compute", "error", err) // a commit will say why
	}
	p.timer.Reset(p.every)
}

// failure is the call that goes on. p.mu is held.
func (p *pulse) failure() *RulesError {
	e := &RulesError{Tile: p.tile, Tick: p.next.Tick, Call: p.call, Err: fmt.Errorf("%w for %v", ErrHangs, p.since)}
	switch {
	case len(p.subs) == 1:
		in := p.subs[0].intent
		e.Intent = &in
	case len(p.subs) > 1:
		in := &p.subs[0].intent
		e.Err = fmt.Errorf("%w, with %d intents, the first of %q (action %q)", e.Err, len(p.subs), in.Actor,
			in.ActionID)
	}
	return e
}

// count is how often the owner hash was refreshed since the last call: so many ticks have passed and are not played.
func (p *pulse) count() fence.Tick {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.beats
	p.beats = 0
	return n
}

// watched is serve in a goroutine of its own, which is left behind if the rules do not return.
func (o *tileOwner) watched(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- o.serve(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-o.pulse.hung:
		return o.giveUp(ctx)
	case <-o.vigil.hung: // while it read the history again
		return o.acquisition.condemn(ctx)
	}
}

// rejections is how often an owner whose rules do not return presents its last batch.
const rejections = 3

// giveUp ends an owner whose rules do not return. Resolve changes nothing, so the owner can still reject the intents
// of the tick: it cannot tell which of them is to blame, and whichever owner was sent them again would hang as well.
func (o *tileOwner) giveUp(ctx context.Context) error {
	p := o.pulse
	p.mu.Lock()
	c, subs, failed := p.next, p.subs, p.failure()
	c.Tick += p.beats + 1
	p.mu.Unlock()
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
			time.Sleep(p.every)
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
