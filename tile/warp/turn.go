package warp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// message is what one tile tells another about a warp.
type message struct {
	Kind  string       `json:"kind"`
	Warp  string       `json:"warp"`
	To    fence.TileID `json:"to"`
	Parts []Part       `json:"parts,omitempty"` // of an ask: those that leave the tile asked, or go there
	Yes   bool         `json:"yes,omitempty"`
}

// The kinds of messages.
const (
	ask  = "ask"  // the leader: hold these, keep seats for those
	vote = "vote" // a tile that was asked: I do, or I do not
	tell = "tell" // the leader: go, or stay
)

// Ask is what a tile is asked for: to let entities leave, and to keep seats for others.
type Ask struct {
	Warp   string
	Leave  []Part
	Arrive []Part
}

// Turn is a tile's part in warps at one tick. Its zero value is not ready: see State.Turn.
type Turn struct {
	Events     [][]byte           // to be committed with the rules' own
	Departures []stream.Departure // likewise

	tile fence.TileID
	tick fence.Tick
	room func(to fence.TileID, bytes int) int
	can  func(Ask) bool
	now  State
	used map[fence.TileID]int // departures of this tick
}

// Turn begins a tick of the tile with that ID. room is Inputs.Room. can says whether the rules agree to an Ask: whether
// the entities are there and free, and as many seats. What it has agreed to in this tick counts at the next call, by
// Turn.Held and Turn.Seats.
func (s *State) Turn(id fence.TileID, tick fence.Tick, room func(fence.TileID, int) int, can func(Ask) bool) *Turn {
	return &Turn{tile: id, tick: tick, room: room, can: can, now: s.clone(), used: map[fence.TileID]int{}}
}

// Held is State.Held as of now in this tick.
func (t *Turn) Held(entity string) bool { return t.now.Held(entity) }

// Seats is State.Seats as of now in this tick.
func (t *Turn) Seats() int { return t.now.Seats() }

// MaxParts is how many entities a warp may have.
const MaxParts = 256

// Begin begins a warp that this tile leads. If not all have voted when the tick until is played, all stay. The ID is
// the game's, unique in the world, at most 24 bytes. The error is a *fence.ArgumentError.
func (t *Turn) Begin(id string, until fence.Tick, parts []Part) error {
	if l, p := t.now.leads[id], t.now.parts[id]; l != nil || p != nil || id == "" || len(id) > 24 ||
		strings.Contains(id, ":") {
		return &fence.ArgumentError{Field: "id", Value: id, Want: "a new ID of 1 to 24 bytes without a colon"}
	}
	if len(parts) == 0 || len(parts) > MaxParts {
		return &fence.ArgumentError{Field: "parts", Value: len(parts), Want: fmt.Sprint("1 to ", MaxParts, " entities")}
	}
	seen := map[string]bool{}
	for _, p := range parts {
		d := stream.Departure{To: p.To, Entity: p.Entity}
		if err := d.Validate(p.From); err != nil {
			return err
		}
		if p.From == 0 || seen[p.Entity] {
			return &fence.ArgumentError{Field: "parts", Value: p, Want: "a tile to leave, and each entity once"}
		}
		seen[p.Entity] = true
	}
	t.commit(event{Step: began, Warp: id, Until: until, Parts: parts})
	all := tilesOf(parts)
	if i := slices.Index(all, t.tile); i >= 0 { // last: if it votes no, the others have been asked before they are told
		all = append(slices.Delete(all, i, i+1), t.tile)
	}
	for _, to := range all {
		t.send(message{Kind: ask, Warp: id, To: to, Parts: of(parts, to)})
	}
	return nil
}

// of are the parts that leave a tile or go there.
func of(parts []Part, id fence.TileID) (all []Part) {
	for _, p := range parts {
		if p.From == id || p.To == id {
			all = append(all, p)
		}
	}
	return all
}

// Arrive takes a message of a warp. message is false if the arrival is an entity of the game: the rules ask Seated, and
// read its payload by Own.
func (t *Turn) Arrive(a tile.Arrival) (message bool) {
	m, ours := read(a.Entity, a.Payload)
	if m != nil {
		t.heard(m, a.From)
	}
	return ours
}

// Seated says that an entity has arrived. ok is true if it came by a warp, and had a seat: the rules may not refuse it.
// It may come before the leader's word, since another tile's messages take another way; the seat is its own in any
// case. One that came otherwise has none, though a warp may keep one for it: that warp calls it off, or has it come
// once more.
func (t *Turn) Seated(a tile.Arrival) (ok bool) {
	id, _ := split(a.Payload)
	p := t.now.parts[id]
	if p == nil || !slices.Contains(p.Seats, a.Entity) {
		return false
	}
	t.commit(event{Step: came, Warp: id, Entity: a.Entity})
	return true
}

// Leave is an entity that departs by a warp.
type Leave struct {
	Part
	Warp string
}

// Payload is what the entity departs with: what the rules give it, behind the name of the warp. Own takes it apart.
func (l *Leave) Payload(own []byte) []byte { return append([]byte(Prefix+l.Warp+":"), own...) }

// Own is the rules' part of the payload of an entity that has arrived or come back, by a warp or otherwise. What the
// rules let depart otherwise may not begin with Prefix.
func Own(payload []byte) []byte {
	_, own := split(payload)
	return own
}

