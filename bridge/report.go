package bridge

import (
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
)

// reporter counts what happens, and reports it to hooks and log.
type reporter struct {
	cfg *Config

	mu     sync.Mutex
	stats  Stats
	oldest time.Time // commit of the oldest entry that is known to wait; zero: none does
}

// snapshot returns the counters, all of one moment.
func (r *reporter) snapshot() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	if !r.oldest.IsZero() {
		s.Lag = max(0, time.Since(r.oldest))
	}
	return s
}

func (r *reporter) count(f func(*Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.stats)
}

// totals brings the statistics over all tiles up to date.
func (r *reporter) totals(failing, backlog int, oldest time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Failing, r.stats.Backlog, r.oldest = failing, backlog, oldest
}

// pass reports what a pass did.
func (r *reporter) pass(p *pass) {
	r.count(func(s *Stats) { p.addTo(s) })
	hooks, log := &r.cfg.Hooks, r.cfg.Logger
	failed := map[Op]*FailureInfo{}
	for i := range p.parts {
		pt := &p.parts[i]
		id := pt.cursor.id
		if g := pt.regressed; g != nil {
			log.Warn("the tile's history regressed", "tile", id, "read", g.Read, "last", g.Last)
			hook.Call(r.cfg.tuning.Regressed, *g)
		}
		for _, g := range pt.gaps {
			log.Warn("gap in stream", "tile", id, "have", g.Have, "next", g.Next, "prev", g.Prev)
			hook.Call(r.cfg.tuning.Gap, g)
		}
		for _, d := range pt.drops {
			log := log.Info
			if d.Reason == repeated {
				log = r.cfg.Logger.Debug // comes in bursts, and says nothing new
			}
			log("entry not forwarded", "tile", id, "position", d.Position, "reason", d.Reason)
			hook.Call(r.cfg.tuning.Dropped, d)
		}
		for _, d := range pt.letters {
			log.Error("poison entry", "tile", id, "epoch", d.Epoch, "seq", d.Seq, "reason", d.Reason, "error", d.Err)
			hook.Call(r.cfg.tuning.DeadLettered, d)
		}
		if pt.published.Batches > 0 {
			hook.Call(hooks.Published, pt.published)
		}
		if pt.err != nil {
			if failed[pt.op] == nil {
				failed[pt.op] = &FailureInfo{Op: pt.op, Tile: id, Err: pt.err}
			}
			failed[pt.op].Tiles++
		}
	}
	for _, op := range []Op{OpRead, OpDeadLetter, OpPublish} {
		if f := failed[op]; f != nil {
			r.failed(f)
		}
	}
	hook.Call(hooks.Pass, p.info)
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

// marks reports failed calls for watermarks.
func (r *reporter) marks(op Op, failed []mark) {
	if len(failed) == 0 {
		return
	}
	r.count(func(s *Stats) { s.StoreFailures += uint64(len(failed)) })
	r.failed(&FailureInfo{Op: op, Tiles: len(failed), Tile: failed[0].id, Err: failed[0].err})
}

func (r *reporter) failed(f *FailureInfo) {
	r.cfg.Logger.Warn("call failed; trying again", "op", string(f.Op), "tiles", f.Tiles, "tile", f.Tile, "error", f.Err)
	hook.Call(r.cfg.Hooks.Failed, *f)
}

// lost reports entries that were trimmed before the bridge had read them.
func (r *reporter) lost(id fence.TileID, read, trimmed fence.Seq) {
	r.count(func(s *Stats) { s.Resyncs++ })
	if read == 0 { // no bridge has forwarded the tile, or none for a lease, which its owner has logged
		r.cfg.Logger.Info("forwarding begins after entries that were trimmed", "tile", id, "trimmed", trimmed)
	} else {
		r.cfg.Logger.Error("entries were trimmed before they were forwarded",
			"tile", id, "read", read, "trimmed", trimmed)
	}
	hook.Call(r.cfg.tuning.Lost, lostInfo{Tile: id, Read: read, Trimmed: trimmed})
}

// Stats is what a Bridge has done since it was made, and where it stands.
type Stats struct {
	Tiles   int // tiles it forwards
	Failing int // of these, tiles whose last read or publish failed
	// Backlog is how many entries are known to wait: of tiles that could not be published or are being
	// caught up with, from the last entry handed over to the end of the tile's history when it was last
	// read. It is a difference of sequences, so a jump of theirs counts as well.
	Backlog int
	// Lag is the age of the oldest entry in Backlog, by the owner's clock and this process's; while there is
	// none, the longest PublishedInfo.Lag of the last pass that published anything.
	Lag time.Duration

	Passes      uint64 // reads of the log, each with at most one publish
	Reads       uint64 // tiles read in them
	Batches     uint64 // batches handed over to fan-out
	Bytes       uint64 // of their frames
	Marks       uint64 // watermarks written
	HintsMissed uint64 // entries met by polling that a hint should have announced

	Dropped         Drops
	DeadLetters     uint64 // poison entries put among the dead letters
	DeadLettersLost uint64 // poison entries that could not be put there
	Gaps            uint64 // entries that did not follow the one before
	Regressions     uint64 // times a failover had taken back what was read of a tile
	Resyncs         uint64 // times entries of a tile were trimmed before they were read

	StoreFailures   uint64 // calls to the log that failed
	PublishFailures uint64 // calls to the publisher that failed, in part or altogether
}

// Drops counts the entries that were not forwarded, by reason.
type Drops struct {
	Superseded, Fenced, Unvouched, Repeated uint64
}

func (d *Drops) count(r dropReason) {
	switch r {
	case superseded:
		d.Superseded++
	case fenced:
		d.Fenced++
	case unvouched:
		d.Unvouched++
	case repeated:
		d.Repeated++
	}
}
