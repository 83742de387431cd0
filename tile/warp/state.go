package warp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
)

// Part is an entity of a warp.
type Part struct {
	Entity   string
	From, To fence.TileID // two tiles, not the same
}

// Prefix begins the names under which messages of warps cross borders, and their events. No entity and no event of the
// game may begin so.
const Prefix = "warp:"

// State is a tile's part in all warps. The zero value is ready. Apply changes it, and nothing else does.
type State struct {
	leads map[string]*lead
	parts map[string]*part
	queue []message // that wait for room, those for each tile in order
	tally Tally
}

// lead is a warp that this tile leads and has not decided.
type lead struct {
	Parts  []Part
	Until  fence.Tick
	Absent []fence.TileID `json:",omitempty"` // those that have not voted
}

// part is what this tile has promised for a warp.
type part struct {
	Leader fence.TileID
	Held   []Part   `json:",omitempty"` // that leave from here
	Seats  []string `json:",omitempty"` // of entities that come here
	Go     bool     // it is decided: what is held leaves, what has a seat comes
}

// Empty reports whether the tile has no part in any warp.
func (s *State) Empty() bool { return len(s.leads)+len(s.parts)+len(s.queue) == 0 }

// Held reports whether an entity waits for a decision, or to depart by one: the rules let it do nothing else.
func (s *State) Held(entity string) bool {
	for _, p := range s.parts {
		if slices.ContainsFunc(p.Held, func(h Part) bool { return h.Entity == entity }) {
			return true
		}
	}
	return false
}

// Seats is how many places are kept for entities that come. The rules give them to no other.
func (s *State) Seats() (n int) {
	for _, p := range s.parts {
		n += len(p.Seats)
	}
	return n
}

// event is a step. Its fields are those of the step that it names.
type event struct {
	Step    string          `json:"step"`
	Warp    string          `json:"warp,omitempty"`
	Parts   []Part          `json:"parts,omitempty"`
	Until   fence.Tick      `json:"until,omitempty"`
	Tile    fence.TileID    `json:"tile,omitempty"` // that leads, has voted, or is told
	Seats   []string        `json:"seats,omitempty"`
	Yes     bool            `json:"yes,omitempty"`
	Entity  string          `json:"entity,omitempty"`
	Message json.RawMessage `json:"message,omitempty"`
	N       int             `json:"n,omitempty"`
}

// The steps.
const (
	began   = "began"   // this tile leads a warp
	voted   = "voted"   // a tile has voted yes, to this one that leads
	decided = "decided" // by this tile, that leads
	joined  = "joined"  // this tile holds, or keeps seats
	told    = "told"    // this tile was told what is decided
	left    = "left"    // a held entity has departed
	came    = "came"    // an entity has taken its seat
	queued  = "queued"  // a message waits for room
	sent    = "sent"    // the first messages for a tile have departed
)

// Apply folds an event; ours is false if it is not one of a warp. The error says what of it does not follow the state.
func (s *State) Apply(b []byte) (ours bool, err error) {
	text, ours := strings.CutPrefix(string(b), Prefix)
	if !ours {
		return false, nil
	}
	var e event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return true, fmt.Errorf("warp: %w", err)
	}
	return true, s.apply(&e)
}

func (s *State) apply(e *event) error {
	ok := false
	switch e.Step {
	case began, voted, decided:
		ok = s.led(e, s.leads[e.Warp])
	case joined:
		if ok = s.parts[e.Warp] == nil; ok {
			if s.parts == nil {
				s.parts = map[string]*part{}
			}
			s.parts[e.Warp] = &part{Leader: e.Tile, Held: e.Parts, Seats: e.Seats}
		}
	case told, left, came:
		ok = s.moved(e, s.parts[e.Warp])
	case queued, sent:
		ok = s.queues(e)
	}
	if !ok {
		return fmt.Errorf("warp %q: %q does not follow", e.Warp, e.Step)
	}
	return nil
}

// led folds a step of a warp that this tile leads.
func (s *State) led(e *event, l *lead) bool {
	switch {
	case e.Step == began && l == nil:
		if s.leads == nil {
			s.leads = map[string]*lead{}
		}
		s.leads[e.Warp] = &lead{Parts: e.Parts, Until: e.Until, Absent: tilesOf(e.Parts)}
		return true
	case e.Step == voted && l != nil && slices.Contains(l.Absent, e.Tile):
		l.Absent = slices.DeleteFunc(slices.Clone(l.Absent), func(id fence.TileID) bool { return id == e.Tile })
		return true
	case e.Step == decided && l != nil:
		s.tally.decide(e.Warp, l.Parts, e.Yes)
		delete(s.leads, e.Warp)
		return true
	}
	return false
}

// queues folds what becomes of messages.
func (s *State) queues(e *event) bool {
	if e.Step == queued {
		var m message
		if json.Unmarshal(e.Message, &m) != nil {
			return false
		}
		s.queue = append(slices.Clip(s.queue), m)
		return true
	}
	n := 0
	s.queue = slices.DeleteFunc(slices.Clone(s.queue), func(m message) bool {
		gone := m.To == e.Tile && n < e.N
		if gone {
			n++
		}
		return gone
	})
	return n == e.N
}

// moved folds what follows a decision in a tile that has a part.
func (s *State) moved(e *event, p *part) bool {
	switch {
	case p == nil, e.Step == told && p.Go, e.Step == left && !p.Go:
		return false
	case e.Step == told:
		p.Go = e.Yes
		if !e.Yes {
			p.Held, p.Seats = nil, nil
		}
	case e.Step == left:
		s.tally.Leave -= number(e.Warp, e.Entity)
		p.Held = slices.DeleteFunc(slices.Clone(p.Held), func(h Part) bool { return h.Entity == e.Entity })
	case e.Step == came:
		s.tally.Come -= number(e.Warp, e.Entity)
		p.Seats = slices.DeleteFunc(slices.Clone(p.Seats), func(name string) bool { return name == e.Entity })
	}
	if len(p.Held)+len(p.Seats) == 0 {
		delete(s.parts, e.Warp)
	}
	return true
}

// tilesOf are the tiles that a warp's entities leave or go to, ascending.
func tilesOf(parts []Part) (all []fence.TileID) {
	for i := range parts {
		all = append(all, parts[i].From, parts[i].To)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// clone is a copy that a turn changes.
func (s *State) clone() (c State) {
	c.queue, c.tally = s.queue, s.tally
	if len(s.leads) > 0 {
		c.leads = maps.Clone(s.leads)
		for id, l := range c.leads {
			copied := *l
			c.leads[id] = &copied
		}
	}
	if len(s.parts) > 0 {
		c.parts = maps.Clone(s.parts)
		for id, p := range c.parts {
			copied := *p
			c.parts[id] = &copied
		}
	}
	return c
}

// snapshot is the encoded form of a State.
type snapshot struct {
	Leads map[string]*lead `json:"leads,omitempty"`
	Parts map[string]*part `json:"parts,omitempty"`
	Queue []message        `json:"queue,omitempty"`
	Tally Tally            `json:"tally,omitzero"`
}

// MarshalJSON implements json.Marshaler: a State is a part of the game's snapshot.
func (s *State) MarshalJSON() ([]byte, error) {
	return json.Marshal(snapshot{s.leads, s.parts, s.queue, s.tally})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *State) UnmarshalJSON(b []byte) error {
	var read snapshot
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	s.leads, s.parts, s.queue, s.tally = read.Leads, read.Parts, read.Queue, read.Tally
	return nil
}