// split takes a payload apart; without a warp, the ID is empty.
func split(payload []byte) (warp string, own []byte) {
	if text, by := bytes.CutPrefix(payload, []byte(Prefix)); by {
		if id, rest, ok := bytes.Cut(text, []byte(":")); ok {
			return string(id), rest
		}
	}
	return "", payload
}

// Return takes back a message of a warp that another tile's rules could not read. message is false if the return is an
// entity of the game, whose payload the rules read by Own.
func (t *Turn) Return(r tile.Return) (message bool) {
	m, ours := read(r.Entity, r.Payload)
	switch {
	case m == nil:
	case m.Kind == ask: // the tile cannot vote
		t.decide(m.Warp, false)
	default:
		t.send(*m) // until it can be read
	}
	return ours
}

// Done ends the turn: it decides what is due, sends what there is room for, and returns the entities that depart now.
// The rules let each of them depart in this tick, for Part.To, with its Payload of so many bytes of theirs at most.
func (t *Turn) Done(bytes int) (leave []Leave) {
	for _, id := range slices.Sorted(maps.Keys(t.now.leads)) {
		l := t.now.leads[id]
		if len(l.Absent) == 0 {
			t.decide(id, true)
		} else if t.tick >= l.Until {
			t.decide(id, false)
		}
	}
	t.flush()
	for _, id := range slices.Sorted(maps.Keys(t.now.parts)) {
		p := t.now.parts[id]
		for _, h := range p.Held {
			if p.Go && t.room(h.To, len(Prefix)+len(id)+1+bytes) > t.used[h.To] {
				t.used[h.To]++
				leave = append(leave, Leave{h, id})
			}
		}
	}
	for _, l := range leave {
		t.commit(event{Step: left, Warp: l.Warp, Entity: l.Entity})
	}
	return leave
}

// flush sends what there is room for, to each tile in order.
func (t *Turn) flush() {
	sentTo, full := map[fence.TileID]int{}, map[fence.TileID]bool{}
	for _, m := range t.now.queue {
		b, _ := json.Marshal(m)
		if full[m.To] = full[m.To] || t.room(m.To, len(b)) <= t.used[m.To]; full[m.To] {
			continue
		}
		t.used[m.To]++
		sentTo[m.To]++
		t.Departures = append(t.Departures, stream.Departure{To: m.To, Payload: b,
			Entity: Prefix + m.Kind + ":" + m.Warp + ":" + t.tile.String()})
	}
	for _, to := range slices.Sorted(maps.Keys(sentTo)) {
		t.commit(event{Step: sent, Tile: to, N: sentTo[to]})
	}
}

// read reads a message; nil if it is none, or cannot be read.
func read(entity string, payload []byte) (m *message, ours bool) {
	if !strings.HasPrefix(entity, Prefix) {
		return nil, false
	}
	if json.Unmarshal(payload, &m) != nil {
		return nil, true
	}
	return m, true
}

// heard acts on a message of a tile.
func (t *Turn) heard(m *message, from fence.TileID) {
	switch m.Kind {
	case ask:
		t.send(message{Kind: vote, Warp: m.Warp, To: from, Yes: t.join(m, from)})
	case vote:
		l := t.now.leads[m.Warp]
		switch {
		case l == nil || !slices.Contains(l.Absent, from): // decided without it
		case m.Yes:
			t.commit(event{Step: voted, Warp: m.Warp, Tile: from})
		default:
			t.decide(m.Warp, false)
		}
	case tell:
		if p := t.now.parts[m.Warp]; p != nil && !p.Go && p.Leader == from {
			t.commit(event{Step: told, Warp: m.Warp, Yes: m.Yes})
		}
	}
}

// join promises what this tile is asked for, if the rules agree.
func (t *Turn) join(m *message, from fence.TileID) bool {
	a := Ask{Warp: m.Warp}
	var seats []string
	for _, p := range m.Parts {
		if p.From == t.tile {
			a.Leave = append(a.Leave, p)
		} else {
			a.Arrive, seats = append(a.Arrive, p), append(seats, p.Entity)
		}
	}
	if t.now.parts[m.Warp] != nil || slices.ContainsFunc(a.Leave, func(p Part) bool { return t.now.Held(p.Entity) }) ||
		!t.can(a) {
		return false
	}
	t.commit(event{Step: joined, Warp: m.Warp, Tile: from, Parts: a.Leave, Seats: seats})
	return true
}

// decide decides a warp that this tile leads, and tells all that were asked.
func (t *Turn) decide(id string, yes bool) {
	l := t.now.leads[id]
	if l == nil {
		return
	}
	t.commit(event{Step: decided, Warp: id, Yes: yes})
	for _, to := range tilesOf(l.Parts) {
		t.send(message{Kind: tell, Warp: id, To: to, Yes: yes})
	}
}

// send queues a message. One to this tile itself is heard at once.
func (t *Turn) send(m message) {
	if m.To == t.tile {
		t.heard(&m, t.tile)
		return
	}
	b, _ := json.Marshal(m)
	t.commit(event{Step: queued, Message: b})
}

// commit adds an event, and applies it to the draft.
func (t *Turn) commit(e event) {
	b, _ := json.Marshal(e)
	t.Events = append(t.Events, append([]byte(Prefix), b...))
	if err := t.now.apply(&e); err != nil {
		panic("warp: " + strconv.Quote(string(b)) + " cannot follow: " + err.Error()) // of this package's making
	}
}
