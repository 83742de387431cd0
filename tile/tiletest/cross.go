package tiletest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Census names the entities that are in a tile, each once, as stream.Departure names them.
type Census func(tile.Rules) []string

// What to look for, where an entity is in no place, or in two.
const (
	inArrival = "a verdict without the event that puts the entity in, or the event without the verdict: one branch " +
		"of Play makes both"
	inDeparture = "a departure without the event that takes the entity out"
	inReturn    = "a return that is not taken: Play keeps Inputs.UnderWay places free, or has no bound for returns"
	inTotals    = "an arrival that is taken and not booked, or booked twice; a refusal that is not given back"
	inRoom      = "a departure without Inputs.Room, or one room that is asked about once and used twice in a tick"
)

// Cross checks rules whose entities travel (tile.TransferRules) between the tiles of Config.Tiles, as the package
// comment says. The generator makes intents for all of them: the zero Tile is replaced by any. A nil cfg means the
// defaults.
func Cross(t *testing.T, newRules NewRules, intent Generator, census Census, cfg *Config) {
	t.Helper()
	if newRules == nil || intent == nil || census == nil {
		t.Fatal("tiletest.Cross needs what makes the rules of a tile, what makes random intents, and what names the " +
			"entities in a tile: one of them is nil")
	}
	c := cfg.withDefaults()
	again := fmt.Sprintf("again with: TILEFENCE_SEED=%d go test -run '^%s$'", c.Seed, t.Name())
	t.Log(again)
	counts := tally{}
	synctest.Test(t, func(t *testing.T) {
		if err := playSea(newRules, intent, census, &c, counts); err != nil {
			t.Fatalf("%v\n%s", err, again)
		}
	})
	counts.log(t)
	ends := counts["entities"]["ended"] > 0
	synctest.Test(t, func(t *testing.T) { crossCluster(t, newRules, intent, census, &c, ends) })
}

// sea is what is between the tiles, played without processes: whatever has departed is in it until it has arrived, or
// come back.
type sea struct {
	r      *rand.Rand
	census Census
	counts tally
	seq    fence.Seq
	under  map[string]*crossing // by entity
	order  []*crossing          // as they departed
	places map[string]fence.TileID

	borders map[fence.TileID]*border
	games   []*game
	totals  map[string]int // at the beginning
}

// border is one tile's.
type border struct {
	*sea
	at       fence.TileID
	seen     map[fence.TileID]tile.Rim // at the tick
	arrivals []*crossing               // that the tick is asked about
	returns  []*crossing
	room     map[fence.TileID]int // that the rules were told of
	before   []string
	late     bool // what comes back to it waits
}

// crossing is an entity under way.
type crossing struct {
	stream.Transfer
	from    fence.TileID
	refused string
}

// playSea plays random ticks on the rules of several tiles.
func playSea(newRules NewRules, intent Generator, census Census, c *Config, counts tally) (err error) {
	s := &sea{r: rand.New(rand.NewPCG(c.Seed, 3)), census: census, counts: counts, under: map[string]*crossing{},
		places: map[string]fence.TileID{}, borders: map[fence.TileID]*border{}}
	for _, id := range c.Tiles {
		g := &game{Config: *c, newRules: newRules, r: s.r, counts: counts, border: &border{sea: s, at: id}}
		g.Tile = id
		if err := g.begin(); err != nil {
			return err
		}
		if _, ok := g.owner.(tile.TransferRules); !ok {
			return g.violated("The rules do not travel", fmt.Sprintf("%T has no method Play", g.owner),
				"tile.TransferRules")
		}
		if err := g.border.settle(g, nil); err != nil {
			return err
		}
		s.games, s.borders[id] = append(s.games, g), g.border
	}
	s.totals = s.sum(c)
	g := s.games[0]
	defer func() {
		if p := recover(); p != nil {
			err = g.violated("The rules panic", fmt.Sprintf("%v\n%s", p, debug.Stack()), "")
		}
	}()
	for range c.Ticks {
		all, err := generated(s.r, intent, c)
		if err != nil {
			return err
		}
		for _, g = range s.games {
			g.tick++
			g.intents = slices.DeleteFunc(slices.Clone(all), func(in tile.Intent) bool { return in.Tile != g.Tile })
			if err = g.step(); err != nil {
				return err
			}
			if now := s.sum(c); !maps.Equal(now, s.totals) {
				return g.violated("The totals have changed", fmt.Sprintf("%v, and they were %v", now, s.totals),
					inTotals)
			}
		}
	}
	return nil
}

// sum is what all tiles have, and all that is under way.
func (s *sea) sum(c *Config) map[string]int {
	all := map[string]int{}
	for _, g := range s.games {
		add(all, c.Totals(g.owner))
	}
	for _, under := range s.order {
		add(all, c.Carries(&under.Departure))
	}
	return all
}

func add(sum, some map[string]int) {
	for name, n := range some {
		if sum[name] += n; sum[name] == 0 {
			delete(sum, name)
		}
	}
}

