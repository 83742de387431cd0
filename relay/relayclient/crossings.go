package relayclient

import (
	"iter"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Crossings puts the views of several tiles together, so that an entity which crosses from one to the other is drawn
// once in every frame, whatever the order in which the tiles' events come. It also keeps a client with its player: the
// new tile is watched before the old one is left.
//
// The game numbers the stays of an entity: its hop is 0 where it is born, and a departure's payload carries the next.
// An entity that is born again has another name. The fold of each tile's events calls Enter, Leave and End with the hop
// of the stay that begins or ends, and that of a Sync calls Restore. What is said of tiles that are not watched is
// ignored. The zero value is ready to use. All methods are safe for concurrent use.
//
// V is what the game draws of an entity, and is kept while it is in flight: usually a pointer to what the folds change.
type Crossings[V any] struct {
	// Join and Quit begin and end the watching of a whole tile for the player: as a rule Client.Watch without areas,
	// and Client.Unsubscribe. Of a tile that is also watched in part (Watch), Quit goes back to that part: Client.Watch
	// with its areas, and Restore. Crossed, Enter and Leave call them, one at a time; they must not call those. Nil
	// does nothing. Set them before the first call.
	Join, Quit func(fence.TileID)

	following sync.Mutex // held while Join and Quit run, so that they come in the order of what has happened

	mu       sync.Mutex
	player   string
	entities map[string]*stay[V]
	watched  map[fence.TileID]watching
	hidden   []string // of the entities that are not drawn, the oldest first, some of them twice
}

// watching is why a tile is watched.
type watching struct {
	player bool // it is there, or goes there
	other  bool
	part   bool // for the other reason, only some areas
}

// Sighting is how an entity is drawn.
type Sighting[V any] struct {
	Tile  fence.TileID // where it is, or has left
	To    fence.TileID // where it flies to; zero: it is in Tile
	Hop   uint64
	Value V
}

// stay is the latest stay of an entity that anything is known of. What is known of it only goes on, so the events of
// several tiles come to the same in any order.
type stay[V any] struct {
	Sighting[V]
	left   time.Time // when it was seen to leave
	unseen bool      // it is not drawn
	ended  bool      // nor will it be, in this stay
}

const (
	// longestFlight is for how long an entity is drawn in flight: longer than a tile takes to find another owner. Then
	// the client has missed how it ended. A player is never given up.
	longestFlight = 30 * time.Second
	mostHidden    = 4096 // entities that are remembered although they are not drawn: nothing late brings them back
)

// Follow makes an entity the player's: it is drawn in flight wherever it goes, and the tiles where it is are watched.
func (c *Crossings[V]) Follow(entity string) {
	c.mu.Lock()
	c.player = entity
	c.mu.Unlock()
}

// Watch notes that the client watches a tile, other than as the player's: the whole of it or, with areas, a part, such
// as the rim of a neighbour. The game asks the client for the same (Client.Watch). A tile that is watched in part is
// joined when the player goes there, since it may arrive out of sight. Restore hides what goes out of sight inside a
// tile.
func (c *Crossings[V]) Watch(id fence.TileID, areas ...fence.Area) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch(id, watching{c.watched[id].player, true, len(areas) > 0})
}

func (c *Crossings[V]) watch(id fence.TileID, w watching) {
	if c.watched == nil {
		c.watched, c.entities = map[fence.TileID]watching{}, map[string]*stay[V]{}
	}
	c.watched[id] = w
}

// Unwatch notes that the client watches a tile no more: nothing that is there, or flies there, is drawn.
func (c *Crossings[V]) Unwatch(id fence.TileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatch(id)
}

func (c *Crossings[V]) unwatch(id fence.TileID) {
	delete(c.watched, id)
	for name, s := range c.entities {
		switch {
		case c.isPlayer(name):
		case s.To == id:
			c.hide(name, s, true)
		case s.To == 0 && s.Tile == id:
			c.hide(name, s, false)
		}
	}
}

func (c *Crossings[V]) isPlayer(entity string) bool { return entity == c.player && entity != "" }

// Crossed joins the tile that the player goes to, as an answer of the gateway says (gatewayws.DialConfig.Crossed), and
// the one where it begins. The tile is left when the player enters another one.
func (c *Crossings[V]) Crossed(to fence.TileID) {
	c.following.Lock()
	defer c.following.Unlock()
	c.mu.Lock()
	w := c.watched[to]
	whole := w.player || w.other && !w.part
	if !whole {
		c.watch(to, watching{true, w.other, w.part})
	}
	c.mu.Unlock()
	if !whole && c.Join != nil {
		c.Join(to)
	}
}

