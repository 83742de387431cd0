package game

import (
	"cmp"
	"math/rand/v2"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

// BotConfig holds a bot's habits. The zero value of each field means its default.
type BotConfig struct {
	MoveChance float64    // how likely it moves in a tick without a card, 0 to 1; default 0.4
	CardChance float64    // how likely it plays a card it could play, 0 to 1; default 0.5
	Hand       int        // cards it holds at most, and at the start; default 4
	DrawEvery  fence.Tick // ticks until it draws the next card; default 12: 6 s at two ticks a second
	Cooldown   fence.Tick // ticks between two cards; default 6
	FirstDraw  fence.Tick // when it draws its first card; default 0: it begins with a full hand
	Sails      float64    // how likely its next goal is in another tile, 0 to 1; default 0
	Fleets     float64    // how likely it leads a fleet instead of a move, 0 to 1; default 0

	// Gather says where a fleet of a flagship goes, and which other ships do; zero: none does. Fleets need it.
	Gather func(r *rand.Rand, flagship string, from fence.TileID) (to fence.TileID, ships []Member)
}

func (c *BotConfig) withDefaults() (d BotConfig) {
	if c != nil {
		d = *c
	}
	d.MoveChance, d.CardChance = cmp.Or(d.MoveChance, 0.4), cmp.Or(d.CardChance, 0.5)
	d.Hand, d.DrawEvery, d.Cooldown = cmp.Or(d.Hand, 4), cmp.Or(d.DrawEvery, 12), cmp.Or(d.Cooldown, 6)
	return d
}

// Bot is an actor's brain. It sees what any client sees, a View of its Viewport, and gives at most one order a tick;
// how the order reaches the tile is not its business. A bot is used by one goroutine. The same views, ticks
// and seed give the same orders.
type Bot struct {
	actor  string
	ground Ground
	cfg    BotConfig
	rng    *rand.Rand

	hand  int
	drawn fence.Tick   // when it last drew a card
	ready fence.Tick   // first tick of the next card
	asked fence.Tick   // first tick at which it asks for a ship again
	asks  int          // for a ship, since it last saw one
	home  uint16       // the cell it asks for
	away  bool         // it follows its ship, and asks for none
	bound region.Place // where it sails to, if it does; last, if it has

	goal  uint16   // the cell it travels to
	steps []uint16 // per cell: 1 more than the steps to the goal, or noWay where none were counted; nil at first
	left  int      // moves until it thinks of another goal
}

const noWay = 0

// NewBot returns the brain of an actor on a ground. A nil config means the defaults.
func NewBot(actor string, ground Ground, seed uint64, cfg *BotConfig) *Bot {
	c := cfg.withDefaults()
	rng := rand.New(rand.NewPCG(seed, nameKey(actor)))
	b := &Bot{actor: actor, ground: ground, cfg: c, hand: c.Hand, rng: rng, home: uint16(rng.IntN(ground.Len()))}
	if c.FirstDraw > 0 {
		b.hand = 0
	}
	return b
}

// Follow has the bot go on in another tile, for which its ship has left, or where it may be. It may ask for a ship at
// home alone.
func (b *Bot) Follow(id fence.TileID, ground Ground, home bool) {
	b.asks = 0
	if b.Expects(id, ground) == nil {
		b.asks = patience + 1
	}
	b.ground, b.away, b.steps, b.left = ground, !home, nil, 0
	if b.bound.Tile == id {
		b.home = uint16(b.bound.Cell)
	}
	b.bound = region.Place{}
}

// Expects is the areas of a tile in which the bot's ship will come into sight; nil: it may be anywhere.
func (b *Bot) Expects(id fence.TileID, ground Ground) []fence.Area {
	cell := int(b.home)
	switch {
	case b.bound.Tile == id:
		cell = b.bound.Cell
	case b.ground.ID() != id || b.asks > patience:
		return nil
	}
	a := ground.Area(cell)
	return append([]fence.Area{a}, ground.Around(a)...)
}

// Viewport is the areas that the bot wants to see: the one that its ship is in, or will be, and those around it. It
// is nil, for the whole tile, while the bot cannot find its ship.
func (b *Bot) Viewport(v *View) []fence.Area {
	v.mu.RLock()
	defer v.mu.RUnlock()
	me := v.state.of(b.actor)
	if me == nil {
		return b.Expects(b.ground.ID(), b.ground)
	}
	a := b.ground.Area(int(me.Cell))
	return append([]fence.Area{a}, b.ground.Around(a)...)
}

// patience is how often a bot asks for a ship before it looks for the one that it may have elsewhere.
const patience = 2

// Decide looks at the view and returns the bot's order for a tick; ok is false when it does nothing.
// Ticks must not decrease.
func (b *Bot) Decide(v *View, tick fence.Tick) (o Order, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	first := b.drawn < b.cfg.FirstDraw && tick >= b.cfg.FirstDraw
	if b.hand < b.cfg.Hand && (first || tick >= max(b.drawn, b.cfg.FirstDraw)+b.cfg.DrawEvery) {
		b.hand++
		b.drawn = tick
	}
	me := v.state.of(b.actor)
	if me == nil {
		return b.ask(tick)
	}
	b.asks = 0
	if !me.InPlay() {
		b.left = 0 // it returns on another cell, and will want another goal
		return Order{}, false
	}
	if b.hand > 0 && tick >= b.ready && b.rng.Float64() < b.cfg.CardChance {
		if o, ok := b.card(v.state, me); ok {
			b.hand--
			b.ready = tick + b.cfg.Cooldown
			if b.hand == b.cfg.Hand-1 {
				b.drawn = tick
			}
			return o, true
		}
	}
	if b.rng.Float64() < b.cfg.MoveChance {
		if b.cfg.Fleets > 0 && b.rng.Float64() < b.cfg.Fleets {
			if to, ships := b.cfg.Gather(b.rng, me.Name(), b.ground.ID()); to != 0 {
				return Order{Kind: Fleet, Tile: to, Fleet: ships}, true
			}
		}
		return b.move(v.state, me)
	}
	return Order{}, false
}

// ask orders a ship, and then gives the order a few ticks to come back as an event.
func (b *Bot) ask(tick fence.Tick) (Order, bool) {
	if tick < b.asked {
		return Order{}, false
	}
	b.asked = tick + 4 + fence.Tick(b.rng.IntN(4))
	if b.asks++; b.asks > patience {
		b.home = uint16(b.rng.IntN(b.ground.Len())) // there may be no room where it was
	}
	return Order{Kind: Spawn, Cell: b.home}, !b.away
}

// card picks a card worth its price: shelter when hurt, else a shot at the weakest ship in range.
func (b *Bot) card(s *state, me *Ship) (Order, bool) {
	if me.Hull <= MaxHull/2 && me.Shield == 0 {
		if b.rng.IntN(3) == 0 {
			return b.warp(s)
		}
		return Order{Kind: Shield}, true
	}
	if target := b.weakest(s, me); target != nil {
		return Order{Kind: Volley, Target: target.ID}, true
	}
	return Order{}, false
}

// warp looks for a free cell in sight a few times and otherwise lets it be.
func (b *Bot) warp(s *state) (Order, bool) {
	for range 32 {
		if c := b.rng.IntN(len(s.cells)); s.free(c) && s.holds(b.ground.Area(c)) {
			b.left = 0
			return Order{Kind: Warp, Cell: uint16(c)}, true
		}
	}
	return Order{}, false
}

// weakest is the ship in range with the fewest points left, the nearest of equals; nil for none.
func (b *Bot) weakest(s *state, me *Ship) *Ship {
	var best *Ship
	seen := map[int32]bool{int32(me.Cell): true}
	edge := []int32{int32(me.Cell)}
	for range VolleyRange {
		var next []int32
		for _, c := range edge {
			for _, n := range b.ground.Adjacent(int(c)) {
				if seen[n] {
					continue
				}
				seen[n] = true
				next = append(next, n)
				if o := s.at(int(n)); o != nil && (best == nil || points(o) < points(best)) {
					best = o
				}
			}
		}
		edge = next
	}
	return best
}

func points(s *Ship) int { return int(s.Hull) + int(s.Shield) }

// move steps towards the goal over free cells, and finds another goal when there, stuck or bored.
func (b *Bot) move(s *state, me *Ship) (Order, bool) {
	if b.left <= 0 || me.Cell == b.goal && b.bound.Tile == 0 || b.steps[me.Cell] == noWay {
		b.travelTo(b.choose(s, me), me.Cell)
	}
	if me.Cell == b.goal && b.bound.Tile != 0 {
		b.left = 0
		return Order{Kind: Sail, Cell: uint16(b.bound.Cell), Tile: b.bound.Tile}, true
	}
	b.left--
	best, found := me.Cell, false
	near := b.ground.Adjacent(int(me.Cell))
	turn := b.rng.IntN(max(len(near), 1)) // where the look around starts: equals are taken in turn
	for i := range near {
		n := uint16(near[(turn+i)%len(near)])
		if s.free(int(n)) && (!found || b.further(best, n)) {
			best, found = n, true
		}
	}
	if !found || b.further(best, me.Cell) {
		b.left = 0
	}
	return Order{Kind: Move, Cell: best}, found
}

// further reports whether a cell is further from the goal than another.
func (b *Bot) further(cell, than uint16) bool { return b.steps[cell]-1 > b.steps[than]-1 } // noWay is furthest

// choose picks a goal: often another ship, so that ships meet, else any cell.
func (b *Bot) choose(s *state, me *Ship) uint16 {
	b.bound = region.Place{}
	if b.cfg.Sails > 0 && b.rng.Float64() < b.cfg.Sails {
		if goal, found := b.border(me.Cell); found {
			return goal
		}
	}
	if n := s.count(); b.rng.IntN(3) > 0 && n > 1 {
		if prey := s.nth(b.rng.IntN(n)); prey.InPlay() && prey != me {
			return prey.Cell
		}
	}
	return uint16(b.rng.IntN(len(s.cells)))
}

// border is the nearest cell from which a ship may sail to another tile.
func (b *Bot) border(from uint16) (goal uint16, found bool) {
	seen := map[int32]bool{int32(from): true}
	for edge := []int32{int32(from)}; len(edge) > 0; edge = edge[1:] {
		if across := b.ground.Across(int(edge[0])); len(across) > 0 {
			b.bound = across[b.rng.IntN(len(across))]
			return uint16(edge[0]), true
		}
		for _, n := range b.ground.Adjacent(int(edge[0])) {
			if !seen[n] {
				seen[n] = true
				edge = append(edge, n)
			}
		}
	}
	return 0, false
}

// detour is how much further from the goal than the ship is now the way to it is measured.
const detour = 2

// travelTo sets the goal and measures the way to it from the cells between: most goals are near, and grounds are wide.
func (b *Bot) travelTo(goal, from uint16) {
	if b.steps == nil {
		b.steps = make([]uint16, b.ground.Len())
	}
	b.goal, b.left = goal, 8+b.rng.IntN(16)
	if b.bound.Tile != 0 {
		b.left *= 4 // the border may be far
	}
	steps := b.steps
	clear(steps)
	steps[goal] = 1
	edge := edges.Get().(*[]uint16)
	queue := append((*edge)[:0], goal)
	for i := 0; i < len(queue); i++ {
		c := queue[i]
		if steps[from] != noWay && steps[c] >= steps[from]+detour {
			break
		}
		for _, n := range b.ground.Adjacent(int(c)) {
			if steps[n] == noWay {
				steps[n] = steps[c] + 1
				queue = append(queue, uint16(n))
			}
		}
	}
	*edge = queue
	edges.Put(edge)
}

// edges are the cells that travelTo has reached. A bot needs them for a moment, and there are thousands of bots.
var edges = sync.Pool{New: func() any { return new([]uint16) }}
