package tile

import (
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/rim"
)

// Sighted is implemented by TransferRules that look across the tile's border: Inputs.Rim is then what other tiles have
// committed there. It is sight and not state. What is seen is as old as it says, may be lost again with the neighbour,
// and decides nothing by itself: what Play makes of it must be in the events, since followers see those alone. What
// changes hands, and exact places, are for departures.
type Sighted interface {
	TransferRules

	// Sights are what the tile looks at: at most MaxSights tiles, each once. It is called when an owner begins.
	Sights() []Sight
}

// MaxSights is how many tiles a tile may look at: those around it, and as many again.
const MaxSights = 12

// Sight is what is seen of a tile.
type Sight struct {
	Tile fence.TileID
	// Areas are those that are seen, and area 0: Region.Beyond of package region has those that touch. The zero value
	// is the whole tile. What is seen must fit into 1 MiB, else nothing is.
	Areas fence.AreaSet
	// View makes an empty view of that tile.
	View func() View
}

// View folds what is seen of a tile, as a client does. Rules can, and so can less than that. It is called from the tick
// loop, before Play. The bytes are shared, and must not be changed.
type View interface {
	// Restore replaces the view by the parts of a snapshot that are seen; nil is an empty tile.
	Restore(snapshot []byte) error
	// Apply folds the events of a tick that are seen.
	Apply(tick fence.Tick, events [][]byte) error
}

// Rim is what a tile sees of another at a tick. The zero value is nothing: the tile is unknown, or was not read yet.
type Rim struct {
	// View is what Sight.View made, with all that is known. It is the same, and unchanged, however often a tick is
	// decided: Play must not change it. Nil: nothing is known.
	View     View
	Position fence.Position // of the other tile's stream, where View ends
	Tick     fence.Tick     // of the other tile
	// Age is for how long View may have been behind what the other tile has committed, by this server's clock alone.
	Age time.Duration
	// Fresh says that the other tile has an owner that was seen to be alive, and that View is not older than the
	// interval in which an owner shows that. Without it the tile may be dead, asleep or quarantined, or its stream
	// cannot be read, and View is what was seen last.
	Fresh bool
}

// Rims reads what the tiles of one process see of others: each tile that is looked at once, however many look. It runs
// only while a tile with Sighted rules is served.
type Rims struct{ reader *rim.Reader }

// NewRims returns a Rims that reads a log.
func NewRims(log stream.Log) *Rims { return &Rims{rim.New(log)} }

// lookout is what an owner sees of other tiles. It is the loop's, but for end.
type lookout struct {
	*base
	seen  map[fence.TileID]*sighting
	stale int // of them
}

// sighting is one of those tiles.
type sighting struct {
	Sight
	Rim
	feed *rim.Feed
}

// begin begins to look, if the rules do.
func (l *lookout) begin() {
	rules, ok := l.rules.(Sighted)
	if !ok {
		return
	}
	l.end()
	l.seen = map[fence.TileID]*sighting{}
	var all []Sight
	if err := l.guard.call("Sights", func() error {
		all = rules.Sights()
		return checkSights(l.tile, all)
	}); err != nil {
		l.resolveFailed(err, nil)
		return
	}
	for _, s := range all {
		l.seen[s.Tile] = &sighting{Sight: s, feed: l.seams.Rims.reader.Feed(s.Tile, s.Areas, l.cfg.TickInterval,
			l.cfg.lifeless())}
	}
	l.note(len(all))
}

func checkSights(own fence.TileID, all []Sight) error {
	if len(all) > MaxSights {
		return &fence.ArgumentError{Field: "Sights", Value: len(all), Want: fmt.Sprint("at most ", MaxSights)}
	}
	known := map[fence.TileID]bool{0: true, own: true}
	for _, s := range all {
		if known[s.Tile] || s.View == nil {
			return &fence.ArgumentError{Field: "Sights", Value: s.Tile, Want: "other tiles, each once, with a View"}
		}
		known[s.Tile] = true
	}
	return nil
}

// end ends it. What is seen stays, for a loop that was left behind in rules that do not return.
func (l *lookout) end() {
	for _, s := range l.seen {
		s.feed.Stop()
	}
}

// look folds what has come, before a tick is decided.
func (l *lookout) look() {
	if len(l.seen) == 0 {
		return
	}
	stale := 0
	for _, s := range l.seen {
		if err := l.fold(s); err != nil {
			s.Rim = Rim{}
			s.feed.Again()
			l.resolveFailed(err, nil)
		}
		if !s.Fresh {
			stale++
		}
	}
	if stale != l.stale {
		l.note(stale)
	}
}

// note notes how many rims are not fresh.
func (l *lookout) note(stale int) {
	l.stale = stale
	l.inbox.update(func(s *Status) { s.Sights, s.StaleSights = len(l.seen), stale })
}

// fold folds what has come of a tile.
func (l *lookout) fold(s *sighting) error {
	n := s.feed.Take()
	if n.Anew || n.Dropped {
		s.Rim = Rim{}
	}
	if !n.Anew && s.Rim.View == nil {
		return nil
	}
	if n.Anew || len(n.Batches) > 0 {
		if err := l.guard.call("View", func() error { return s.take(&n) }); err != nil {
			return err
		}
	}
	s.Position, s.Tick, s.Age = n.At, n.Tick, time.Since(n.AsOf)
	s.Fresh = n.Serving && s.Age < l.cfg.lifeless()
	return nil
}

func (s *sighting) take(n *rim.News) error {
	if n.Anew {
		v := s.Sight.View()
		if err := v.Restore(n.State); err != nil {
			return err
		}
		s.Rim.View = v
	}
	for _, b := range n.Batches {
		if err := s.Rim.View.Apply(b.Tick, b.Events); err != nil {
			return err
		}
	}
	return nil
}

// rim is Inputs.Rim.
func (l *lookout) rim(id fence.TileID) Rim {
	if s := l.seen[id]; s != nil {
		return s.Rim
	}
	return Rim{}
}