// Enter begins a stay of an entity: it was born in the tile, it has arrived there, or it came back. It reports whether
// the entity is drawn there now. If it is the player, the tiles that were joined for it before are left.
func (c *Crossings[V]) Enter(id fence.TileID, entity string, hop uint64, v V) bool {
	c.following.Lock()
	defer c.following.Unlock()
	c.mu.Lock()
	drawn := c.enter(id, entity, hop, v)
	var quit []fence.TileID
	if drawn && c.isPlayer(entity) {
		for other, w := range c.watched {
			if !w.player || other == id {
				continue
			}
			if w.other {
				c.watched[other] = watching{false, true, w.part}
			} else {
				c.unwatch(other)
			}
			if w.part || !w.other {
				quit = append(quit, other)
			}
		}
	}
	c.mu.Unlock()
	for _, other := range quit {
		if c.Quit != nil {
			c.Quit(other)
		}
	}
	return drawn
}

func (c *Crossings[V]) enter(id fence.TileID, entity string, hop uint64, v V) bool {
	if _, watched := c.watched[id]; !watched {
		return false
	}
	s := c.entities[entity]
	switch {
	case s == nil || s.Hop < hop:
	case s.Hop == hop && s.Tile == id && s.To == 0 && !s.ended: // once more, in a Sync
	default:
		return false
	}
	c.entities[entity] = &stay[V]{Sighting: Sighting[V]{Tile: id, Hop: hop, Value: v}}
	return true
}

// Leave ends a stay: the entity has departed for another tile. It is drawn in flight if the client watches that one,
// and otherwise no more. If it is the player, the other tile is joined.
func (c *Crossings[V]) Leave(id fence.TileID, entity string, hop uint64, to fence.TileID) {
	c.mu.Lock()
	s := c.entities[entity]
	ends := s != nil && s.Hop == hop && s.Tile == id && s.To == 0 && !s.ended
	player := c.isPlayer(entity)
	if ends {
		s.To, s.left = to, time.Now()
		if _, watched := c.watched[to]; !watched && !player {
			c.hide(entity, s, true)
		}
	}
	c.mu.Unlock()
	if ends && player {
		c.Crossed(to)
	}
}

// End ends an entity: in that stay it has left the world.
func (c *Crossings[V]) End(entity string, hop uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.entities[entity]; s != nil && s.Hop <= hop {
		s.Hop = hop
		c.hide(entity, s, true)
	}
}

// Restore notes that a tile's view starts over, before Enter is called for each entity of the state, of which has says
// whether the state has it: what else was there is not drawn any more, but for the player.
func (c *Crossings[V]) Restore(id fence.TileID, has func(entity string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.entities {
		if s.Tile == id && s.To == 0 && !c.isPlayer(name) && !has(name) {
			c.hide(name, s, false) // the state may be older than what was seen: the batches behind it are to come
		}
	}
}

// hide takes an entity out of sight, for the rest of its stay or for a while.
func (c *Crossings[V]) hide(entity string, s *stay[V], ended bool) {
	if !s.unseen {
		c.hidden = append(c.hidden, entity)
	}
	var none V
	s.Value, s.ended, s.unseen = none, s.ended || ended, true
	for len(c.hidden) > mostHidden {
		if old := c.entities[c.hidden[0]]; old != nil && old.unseen {
			delete(c.entities, c.hidden[0])
		}
		c.hidden = c.hidden[1:]
	}
}

// Get is how an entity is drawn; ok is false if it is not.
func (c *Crossings[V]) Get(entity string) (seen Sighting[V], ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.entities[entity]
	if s == nil || !c.drawn(entity, s) {
		return seen, false
	}
	return s.Sighting, true
}

// All are the entities that are drawn, in no order. No method may be called meanwhile.
func (c *Crossings[V]) All() iter.Seq2[string, Sighting[V]] {
	return func(yield func(string, Sighting[V]) bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for name, s := range c.entities {
			if c.drawn(name, s) && !yield(name, s.Sighting) {
				return
			}
		}
	}
}

func (c *Crossings[V]) drawn(entity string, s *stay[V]) bool {
	if s.To != 0 && !c.isPlayer(entity) && time.Since(s.left) > longestFlight {
		c.hide(entity, s, true)
	}
	return !s.unseen
}
