package bridge

import (
	"errors"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/schedule"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
)

// tilesAJob is how many tiles one job takes at most. More would make those that have entries wait for the
// many that have none.
var tilesAJob = [lanes]int{passLane: 2048, retryLane: 2048, resumeLane: 4096, markLane: 4096, markRetryLane: 4096}

// passGap is the least time between the beginnings of two passes that have nothing to catch up on; MinPoll if
// that is less. Hints that come one by one would else be a pass each.
const passGap = 2500 * time.Microsecond

// probe is how many entries of a tile that failed are read: enough to see whether it still does, and little to
// read again and again while it does.
const probe = 8

// world is all tiles of a bridge, and what is to be done for them when. It does no I/O: its caller takes jobs from it,
// and books what came of them. One goroutine uses it.
type world struct {
	cfg    *Config
	report *reporter
	pacer  pacer
	tiles  map[fence.TileID]*tile
	woken  []*want // emptied; swapped with the inbox's

	agenda [lanes]schedule.Schedule[*tile] // what each lane has to do; a tile's work and its marks are one date each
	from   [lanes]time.Time                // before which no next job begins
	hasty  time.Time                       // until then a node of the log is known to hang
	behind schedule.Schedule[*tile]        // tiles with entries that wait, by the oldest's commit time

	failing, backlog int
	entryBytes       int     // estimate of an entry's size, for Config.PassBytes
	passes           []*pass // to be used again
}

func newWorld(cfg *Config, report *reporter) *world {
	return &world{cfg: cfg, report: report, pacer: pacer{cfg: cfg, began: time.Now()},
		tiles: map[fence.TileID]*tile{}, entryBytes: 4 << 10}
}

// take takes over what callers have asked for. It leaves hints where they are while no pass could begin: then the
// inbox goes on collecting without waking the loop.
func (w *world) take(b *inbox, mayPass bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turned {
		b.turned = false
		w.takeHints(b, now)
	}
	if b.edited {
		b.edited = false
		w.takeTiles(b, now)
	}
	if len(b.woken) == 0 || !mayPass || now.Before(w.from[passLane]) {
		return
	}
	w.woken, b.woken = b.woken, w.woken[:0]
	for _, want := range w.woken {
		want.woken = false
		if want.tile != nil {
			w.wake(want.tile, now)
		}
	}
	clear(w.woken)
}

// takeHints takes over which groups' hints arrive. Where they do again after a lapse, however short, some may have
// been lost.
func (w *world) takeHints(b *inbox, now time.Time) {
	for i := range w.pacer.groups {
		g := &w.pacer.groups[i]
		if b.lapsed[i] && g.up {
			w.hasten(i, now)
		}
		if up := b.hints[i]; up != g.up {
			*g = hintGroup{up: up}
		}
	}
	clear(b.lapsed[:])
}

// takeTiles takes over which tiles are wanted.
func (w *world) takeTiles(b *inbox, now time.Time) {
	for id, t := range w.tiles {
		if gone := b.wanted[id] == nil; gone != t.removed {
			t.removed = gone
			if !gone {
				w.wake(t, now) // it may have missed hints
			}
			w.plan(t)
		}
	}
	for id, want := range b.wanted {
		t := w.tiles[id]
		if t == nil {
			t = newTile(id, now, w.cfg.tuning.MinPoll)
			w.tiles[id] = t
			w.plan(t)
		}
		want.tile = t
	}
}

// wake makes an idle, healthy tile due.
func (w *world) wake(t *tile, now time.Time) {
	t.pace.woken = true
	if t.failures == 0 && !t.busy && t.pace.due.After(now) {
		t.pace.due = now
		w.plan(t)
	}
}

// hasten makes the tiles of a group due within MaxPoll, because their hints are no longer relied on.
func (w *world) hasten(group int, now time.Time) {
	for _, t := range w.tiles {
		if t.pace.group == group && t.failures == 0 && w.pacer.hasten(&t.pace, now) {
			w.plan(t)
		}
	}
}

