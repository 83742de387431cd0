package game

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/warp"
)

// turn plays one tick. It decides on a draft of the state and folds every event into the draft at once,
// through the same apply as every watcher: a decision sees the ones before it, and an event that would
// not fit cannot leave here.
type turn struct {
	draft  state
	before *state // the state as the tick began
	tick   fence.Tick
	acts   []act
	moved  []bool // per ship number: it has had its move
	in     *tile.Inputs
	out    tile.Outputs
	warp   *warp.Turn
	fleet  string // the flagship of the fleet that begins in this tick
	away   int    // ships that have left the tile and may come back
	bytes  []byte

	// seen and edge are the memory of within: the search that last reached each cell, and its frontier.
	seen   []uint32
	search uint32
	edge   []int32
}

// act is one valid intent waiting for its phase.
type act struct {
	at    int // place among the intents
	order Order
	actor string
	ship  uint32 // zero for Spawn
	draw  uint64 // this tick's lot: the order within the phase
}

func (t *turn) play(s *state, tick fence.Tick, in *tile.Inputs) tile.Outputs {
	s.draft(&t.draft)
	t.before, t.tick, t.in, t.away = s, tick, in, in.UnderWay
	t.out, t.bytes = tile.Outputs{}, nil // handed out: the caller keeps the last tick's
	t.moved = append(t.moved[:0], make([]bool, len(s.in))...)
	t.warp, t.fleet = s.warps.Turn(s.ground.ID(), tick, t.room, t.agrees), ""
	t.comeBack()
	t.arrive()
	t.returns()
	outcomes := make([]stream.Outcome, len(in.Intents))
	t.sort(in.Intents, outcomes)
	for i := range t.acts {
		a := &t.acts[i]
		outcomes[a.at] = t.act(a)
	}
	t.weighAnchor()
	t.out.Outcomes = outcomes
	return t.out
}

// phases orders the kinds of order within a tick.
var phases = [...]int{Spawn: 1, Shield: 2, Volley: 3, Warp: 4, Move: 5, Sail: 6, Fleet: 7}

// sort fills acts with the intents that are worth deciding, in the order in which they act, and gives
// the others their outcome.
func (t *turn) sort(intents []tile.Intent, outcomes []stream.Outcome) {
	t.acts = t.acts[:0]
	for i := range intents {
		in := &intents[i]
		order, err := DecodeOrder(in.Body)
		a := act{at: i, order: order, actor: in.Actor}
		ship := t.before.of(in.Actor)
		switch {
		case err != nil, in.Actor == "", len(in.Actor) > MaxOwner, order.Kind.Card() && in.ActionID == "":
			outcomes[i] = stream.Rejected
			continue
		case order.Kind == Spawn:
			a.draw = draw(tick64(t.tick), nameKey(in.Actor))
		case ship == nil:
			outcomes[i] = stream.Rejected
			continue
		case !ship.InPlay():
			outcomes[i] = stream.Fizzled
			continue
		default:
			a.ship, a.draw = ship.ID, t.lot(ship.ID)
		}
		t.acts = append(t.acts, a)
	}
	// Arrival decides only between orders of one ship, or of two names with one lot.
	slices.SortFunc(t.acts, func(a, b act) int {
		return cmp.Or(cmp.Compare(phases[a.order.Kind], phases[b.order.Kind]), cmp.Compare(a.draw, b.draw),
			cmp.Compare(a.at, b.at))
	})
}

func (t *turn) act(a *act) stream.Outcome {
	if t.held(a.ship) {
		return stream.Fizzled
	}
	switch a.order.Kind {
	case Spawn:
		return t.spawn(a)
	case Shield:
		return t.shield(a)
	case Volley:
		return t.volley(a)
	case Sail:
		return t.sail(a)
	case Fleet:
		return t.gather(a)
	}
	return t.step(a)
}

