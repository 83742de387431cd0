package players

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// sails is how likely the next goal of a bot is in another tile, and fleets how many of all bots lead a fleet of others
// in a tick in which all move.
const (
	sails  = 0.3
	fleets = 0.5
)

// searchAfter is how many ticks a bot waits for its ship before it asks the directory where that is: longer than a tile
// takes to decide what arrives.
const searchAfter = 20

// seas are the tiles of a world: their grounds, made when they are asked for, and the bots' word of where their ships
// are.
type seas struct {
	tiles []fence.TileID
	made  sync.Map // fence.TileID → game.Ground

	mu    sync.Mutex
	ships []game.Member // that have left a tile before, and come along with a fleet
}

func (s *seas) of(id fence.TileID) (game.Ground, error) {
	if ground, ok := s.made.Load(id); ok {
		return ground.(game.Ground), nil
	}
	ground, err := game.GroundOf(id, s.tiles)
	if err == nil {
		s.made.Store(id, ground)
	}
	return ground, err
}

// report notes that a ship has come to a tile from another one.
func (s *seas) report(name string, id fence.TileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.ships, func(m game.Member) bool { return m.Name == name })
	if i < 0 {
		s.ships = append(s.ships, game.Member{Name: name})
		i = len(s.ships) - 1
	}
	s.ships[i].Tile = id
}

// gather picks a tile and, from the other tiles, up to three ships that go there with a flagship.
func (s *seas) gather(r *rand.Rand, flagship string, from fence.TileID) (to fence.TileID, ships []game.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to = s.tiles[r.IntN(len(s.tiles))]; to == from || len(s.ships) == 0 {
		return 0, nil
	}
	for range 6 {
		m := s.ships[r.IntN(len(s.ships))]
		if len(ships) < 3 && m.Name != flagship && m.Tile != to && !slices.Contains(ships, m) {
			ships = append(ships, m)
		}
	}
	return to, ships
}

// watched is a tile that a bot watches.
type watched struct {
	ground game.Ground
	view   *game.View
	areas  fence.AreaSet // never all of them at first
	at     fence.Position
	synced fence.Seq // frames up to here were history, not news
	broken error     // the view could not be folded
}

// follow goes where the bot's ship goes: its crossings say where, and if it has lost sight of the ship, the directory.
func (b *Bot) follow(ctx context.Context) error {
	seen, known := b.crossings.Get(b.ship)
	if b.noteShip(seen, known) {
		if id, err := b.player.Where(ctx); err == nil && slices.Contains(b.world.tiles, id) { // else again in a while
			b.sought = id
			b.crossings.Crossed(id)
		}
	}
	for _, e := range b.errands.take() {
		if err := b.runErrand(ctx, e); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: follow its ship, tile %s: %w", b.actor, e.tile, err)
		}
	}
	to := b.sought
	if to == 0 && known {
		to = cmp.Or(seen.To, seen.Tile)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.tiles[to]; w != nil && to != b.tile {
		b.tile, b.alone = to, 0
		b.brain.Follow(to, w.ground, to == b.home)
	}
	return nil
}

// noteShip notes where the bot's ship was seen, and reports whether it is lost.
func (b *Bot) noteShip(seen relayclient.Sighting[game.Ship], known bool) (lost bool) {
	if known && seen.To == 0 && seen.Hop != b.hop {
		b.hop, b.sought = seen.Hop, 0
		b.cfg.Measures.Crossings.Add(1)
		b.world.report(b.ship, seen.Tile)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.tiles[b.tile]
	if w == nil {
		return true
	}
	b.alone++
	if _, here := w.view.ShipOf(b.actor); here {
		b.alone, b.sought = 0, 0
	}
	if b.alone <= searchAfter {
		return false
	}
	b.alone = 0
	return true
}

// errand is a tile to watch, or to watch no more.
type errand struct {
	tile fence.TileID
	quit bool
}

// errands are those that a bot's crossings give it, to be run between two orders.
type errands struct {
	mu  sync.Mutex
	all []errand
}

func (e *errands) add(id fence.TileID, quit bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, errand{id, quit})
}

func (e *errands) take() (all []errand) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, e.all = e.all, nil
	return all
}

// runErrand watches a tile, or watches it no more.
func (b *Bot) runErrand(ctx context.Context, e errand) error {
	if e.quit {
		b.mu.Lock()
		delete(b.tiles, e.tile)
		b.mu.Unlock()
		return b.relay.Unsubscribe(ctx, e.tile)
	}
	ground, err := b.world.of(e.tile)
	if err != nil {
		return err
	}
	w := &watched{ground: ground}
	if w.view, err = game.NewView(ground); err != nil {
		return err
	}
	w.view.Track(b.crossings)
	b.mu.Lock()
	want := b.brain.Expects(e.tile, ground)
	w.areas = fence.Areas(want...)
	w.view.Keep(w.areas)
	b.tiles[e.tile] = w
	b.mu.Unlock()
	return b.relay.Watch(ctx, e.tile, want...)
}
