// Package rim reads what the tiles of a process see of their neighbours: it follows the neighbours' streams, each once
// for all tiles that look there, and gives each tile the areas that it looks at. It writes nothing, and folds nothing.
package rim

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
)

const (
	readTimeout = 2 * time.Second
	mostAtOnce  = 256                   // tiles of one reading
	mostLoads   = 8                     // histories that are read anew at once
	loadAgain   = time.Second           // after one that failed
	shortest    = 50 * time.Millisecond // between two readings
)

// Reader follows the streams of tiles. It runs while there are feeds.
type Reader struct {
	log   stream.Log
	loads chan struct{} // one element for each history that is read anew

	mu    sync.Mutex
	tiles map[fence.TileID]*source
	every time.Duration // between two readings: the shortest that a feed asks for
	stop  func()        // ends the reading; nil: there is none
}

// New returns a reader that does nothing yet.
func New(log stream.Log) *Reader {
	return &Reader{log: log, loads: make(chan struct{}, mostLoads), tiles: map[fence.TileID]*source{}}
}

// Feed begins to give what a tile's areas have. The tile is read as often as every says. Its owner must move the owner
// hash within quiet, or it does not count as alive. Stop ends it.
func (r *Reader) Feed(tile fence.TileID, areas fence.AreaSet, every, quiet time.Duration) *Feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.tiles[tile]
	if s == nil {
		s = &source{tile: tile}
		r.tiles[tile] = s
	}
	f := &Feed{reader: r, source: s, areas: areas, every: max(every, shortest), quiet: quiet, wanted: true}
	s.mu.Lock()
	s.feeds = append(s.feeds, f)
	s.mu.Unlock()
	if r.stop != nil {
		r.every = min(r.every, f.every)
		return f
	}
	ctx, stop := context.WithCancel(context.Background())
	r.every, r.stop = f.every, stop
	go r.run(ctx)
	return f
}

// Stop ends the feed.
func (f *Feed) Stop() {
	r, s := f.reader, f.source
	r.mu.Lock()
	defer r.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds = slices.DeleteFunc(s.feeds, func(other *Feed) bool { return other == f })
	if len(s.feeds) == 0 && r.tiles[s.tile] == s {
		delete(r.tiles, s.tile)
	}
	if len(r.tiles) == 0 && r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// run reads until there are no feeds.
func (r *Reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		all, every := slices.Collect(maps.Values(r.tiles)), r.every
		r.mu.Unlock()
		began := time.Now()
		for part := range slices.Chunk(all, mostAtOnce) {
			r.read(ctx, part)
		}
		wait.For(ctx, max(every-time.Since(began), shortest/2))
	}
}

// read reads what tiles have committed since they were read last.
func (r *Reader) read(ctx context.Context, all []*source) {
	var read []*source
	var cursors []stream.Cursor
	now := time.Now()
	for _, s := range all {
		switch after, how := s.next(now); how {
		case goOn:
			read = append(read, s)
			cursors = append(cursors, stream.Cursor{Tile: s.tile, After: after})
		case loadNow:
			go r.load(ctx, s)
		case rest:
		}
	}
	if len(read) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	chunks, err := r.log.Read(ctx, cursors)
	for i, s := range read {
		if err != nil {
			s.missed()
		} else {
			s.extend(&chunks[i], now)
		}
	}
}

// load reads the history of a tile anew, beside the others and in its turn.
func (r *Reader) load(ctx context.Context, s *source) {
	select {
	case r.loads <- struct{}{}:
		defer func() { <-r.loads }()
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := time.Now()
	rec, err := stream.Recover(ctx, r.log, s.tile)
	s.loaded(&rec, err, began)
}
