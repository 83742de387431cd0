package bridge

import (
	"log/slog"
	"time"
)

// report counts what a pass did and tells hooks and log.
func (r *run) report(p *pass) {
	hooks := &r.b.cfg.Hooks
	r.b.count(func(s *Stats) { p.addTo(s) })
	r.tell()
	for i := range p.parts {
		pt := &p.parts[i]
		if pt.regressed != nil {
			r.b.cfg.Logger.Warn("tile's history went back", "tile", pt.cursor.tile, "read", pt.regressed.Read, "last", pt.regressed.Last)
			hooks.Regressed(*pt.regressed)
		}
		for _, g := range pt.gaps {
			r.b.cfg.Logger.Warn("gap in stream", "tile", g.Tile, "have", g.Have, "next", g.Next, "prev", g.Prev)
			hooks.Gap(g)
		}
		for _, d := range pt.drops {
			log := r.b.cfg.Logger.Info
			if d.Reason == Repeated {
				log = r.b.cfg.Logger.Debug // comes in bursts, and says nothing new
			}
			log("entry not forwarded", "tile", d.Tile, "position", d.Position, "reason", d.Reason)
			hooks.Dropped(d)
		}
		for _, d := range pt.letters {
			r.b.cfg.Logger.Error("poison entry", "tile", d.Tile, "epoch", d.Epoch, "seq", d.Seq, "reason", d.Reason, "lost", d.Err)
			hooks.DeadLettered(d)
		}
		if pt.published.Batches > 0 {
			hooks.Published(pt.published)
		}
	}
	r.reportFailures(p)
	hooks.Pass(p.info)
}

func (p *pass) addTo(s *Stats) {
	s.Passes++
	s.Reads += uint64(len(p.parts))
	if p.readErr != nil {
		s.StoreFailures++
	}
	if p.pubErr != nil {
		s.PublishFailures++
	}
	var lag time.Duration
	for i := range p.parts {
		pt := &p.parts[i]
		s.Batches += uint64(pt.published.Batches)
		s.Bytes += uint64(pt.published.Bytes)
		s.Gaps += uint64(len(pt.gaps))
		lag = max(lag, pt.published.Lag)
		for _, d := range pt.drops {
			s.Dropped.count(d.Reason)
		}
		for _, d := range pt.letters {
			if d.Err != nil {
				s.DeadLettersLost++
			} else {
				s.DeadLetters++
			}
		}
		if pt.regressed != nil {
			s.Regressions++
		}
		if pt.err != nil && p.readErr == nil && pt.op != OpPublish {
			s.StoreFailures++
		}
	}
	if p.info.Sent > 0 {
		s.Lag = lag
	}
}

// tell brings the statistics of all tiles up to date.
func (r *run) tell() {
	oldest, _ := r.behind.first()
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	s := &r.b.stats
	s.Failing, s.Backlog, s.Rhythmic, r.b.oldest = r.failing, r.backlog, r.paces[rhythmic], oldest
}

// reportFailures tells of each kind of failure once a pass.
func (r *run) reportFailures(p *pass) {
	byOp := map[Op]*FailureInfo{}
	for i := range p.parts {
		pt := &p.parts[i]
		if pt.err == nil {
			continue
		}
		f := byOp[pt.op]
		if f == nil {
			f = &FailureInfo{Op: pt.op, Tile: pt.cursor.tile, Err: pt.err}
			byOp[pt.op] = f
		}
		f.Tiles++
	}
	for _, op := range []Op{OpRead, OpDeadLetter, OpPublish} {
		if f := byOp[op]; f != nil {
			r.failed(f)
		}
	}
}

func (r *run) reportMarks(op Op, failed []*mark) {
	if len(failed) == 0 {
		return
	}
	r.b.count(func(s *Stats) { s.StoreFailures += uint64(len(failed)) })
	r.failed(&FailureInfo{Op: op, Tiles: len(failed), Tile: failed[0].id, Err: failed[0].err})
}

func (r *run) failed(f *FailureInfo) {
	r.b.cfg.Logger.Warn("will try again", slog.String("op", string(f.Op)), "tiles", f.Tiles, "tile", f.Tile, "error", f.Err)
	r.b.cfg.Hooks.Failed(*f)
}