// plan enters a tile where its state says: to be called after every change of that.
func (w *world) plan(t *tile) {
	if t.forgotten {
		return // a hint was under way
	}
	if t.busy || t.removed {
		t.work.Clear()
	} else {
		t.work.Set(&w.agenda[t.lane()], t.pace.due)
	}
	if !t.resumed || t.marks.writing {
		t.mark.Clear()
	} else {
		t.mark.Set(&w.agenda[t.markLane()], t.marks.due(t.cursor.read, t.removed, w.cfg))
	}
	if t.removed && !t.busy && !t.marks.writing && (!t.resumed || t.marks.failures > 0 || t.settled()) {
		// Its last watermarks are written.
		t.work.Clear()
		t.mark.Clear()
		w.pacer.count(&t.pace, false)
		t.failures, t.backlog, t.forgotten = 0, 0, true
		delete(w.tiles, t.cursor.id)
	}
	w.account(t)
}

// account brings the totals over all tiles up to date.
func (w *world) account(t *tile) {
	failing := min(t.failures, 1)
	w.failing += failing - t.counted.failing
	w.backlog += t.backlog - t.counted.backlog
	t.counted.failing, t.counted.backlog = failing, t.backlog
	if t.backlog > 0 && !t.oldest.IsZero() {
		t.behind.Set(&w.behind, t.oldest)
	} else {
		t.behind.Clear()
	}
}

// totals reports the totals over all tiles.
func (w *world) totals() {
	oldest, _ := w.behind.First()
	w.report.totals(w.failing, w.backlog, oldest)
}

// next returns when a lane has something to do; false if it has nothing.
func (w *world) next(l lane) (time.Time, bool) {
	at, ok := w.agenda[l].First()
	return latest(at, w.from[l]), ok
}

// due takes the tiles that are due on a lane.
func (w *world) due(l lane, now time.Time) []*tile { return w.agenda[l].Take(now, tilesAJob[l]) }

// beginPass prepares a pass over tiles.
func (w *world) beginPass(tiles []*tile, retry bool, now time.Time) *pass {
	limit := max(1, min(w.cfg.tuning.Batch, w.cfg.tuning.PassBytes/w.entryBytes/len(tiles)))
	if retry {
		// With a publisher that reports only how far it got, a tile that always fails must not stand in front of
		// others that would not.
		slices.SortStableFunc(tiles, func(a, b *tile) int { return a.failures - b.failures })
		limit = min(limit, probe)
	} else {
		w.from[passLane] = now.Add(min(passGap, w.cfg.tuning.MinPoll))
	}
	p := &pass{}
	if n := len(w.passes); n > 0 {
		p, w.passes = w.passes[n-1], w.passes[:n-1]
	}
	p.retry, p.hasty = retry, !retry && now.Before(w.hasty)
	p.parts = slices.Grow(p.parts[:0], len(tiles))[:len(tiles)]
	for i, t := range tiles {
		pt := &p.parts[i]
		pt.cursor, pt.limit, pt.woken = t.cursor, limit, t.pace.woken
		t.busy, t.pace.woken = true, false
		w.plan(t)
	}
	return p
}

// bookPass takes over what a pass over tiles that began at began has done.
func (w *world) bookPass(p *pass, tiles []*tile, began, now time.Time) {
	bytes := 0
	for i, t := range tiles {
		pt := &p.parts[i]
		bytes += pt.bytes
		w.bookPart(t, pt, began, now)
	}
	if p.met() {
		w.hasty = now.Add(2 * w.cfg.HintedPoll) // in which every quiet tile of the node is read
	}
	if p.pubFailed >= 0 {
		tiles[p.pubFailed].failures++
	}
	w.delay(tiles, now)
	for _, t := range tiles {
		w.plan(t)
	}
	if p.info.Entries > 0 {
		// Half the old and half the new: follows a change of the game's traffic within a few passes.
		w.entryBytes = max(1, (w.entryBytes+bytes/p.info.Entries+64)/2)
	}
	w.report.pass(p)
	w.totals()
	p.clear()
	w.passes = append(w.passes, p)
}

func (w *world) bookPart(t *tile, pt *part, began, now time.Time) {
	t.busy, t.cursor = false, pt.cursor
	if pt.regressed != nil {
		t.marks.rewind, t.marks.rewound = true, pt.regressed.Last.Seq
	}
	if pt.op != OpRead || pt.err == nil { // a read that failed says nothing of what waits
		t.backlog, t.oldest = pt.waiting()
	}
	if pt.more {
		w.from[passLane] = now // catching up
	}
	if pt.err != nil {
		t.failures++
		return
	}
	t.failures = 0
	missed := w.pacer.next(&t.pace, pt.entries, pt.woken, pt.more, began, now)
	if missed == none {
		return
	}
	w.report.count(func(s *Stats) { s.HintsMissed++ })
	if missed == ofTheGroup {
		w.cfg.Logger.Warn("wake hints do not arrive: polling", "group", t.pace.group)
		w.hasten(t.pace.group, now)
	}
}

