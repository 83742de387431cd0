// Package health finds what keeps the servers of package tilefence from their work: it is what their Health, their
// probes and their log are made of. Each server adds what its own parts report.
package health

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// Problem is a tilefence.Problem, which documents the fields.
type Problem struct {
	Plane  string
	What   string
	Tiles  int
	Tile   fence.TileID
	For    time.Duration
	Detail string
}

// Times of problems.
const (
	troubleAfter = 2 * time.Second
	lookEvery    = time.Second      // for the log
	remindEvery  = 30 * time.Second // of a problem that stays
)

// Problems collects what is wrong, the tiles of one problem together.
type Problems []Problem

// Add adds a problem of a tile, or with a zero id one that is not about tiles.
func (all *Problems) Add(plane, what string, id fence.TileID, since time.Duration) {
	for i := range *all {
		p := &(*all)[i]
		if p.Plane == plane && p.What == what {
			p.Tiles++
			if since > p.For {
				p.Tile, p.For = id, since
			}
			return
		}
	}
	p := Problem{Plane: plane, What: what, Tile: id, For: since}
	if id != 0 {
		p.Tiles = 1
	}
	*all = append(*all, p)
}

// Trouble is Add for what has lasted longer than a failover of a shard does, a second or two.
func (all *Problems) Trouble(plane, what string, id fence.TileID, since time.Duration) {
	if since > troubleAfter {
		all.Add(plane, what, id, since)
	}
}

// Detail says more of the tile that a problem names, unless it says something already.
func (all Problems) Detail(what, text string) {
	for i := range all {
		if all[i].What == what && all[i].Detail == "" {
			all[i].Detail = text
		}
	}
}

// Rising notices that a count of failures has risen lately. The zero value is ready; it is safe for concurrent use.
type Rising struct {
	mu    sync.Mutex
	known bool
	count uint64
	begun time.Time // when it began to rise
	last  time.Time // when it last rose
}

// calm is for how long a count must stay for the failures to be over.
const calm = 5 * time.Second

// Lately is for how long the count has been rising; zero: it is not.
func (r *Rising) Lately(count uint64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if over := now.Sub(r.last) >= calm; r.known && count != r.count {
		if over {
			r.begun = now
		}
		r.last = now
	} else if over {
		r.begun = time.Time{}
	}
	r.known, r.count = true, count
	if r.begun.IsZero() {
		return 0
	}
	return max(now.Sub(r.begun), 1)
}

// Sharing says that a worker cannot reach the list of those that it shares tiles with. beat is the last answer.
func (all *Problems) Sharing(beat time.Time, plane string) {
	if since := time.Since(beat); !beat.IsZero() && since > 10*time.Second {
		all.Add(plane, "the list of workers that share the tiles is not reached: nothing moves between them", 0, since)
	}
}

// hangsAfter is for how long a server's loop, which comes round every second, must have stood until it hangs: longer
// than any pause of a machine that recovers.
const hangsAfter = 30 * time.Second

// Loop is when a server's loop last came round. It passes all locks that Health takes, and so those of every tile.
type Loop struct{ last atomic.Pointer[time.Time] }

// Round notes that the loop has come round.
func (l *Loop) Round() {
	now := time.Now()
	l.last.Store(&now)
}

// Ends says that the loop does not run any more.
func (l *Loop) Ends() { l.last.Store(nil) }

// Hangs is for how long the loop has hung; zero: it runs, or is not meant to.
func (l *Loop) Hangs() time.Duration {
	if last := l.last.Load(); last != nil && time.Since(*last) > hangsAfter {
		return time.Since(*last)
	}
	return 0
}

// Log logs the problems of a server when they begin, every half minute while they last, and when they have ended,
// until ctx does.
func (l *Loop) Log(ctx context.Context, log *slog.Logger, problems func() Problems) error {
	l.Round()
	defer l.Ends()
	type seen struct{ first, said time.Time }
	known := map[[2]string]seen{}
	for wait.For(ctx, lookEvery) {
		l.Round()
		now, present := time.Now(), map[[2]string]bool{}
		for _, p := range problems() {
			k := [2]string{p.Plane, p.What}
			present[k] = true
			s, old := known[k]
			if !old {
				s.first = now
			}
			if now.Sub(s.said) >= remindEvery {
				s.said = now
				log.Warn(p.What, "plane", p.Plane, "tiles", p.Tiles, "tile", p.Tile, "for", p.For, "detail", p.Detail)
			}
			known[k] = s
		}
		for k, s := range known {
			if !present[k] {
				log.Info("no longer: "+k[1], "plane", k[0], "after", now.Sub(s.first).Round(time.Second))
				delete(known, k)
			}
		}
	}
	return nil
}
