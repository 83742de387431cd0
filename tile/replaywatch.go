package tile

import (
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/internal/watchdog"
)

// replayWatch watches the calls of the rules by which a history is read: no tick is under way then, and so no
// heartbeat. A call that does not return is reported as in a tick, with the place in the stream. If it holds up a
// processor that has claimed the tile, the tile is quarantined after RulesTimeout, as if the call had failed: every
// other owner would hang at the same place. A follower keeps no player waiting: it
// waits, and is reported.
type replayWatch struct {
	tile  fence.TileID
	cfg   *Config
	inbox *inbox
	dog   *watchdog.Watchdog // guards the rest

	call string // the last one
	tick fence.Tick
	at   fence.EventRef // in the stream; zero: the snapshot
}

// replayCheckEvery is how often a call that goes on is looked at.
const replayCheckEvery = time.Second

// stuckAfter is after how long a call of the rules that goes on is reported. A follower suspects nothing meanwhile.
const stuckAfter = 2 * time.Second

func newReplayWatch(tile fence.TileID, cfg *Config, box *inbox) *replayWatch {
	w := &replayWatch{tile: tile, cfg: cfg, inbox: box}
	w.dog = watchdog.New(replayCheckEvery, w.check)
	return w
}

// Begin is called before Restore, or before Apply with the events of a batch.
func (w *replayWatch) Begin(call string, seq fence.Seq, tick fence.Tick, events int) {
	w.dog.Start(func() {
		w.call, w.tick, w.at = call, tick, fence.EventRef{Seq: seq}
		if events == 1 {
			w.at.Index = 1
		}
	})
}

// End is called after it. It does not return if the processor was given up.
func (w *replayWatch) End() { w.dog.Stop(func() {}) }

func (w *replayWatch) check(took time.Duration) bool {
	e := w.failure(took)
	passed := func(limit time.Duration) bool { return took-replayCheckEvery < limit && took >= limit }
	if took >= stuckAfter {
		w.inbox.update(func(s *Status) { s.Failure, s.FailedAt = e, time.Now() })
	}
	if passed(stuckAfter) {
		w.cfg.Logger.Warn("the game's rules do not return while the tile's history is read", "tick", e.Tick,
			"call", e.Call, "event", w.at, "error", e)
	}
	if passed(w.cfg.RulesTimeout) {
		w.cfg.Logger.Error("the game's rules have not returned: the tile's history cannot be read", "tick", e.Tick,
			"call", e.Call, "event", w.at, "error", e)
		return w.inbox.read().State == Following
	}
	return true
}

// failure is the call that goes on.
func (w *replayWatch) failure(took time.Duration) *RulesError {
	what := "of the snapshot"
	if w.at.Seq > 0 {
		what = fmt.Sprintf("at event %s of the stream", w.at)
	}
	return &RulesError{Tile: w.tile, Tick: w.tick, Call: w.call,
		Err: fmt.Errorf("%w for %v, %s", ErrHangs, took, what)}
}