// delay sets when the tiles that failed are tried again. Those that failed equally often wait equally
// long, and so stay together in one pass.
func (w *world) delay(tiles []*tile, now time.Time) {
	waits := map[int]time.Duration{}
	for _, t := range tiles {
		if t.failures == 0 {
			continue
		}
		if waits[t.failures] == 0 {
			waits[t.failures] = wait.Backoff(w.cfg.tuning.RetryMin, w.cfg.tuning.RetryMax, t.failures)
		}
		t.pace.due = now.Add(waits[t.failures])
	}
}

// beginResume prepares to read where forwarding of tiles ended.
func (w *world) beginResume(tiles []*tile) []mark {
	marks := make([]mark, len(tiles))
	for i, t := range tiles {
		t.busy = true
		marks[i] = mark{id: t.cursor.id}
		w.plan(t)
	}
	return marks
}

func (w *world) bookResume(marks []mark, tiles []*tile, now time.Time) {
	var failed []mark
	for i, t := range tiles {
		m := &marks[i]
		t.busy = false
		if m.err != nil {
			t.fail(w.cfg, now)
			failed = append(failed, *m)
		} else {
			t.resume(m.seq, m.last, now)
			if m.seq+1 < m.trimmed { // once the first pass has gone on from there, no mark shows it
				w.lost(t, m.seq, m.trimmed)
			}
		}
		w.plan(t)
	}
	w.totals()
	w.report.marks(OpResume, failed)
}

// beginMarks prepares to write the watermarks of tiles.
func (w *world) beginMarks(l lane, tiles []*tile, now time.Time) []mark {
	if len(tiles) < tilesAJob[l] {
		// Many small flushes would cost a wake-up each: let the next ones gather.
		w.from[l] = now.Add(w.cfg.MarkEvery / 10)
	}
	marks := make([]mark, len(tiles))
	for i, t := range tiles {
		marks[i] = mark{id: t.cursor.id, seq: min(t.cursor.read, fence.MaxNumber), shown: t.cursor.floor,
			rewind: t.marks.rewind}
		if t.cursor.last == t.cursor.sent { // and not an entry that was dropped, whose epoch no owner vouched for
			marks[i].last = t.cursor.last
		}
		t.marks.writing, t.marks.rewind = true, false
		w.plan(t)
	}
	return marks
}

func (w *world) bookMarks(marks []mark, tiles []*tile, now time.Time) {
	var failed []mark
	written := uint64(0)
	for i, t := range tiles {
		m := &marks[i]
		var resync *stream.ResyncError
		if errors.As(m.err, &resync) {
			if !m.rewind || resync.Trimmed > t.marks.rewound+1 { // else it went back further than it had to
				w.lost(t, m.seq, resync.Trimmed)
			}
			m.err = nil // it is in force
		}
		if m.err != nil {
			failed = append(failed, *m)
		} else {
			written += 2
		}
		t.marks.book(m, now, w.cfg)
		w.plan(t)
	}
	w.report.count(func(s *Stats) { s.Marks += written })
	w.report.marks(OpMark, failed)
}

// lost reports, once, entries that were trimmed before the bridge had read them: its lease had run out, or the tile
// was at its bound of memory. Reading goes on with the oldest entry there is.
func (w *world) lost(t *tile, read, trimmed fence.Seq) {
	if trimmed > t.marks.lost {
		t.marks.lost = trimmed
		w.report.lost(t.cursor.id, read, trimmed)
	}
}

// unmarked returns the tiles whose watermarks are behind, by lane.
func (w *world) unmarked() map[lane][]*tile {
	tiles := map[lane][]*tile{}
	for _, t := range w.tiles {
		if t.resumed && !t.settled() {
			t.mark.Clear()
			tiles[t.markLane()] = append(tiles[t.markLane()], t)
		}
	}
	return tiles
}