// returns brings back the destroyed ships whose time has come, each in the area where it was destroyed. There is room:
// a destroyed ship counts when an area is full.
func (t *turn) returns() {
	var due []Ship
	for i := range t.before.areas {
		for _, ship := range t.before.areas[i].ships {
			if !ship.InPlay() && ship.Back <= t.tick {
				due = append(due, ship)
			}
		}
	}
	slices.SortFunc(due, func(a, b Ship) int {
		return cmp.Or(cmp.Compare(t.lot(a.ID), t.lot(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	for _, ship := range due {
		t.emit(Event{Kind: Returned, Ship: ship.ID, Cell: t.freeCell(ship.Cell, ^t.lot(ship.ID)), Hull: MaxHull})
	}
}

// spawn puts a new ship on the cell that its actor names or, if that is taken, on another one of the area.
func (t *turn) spawn(a *act) stream.Outcome {
	switch {
	case int(a.order.Cell) >= len(t.draft.cells):
		return stream.Rejected
	case t.draft.number(a.actor) != 0 || t.draft.full(t.area(a.order.Cell)) || t.crowded() || t.bore(a.actor):
		return stream.Fizzled
	}
	cell := a.order.Cell
	if !t.draft.free(int(cell)) {
		cell = t.freeCell(cell, nameKey(a.actor))
	}
	t.emit(Event{Kind: Spawned, Ship: t.number(), Cell: cell, Hull: MaxHull, Owner: a.actor})
	return stream.Applied
}

func (t *turn) shield(a *act) stream.Outcome {
	ship := t.draft.find(a.ship)
	if ship.Shield >= MaxShield {
		return stream.Fizzled
	}
	t.emit(Event{Kind: Shielded, Area: t.area(ship.Cell), Ship: a.ship,
		Shield: min(ship.Shield+ShieldCharge, MaxShield)})
	return stream.Applied
}

// volley does not ask whether the attacker is still in play: all volleys of a tick are simultaneous.
func (t *turn) volley(a *act) stream.Outcome {
	attacker, target := t.draft.find(a.ship), t.draft.find(a.order.Target)
	switch {
	case target == nil || target.ID == a.ship:
		return stream.Rejected
	case !target.InPlay(), t.held(target.ID):
		return stream.Fizzled
	case !t.within(int(attacker.Cell), int(target.Cell), VolleyRange):
		return stream.Fizzled
	}
	e := Event{Kind: Fired, Area: t.area(target.Cell), Ship: a.ship, Target: target.ID}
	absorbed := min(target.Shield, VolleyDamage)
	e.Shield = target.Shield - absorbed
	e.Hull = target.Hull - min(target.Hull, VolleyDamage-absorbed)
	if e.Hull == 0 {
		e.Wait = ReturnTicks
	}
	t.emit(e)
	if e.Hull == 0 {
		t.emit(Event{Kind: Scored, Area: t.area(attacker.Cell), Ship: a.ship})
	}
	return stream.Applied
}

// step is a Move or a Warp: a ship's one change of place in a tick. The attempt counts, also when it
// fails, so that a client gains nothing by sending several.
func (t *turn) step(a *act) stream.Outcome {
	ship := *t.draft.find(a.ship)
	cell := int(a.order.Cell)
	switch {
	case cell >= len(t.draft.cells):
		return stream.Rejected
	case !ship.InPlay() || t.moved[a.ship]:
		return stream.Fizzled
	}
	t.moved[a.ship] = true
	kind := Warped
	if a.order.Kind == Move {
		kind = Moved
		if !slices.Contains(t.draft.ground.Adjacent(int(ship.Cell)), int32(cell)) {
			return stream.Fizzled
		}
	}
	from, to := t.area(ship.Cell), t.area(a.order.Cell)
	switch {
	case !t.draft.free(cell) || from != to && t.draft.full(to):
		return stream.Fizzled
	case from == to:
		t.emit(Event{Kind: kind, Ship: a.ship, Cell: a.order.Cell})
	default:
		t.emit(Event{Kind: Left, Area: from, Ship: a.ship})
		t.emit(Event{Kind: Entered, Ship: a.ship, Cell: a.order.Cell, Hull: ship.Hull, Shield: ship.Shield,
			Score: ship.Score, Owner: ship.Owner, Home: ship.Home, Hop: ship.Hop})
	}
	return stream.Applied
}

// area is the area of a cell.
func (t *turn) area(cell uint16) fence.Area { return t.draft.ground.Area(int(cell)) }

// lot is this tick's lot of a ship.
func (t *turn) lot(id uint32) uint64 { return draw(tick64(t.tick), uint64(id)) }

// emit records an event and folds it into the draft.
func (t *turn) emit(e Event) {
	if err := t.draft.apply(t.tick, &e); err != nil {
		panic(fmt.Sprintf("game: decided what the state refuses: %v", err))
	}
	start := len(t.bytes)
	t.bytes = e.Append(t.bytes)
	t.out.Events = append(t.out.Events, t.bytes[start:len(t.bytes):len(t.bytes)])
}

// freeCell is the first free cell of a cell's area, from one that is drawn for a key. There is one: the area is not
// full, or a destroyed ship that counts in it returns.
func (t *turn) freeCell(cell uint16, key uint64) uint16 {
	first, end := t.draft.ground.Span(t.area(cell))
	n := end - first
	start := int(draw(tick64(t.tick), key) % uint64(n))
	for i := range n {
		if c := first + (start+i)%n; t.draft.free(c) {
			return uint16(c)
		}
	}
	return cell // which emit will not have
}

// within reports whether to is at most k steps from from, over cells of the ground.
func (t *turn) within(from, to, k int) bool {
	if len(t.seen) == 0 {
		t.seen = make([]uint32, t.draft.ground.Len())
	}
	if t.search++; t.search == 0 {
		clear(t.seen)
		t.search = 1
	}
	t.seen[from] = t.search
	t.edge = append(t.edge[:0], int32(from))
	for done := 0; k > 0 && t.seen[to] != t.search; k-- {
		end := len(t.edge)
		for _, c := range t.edge[done:end] {
			for _, n := range t.draft.ground.Adjacent(int(c)) {
				if t.seen[n] != t.search {
					t.seen[n] = t.search
					t.edge = append(t.edge, n)
				}
			}
		}
		done = end
	}
	return t.seen[to] == t.search
}

func tick64(t fence.Tick) uint64 { return uint64(t) }

func nameKey(actor string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(actor))
	return h.Sum64()
}

// draw is the lot of a key in a tick: a well mixed number, the finalizer of splitmix64 over both. It is
// part of the rules, not of the encoding: only Resolve uses it, and watchers fold results.
func draw(tick, key uint64) uint64 {
	x := tick*0x9e3779b97f4a7c15 ^ key
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
