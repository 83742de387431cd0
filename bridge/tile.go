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
	t.cursor.sent, t.cursor.marked = t.cursor.end, true
	t.marks.saved = read
}

// fail notes a failure, after which the tile is tried again at due.
func (t *tile) fail(c *Config, now time.Time) {
	t.failures++
	t.pace.due = now.Add(wait.Backoff(c.tuning.RetryMin, c.tuning.RetryMax, t.failures))
}

// marks is where a tile's two watermarks stand. Both always say the same: everything at or below them is published.
type marks struct {
	writing  bool
	saved    fence.Seq // what they say
	rewind   bool      // they may be too high: the history regressed
	rewound  fence.Seq // where it ended then
	lost     fence.Seq // entries below it were trimmed unread, which was reported
	savedAt  time.Time // zero: never by this bridge, so that a lease is due
	renew    time.Time // when to write them even if they say the same
	failures int
	retry    time.Time
}

// settled reports whether the watermarks say what they should.
func (m *marks) settled(read fence.Seq) bool { return !m.rewind && m.saved >= read }

// due is when the watermarks of a tile that was read up to read are to be written next.
func (m *marks) due(read fence.Seq, last bool, c *Config) time.Time {
	switch {
	case m.failures > 0:
		return m.retry
	case last || m.rewind:
		return time.Time{}
	case m.settled(read):
		return m.renew
	}
	return m.savedAt.Add(c.MarkEvery)
}

// book notes the outcome of a write.
func (m *marks) book(w *mark, now time.Time, c *Config) {
	m.writing = false
	if w.err != nil {
		m.rewind = m.rewind || w.rewind
		m.failures++
		m.retry = now.Add(wait.Backoff(c.tuning.RetryMin, c.tuning.RetryMax, m.failures))
		return
	}
	if w.rewind || w.seq > m.saved {
		m.saved = w.seq
	}
	m.savedAt, m.failures = now, 0
	m.renew = now.Add(spread(c.tuning.RenewEvery))
}
