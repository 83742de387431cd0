package rim

import (
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// MostBytes bounds what waits for one tile of one neighbour, and so what of a neighbour may be seen.
const MostBytes = 1 << 20

// batchBytes is what a batch takes beside its events.
const batchBytes = 64

// tooMuch is how long a feed waits that has not taken what there was, or for which there was too much.
const tooMuch = 30 * time.Second

// Feed is what one tile sees of a neighbour.
type Feed struct {
	reader *Reader
	source *source
	areas  fence.AreaSet
	every  time.Duration
	quiet  time.Duration

	// Guarded by source.mu.
	begun  bool      // it has, or will be given, all that was committed up to source.at
	wanted bool      // it has taken what there was since it had too much
	again  time.Time // when it may begin again
	news   News
	bytes  int
}

// News is what has come since it was asked for last.
type News struct {
	Anew    bool   // State comes first: what came before is of no account
	State   []byte // what Rules.Restore is given
	Batches []Batch
	Dropped bool // what came before is of no account, and nothing has taken its place yet

	At      fence.Position // up to where all has come that was committed
	Tick    fence.Tick     // of the neighbour
	AsOf    time.Time      // when its history was known to end there; zero: it was not
	Serving bool           // an owner was seen to be alive
}

// Batch is what a neighbour has committed at a tick.
type Batch struct {
	Tick   fence.Tick
	Events [][]byte // not to be changed: other tiles are given the same
}

// Take is what has come since the last call.
func (f *Feed) Take() News {
	s := f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	n := f.news
	f.news, f.bytes, f.wanted = News{}, 0, true
	n.At, n.Tick, n.AsOf = s.at, s.tick, s.asOf
	n.Serving = s.there && !s.behind && !s.broken && s.owner.Silent < f.quiet
	return n
}

// Again begins anew, later: what was given is not to be used.
func (f *Feed) Again() {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	f.drop()
	f.wanted = true
}

// begin begins with a state. The source's lock is held.
func (f *Feed) begin(base *fence.Snapshot) {
	f.begun, f.news, f.bytes = true, News{Anew: true}, 0
	game, _, err := stream.OpenSnapshot(base.Blob)
	switch {
	case err != nil:
		f.drop()
		return
	case stream.Divided(base.Blob):
		game = f.selected(game)
	}
	f.news.State = game
	f.took(len(game))
}

// add adds an entry. The source's lock is held.
func (f *Feed) add(e *fence.Entry) {
	if !f.begun {
		return
	}
	payload := f.selected(e.Payload)
	if len(payload) == 0 {
		return
	}
	b, err := stream.DecodeBatch(&fence.Entry{Kind: e.Kind, Payload: payload})
	if err != nil {
		f.drop()
		return
	}
	f.news.Batches = append(f.news.Batches, Batch{e.Tick, b.Events})
	f.took(len(payload) + batchBytes)
}

// selected is the parts of a list that are looked at. The chain of what it belongs to is checked: no sums are needed.
func (f *Feed) selected(list []byte) (parts []byte) {
	if f.areas.All() {
		return list
	}
	for p := range fence.Parts(list) {
		if f.areas.Has(p.Area) {
			parts = append(parts, p.Whole...)
		}
	}
	return parts
}

// took notes that so many bytes wait. The source's lock is held.
func (f *Feed) took(bytes int) {
	if f.bytes += bytes; f.bytes > MostBytes {
		f.drop()
	}
}

// drop gives up what waits: the feed begins again later. The source's lock is held.
func (f *Feed) drop() {
	f.begun, f.wanted, f.again = false, false, time.Now().Add(tooMuch)
	f.news, f.bytes = News{Dropped: true}, 0
}
