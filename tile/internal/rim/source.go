package rim

import (
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/watch"
)

// source is one tile that is looked at.
type source struct {
	tile fence.TileID

	mu      sync.Mutex
	feeds   []*Feed
	at      fence.Position // where what was read ends; zero: nothing was
	tick    fence.Tick
	owner   watch.Owner
	there   bool      // the owner hash was, when it was read last
	asOf    time.Time // when at was known to be the end of the tile's history
	behind  bool      // the owner hash has lost the end of what was read
	astray  int       // readings in a row that found another end than the owner hash has, and nothing new
	loading bool
	broken  bool      // what was read does not go on: it is to be read anew
	after   time.Time // when it may be
}

// step is what a source needs.
type step int

const (
	rest step = iota
	goOn
	loadNow
)

// strayed is how many readings in a row must find another end of the history before it is read anew under the same
// epoch: what a failover has lost, the owner appends again.
const strayed = 3

// next says from where the tile is read, or that its history is to be read anew.
func (s *source) next(now time.Time) (after fence.Seq, how step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loading {
		return 0, rest
	}
	lost := s.broken || s.at == fence.Position{}
	anew := lost
	for _, f := range s.feeds {
		anew = anew || !f.begun && f.wanted && !now.Before(f.again)
	}
	switch {
	case anew && !now.Before(s.after):
		s.loading = true
		return 0, loadNow
	case lost:
		return 0, rest
	}
	return s.at.Seq, goOn
}

// missed notes that the tile could not be read.
func (s *source) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner.Failed()
}

// extend goes on with a chunk whose reading began at a time.
func (s *source) extend(c *stream.Chunk, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Err != nil {
		s.owner.Failed()
		return
	}
	for i := range c.Entries {
		e := &c.Entries[i]
		if e.Prev != s.at || e.Verify() != nil { // a rebase follows nothing
			s.broken = true
			return
		}
		s.accept(e)
	}
	if s.broken = c.Poison != nil; s.broken {
		return
	}
	s.there = c.Owner.Present()
	s.owner.Saw(c.Owner, readTimeout)
	s.compare(c, began)
}

// compare compares where a chunk ended with the owner hash that was read after it. s.mu is held.
func (s *source) compare(c *stream.Chunk, began time.Time) {
	end := c.Owner.Position
	s.behind = s.there && end != s.at && end.Seq <= s.at.Seq
	switch {
	case s.behind && end.Epoch > s.at.Epoch: // a failover has lost the end, and another owner goes on before it
		s.broken = true
	case s.behind, s.there && end != s.at && len(c.Entries) == 0:
		s.astray++
		s.broken = s.astray >= strayed
	default:
		s.astray = 0
	}
	if s.behind || s.broken || len(c.Entries) >= stream.DefaultLimit {
		return
	}
	s.asOf = began // what the owner hash has more was committed since
	if end == s.at {
		s.tick = max(s.tick, c.Owner.Tick)
	}
}

// accept gives an entry that follows to all that look. s.mu is held.
func (s *source) accept(e *fence.Entry) {
	s.at, s.tick = e.Position, e.Tick
	for _, f := range s.feeds {
		if f.begun {
			f.add(e)
		}
	}
}

// loaded goes on with a history that was read anew, from a reading that began at a time. One of an epoch before the one
// that was seen is not believed: it is the answer of a store that has not heard of the later one.
func (s *source) loaded(rec *stream.Recovery, err error, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loading = false
	p := rec.Position
	if err != nil || p == (fence.Position{}) || p.Epoch < s.at.Epoch {
		s.after = time.Now().Add(loadAgain)
		return
	}
	from := -1 // which entry comes first for those that look already; -1: it is another history
	for i := range rec.Entries {
		if rec.Entries[i].Prev == s.at {
			from = i
		}
	}
	if p == s.at {
		from = len(rec.Entries)
	}
	for _, f := range s.feeds {
		first := from
		if !f.begun || from < 0 {
			f.begin(&rec.Snapshot)
			first = 0
		}
		for i := range rec.Entries[first:] {
			f.add(&rec.Entries[first+i])
		}
	}
	s.at, s.tick, s.asOf = p, rec.Snapshot.Tick, began
	s.broken, s.behind, s.astray = false, false, 0
	if n := len(rec.Entries); n > 0 {
		s.tick = rec.Entries[n-1].Tick
	}
}
