package bridge

import (
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/schedule"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream/fanout"
)

// lane is one kind of work that is done in the background, so many jobs at a time: while a pass waits for a server,
// marks are written and failing tiles are tried.
type lane int

const (
	passLane      lane = iota // healthy tiles
	retryLane                 // tiles that failed
	resumeLane                // new tiles: where did forwarding end?
	markLane                  // watermarks of healthy tiles
	markRetryLane             // watermarks of tiles that failed in any way
	lanes
)

// tile is what a bridge keeps of one tile.
type tile struct {
	cursor cursor
	marks  marks
	pace   pace

	resumed   bool // the cursor is known
	removed   bool // no longer wanted; goes when its last watermarks are written
	busy      bool // in a pass, or being resumed
	forgotten bool // another tile may have its place
	failures  int  // passes or resumes in a row

	work, mark, behind schedule.Date[*tile]

	backlog int       // entries that are known to wait
	oldest  time.Time // commit time of the first of them
	counted struct {
		failing, backlog int
	}
}

func newTile(id fence.TileID, now time.Time, interval time.Duration) *tile {
	t := &tile{cursor: cursor{id: id}, pace: pace{group: fanout.HintGroupOf(id), due: now, interval: interval}}
	t.work.Of, t.mark.Of, t.behind.Of = t, t, t
	return t
}

// lane is where the tile is read, or resumed.
func (t *tile) lane() lane {
	switch {
	case !t.resumed:
		return resumeLane
	case t.failures > 0:
		return retryLane
	}
	return passLane
}

// markLane is where its watermarks are written.
func (t *tile) markLane() lane {
	if t.failures > 0 || t.marks.failures > 0 {
		return markRetryLane
	}
	return markLane
}

// settled reports whether the watermarks say what they should.
func (t *tile) settled() bool { return t.marks.settled(t.cursor.read) }

// resume takes over where forwarding ended: after the entry at last or, if that is not known, after read. The tile's
// history may have been replaced since, so that it has neither.
func (t *tile) resume(read fence.Seq, last fence.Position, now time.Time) {
	t.resumed, t.failures, t.pace.due = true, 0, now
	t.cursor.place = place{read: read, last: last, blind: read == 0}
	t.cursor.end = fence.Position{Seq: read}
	if !last.IsZero() {
		t.cursor.end = last
	}
	t.cursor.sent, t.cursor.told = t.cursor.end, true
	t.marks.saved = read
}

// fail notes a failure, after which the tile is tried again at due.
func (t *tile) fail(c *Config, now time.Time) {
	t.failures++
	t.pace.due = now.Add(wait.Backoff(c.tuning.RetryMin, c.tuning.RetryMax, t.failures))
}