// inputs are what the next tick is asked about: some of what is under way.
func (b *border) inputs(in *tile.Inputs) {
	b.arrivals, b.returns, b.room = nil, nil, map[fence.TileID]int{}
	if b.r.IntN(8) == 0 { // for some ticks, what comes back is late: others want its place
		b.late = b.r.IntN(2) == 0
	}
	most := b.r.IntN(4)
	for _, c := range b.order {
		if c.To == b.at && c.refused == "" && b.r.IntN(64) == 0 {
			c.refused = "the rules fail with it" // as an owner refuses in their place
			b.counts.add("transfers", "refused: "+c.refused, 1)
		}
		switch {
		case c.from == b.at:
			in.UnderWay++
			if c.refused != "" && !b.late {
				b.returns = append(b.returns, c)
				in.Returns = append(in.Returns, tile.Return{Transfer: c.Transfer, Reason: c.refused})
			}
		case c.To == b.at && c.refused == "" && len(b.arrivals) < most:
			b.arrivals = append(b.arrivals, c)
			in.Arrivals = append(in.Arrivals, tile.Arrival{Transfer: c.Transfer, From: c.from})
		}
	}
	in.Room = func(to fence.TileID, _ int) int {
		if _, asked := b.room[to]; !asked {
			b.room[to] = 0
			if b.borders[to] != nil && to != b.at && b.r.IntN(5) > 0 {
				b.room[to] = 1 + b.r.IntN(4)
			}
		}
		return b.room[to]
	}
}

// check is of what a tick has decided and not yet done.
func (b *border) check(g *game, out *tile.Outputs) error {
	if n := len(out.Verdicts); n > len(b.arrivals) {
		return g.violated("Play returns more verdicts than there are arrivals", fmt.Sprintf("%d for %d", n,
			len(b.arrivals)), "")
	}
	gone := map[fence.TileID]int{}
	for i := range out.Departures {
		d := &out.Departures[i]
		if err := d.Validate(b.at); err != nil {
			return g.violated("Play returns a departure that is not valid", err.Error(), "")
		}
		if gone[d.To]++; gone[d.To] > b.room[d.To] {
			return g.violated("More depart for a tile than there is room for", fmt.Sprintf("%d for %s, room for %d",
				gone[d.To], d.To, b.room[d.To]), inRoom)
		}
	}
	b.before = b.census(g.owner)
	return nil
}

// settle compares the census after a tick with what the tick has decided, and lets the entities go on their way. Out is
// nil at the beginning.
func (b *border) settle(g *game, out *tile.Outputs) error {
	after := map[string]bool{}
	for _, name := range b.census(g.owner) {
		if after[name] {
			return g.violated("The census counts an entity twice", name, "an event that puts in what is there already")
		}
		after[name] = true
	}
	if out != nil {
		if err := b.cross(g, out, after); err != nil {
			return err
		}
	}
	for _, name := range b.before {
		if !after[name] && b.places[name] == b.at {
			delete(b.places, name)
			if b.under[name] == nil {
				b.counts.add("entities", "ended", 1)
			}
		}
	}
	for name := range after {
		at, is := b.places[name]
		switch {
		case b.under[name] != nil:
			return g.violated("An entity is in a tile and under way", fmt.Sprintf("%s, in %s, has departed from %s "+
				"for %s", name, b.at, b.under[name].from, b.under[name].To), inDeparture)
		case is && at != b.at:
			return g.violated("An entity is in two tiles", fmt.Sprintf("%s is in %s and in %s", name, at, b.at),
				"an intent that puts in an entity which another tile may have: begin it in one tile, or give it a new name")
		case !is:
			b.counts.add("entities", "begun, or arrived", 1)
		}
		b.places[name] = b.at
	}
	return nil
}

// cross takes in what has arrived and come back, and takes out what departs.
func (b *border) cross(g *game, out *tile.Outputs, after map[string]bool) error {
	leaves := map[string]bool{}
	for _, d := range out.Departures {
		leaves[d.Entity] = true
	}
	for i, v := range out.Verdicts {
		c := b.arrivals[i]
		switch {
		case v.Refused != "":
			if after[c.Entity] {
				return g.violated("An arrival is refused, and in the tile", c.Entity, inArrival)
			}
			c.refused = v.Refused
			b.counts.add("transfers", "refused: "+v.Refused, 1)
			continue
		case !after[c.Entity] && !leaves[c.Entity] && !g.Ends(c.Entity):
			return g.violated("An arrival is taken, and not in the tile", c.Entity, inArrival)
		}
		b.counts.add("transfers", "arrived", 1)
		b.forget(c)
	}
	for _, c := range b.returns {
		if !after[c.Entity] && !leaves[c.Entity] && !g.Ends(c.Entity) {
			return g.violated("An entity that comes back is not in the tile", fmt.Sprintf("%s, refused with %q",
				c.Entity, c.refused), inReturn)
		}
		b.counts.add("transfers", "came back", 1)
		b.forget(c)
	}
	b.seq++
	for i, d := range out.Departures {
		if other := b.under[d.Entity]; other != nil {
			return g.violated("An entity departs twice", fmt.Sprintf("%s, which is under way to %s", d.Entity,
				other.To), inDeparture)
		}
		c := &crossing{from: b.at, Transfer: stream.Transfer{Tick: g.tick, Departure: d,
			ID: stream.TransferID{Epoch: 1, Seq: b.seq, Index: i + 1}}}
		b.under[d.Entity], b.order = c, append(b.order, c)
		b.counts.add("transfers", "departed", 1)
	}
	return nil
}

// forget ends a crossing.
func (b *border) forget(c *crossing) {
	delete(b.under, c.Entity)
	b.order = slices.DeleteFunc(b.order, func(other *crossing) bool { return other == c })
}

// elapsed is what Play is given without processes: a tick interval, or hours.
func elapsed(r *rand.Rand) time.Duration {
	if r.IntN(32) == 0 {
		return time.Duration(r.IntN(100)) * time.Hour
	}
	return time.Second / 2
}
