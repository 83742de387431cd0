package tile

import (
	"context"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// pulse refreshes the owner hash beside the loop while the rules compute for longer than it may stand still. An owner
// whose rules are slow is late, not dead, and a follower that took the tile from it would be as slow.
type pulse struct {
	*core
	every time.Duration

	mu    sync.Mutex // held while a refresh is under way: nothing else may be committed then
	timer *time.Timer
	ctx   context.Context
	next  fence.Commit // epoch 0: the rules do not compute
	beats fence.Tick   // refreshes since they were counted
}

func newPulse(c *core) *pulse {
	return &pulse{core: c, every: c.cfg.quiet()}
}

// begin is called before the rules. c is a refresh at the end of the history in the store.
func (p *pulse) begin(ctx context.Context, c fence.Commit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx, p.next = ctx, c
	if p.timer == nil {
		p.timer = time.AfterFunc(p.every, p.beat)
	} else {
		p.timer.Reset(p.every)
	}
}

// end is called after them. It waits for a refresh that is under way.
func (p *pulse) end() {
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx, p.next = nil, fence.Commit{}
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Epoch == 0 {
		return
	}
	p.beats++
	c := p.next
	c.Tick += p.beats
	if _, err := p.commit(p.ctx, c); err != nil {
		p.cfg.Logger.Debug("owner hash not refreshed while the rules compute", "error", err) // a commit will say why
	}
	p.timer.Reset(p.every)
}

// count is how often the owner hash was refreshed since the last call: so many ticks have passed and are not played.
func (p *pulse) count() fence.Tick {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.beats
	p.beats = 0
	return n
}
