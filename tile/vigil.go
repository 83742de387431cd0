package tile

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// vigil watches the calls of the rules by which a history is read: no tick is under way then, and so no pulse. A call
// that does not return is reported as in a tick, with the place in the stream. If it holds up a processor that has
// claimed the tile, the tile is quarantined after RulesTimeout, as if the call had failed: every other owner would
// hang at the same place. A follower keeps nobody from playing; it waits, and is reported.
type vigil struct {
	*core
	hung chan struct{} // closed when a claimant is given up: its goroutine ends if the call ever returns

	mu    sync.Mutex
	timer *time.Timer
	call  string // under way; empty: none
	tick  fence.Tick
	at    fence.EventRef // in the stream; zero: the snapshot
	since time.Duration  // that the call has taken, in beats: a process that was paused has not hung
	over  bool           // hung is closed
}

// vigilBeat is how often a call that goes on is looked at.
const vigilBeat = time.Second

// Begin is called before Restore, or before Apply with the events of a batch.
func (v *vigil) Begin(call string, seq fence.Seq, tick fence.Tick, events int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.call, v.tick, v.at, v.since = call, tick, fence.EventRef{Seq: seq}, 0
	if events == 1 {
		v.at.Index = 1
	}
	if v.timer == nil {
		v.timer = time.AfterFunc(vigilBeat, v.beat)
	} else {
		v.timer.Reset(vigilBeat)
	}
}

// End is called after it. It does not return if the processor was given up.
func (v *vigil) End() {
	v.timer.Stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		runtime.Goexit()
	}
	v.call = ""
}

func (v *vigil) beat() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.call == "" {
		return
	}
	before := v.since
	v.since += vigilBeat
	e := v.failure()
	passed := func(limit time.Duration) bool { return before < limit && v.since >= limit }
	if v.since >= stuckAfter {
		v.desk.update(func(s *Status) { s.Failure, s.FailedAt = e, time.Now() })
	}
	if passed(stuckAfter) {
		v.cfg.Logger.Warn("the game's rules do not return while the tile's history is read", "tick", e.Tick,
			"call", e.Call, "event", v.at, "error", e)
	}
	if passed(v.cfg.RulesTimeout) {
		v.cfg.Logger.Error("the game's rules have not returned: the tile's history cannot be read", "tick", e.Tick,
			"call", e.Call, "event", v.at, "error", e)
		if v.desk.read().State != Following {
			v.over = true
			close(v.hung)
			return
		}
	}
	v.timer.Reset(vigilBeat)
}

// failure is the call that goes on. mu is held.
func (v *vigil) failure() *RulesError {
	what := "of the snapshot"
	if v.at.Seq > 0 {
		what = fmt.Sprintf("at event %s of the stream", v.at)
	}
	return &RulesError{Tile: v.tile, Tick: v.tick, Call: v.call,
		Err: fmt.Errorf("%w for %v, %s", ErrHangs, v.since, what)}
}

// attended is f in a goroutine of its own, which is left behind if a call of the rules does not return in it.
func (p *TileProcessor) attended(ctx context.Context, f func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-p.vigil.hung:
		return p.acquisition.condemn(ctx)
	}
}

// condemn quarantines a tile at whose history the rules hang. The goroutine that was left behind no longer counts
// among the take-overs.
func (a *acquisition) condemn(ctx context.Context) error {
	if a.paced != nil {
		a.paced()
	}
	a.vigil.mu.Lock()
	failed := &replayError{RulesError: a.vigil.failure(), at: a.vigil.at}
	a.vigil.mu.Unlock()
	return a.title.quarantine(ctx, a.title.grant.Epoch, failed)
}
