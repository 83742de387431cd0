package transfer

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// The model searches every order of the steps of a few tiles that exchange a few entities: departures, confirmations,
// messages that are lost, late and repeated, owners that die, owners that die with their master, so that what was not
// confirmed is lost, and rules that fail with what comes back, for a while. The channels are the ones that tiles use.
// In every state each entity is in one place.

// version is a tile after a batch.
type version struct {
	State
	at    fence.Position
	holds string // the entities in the tile, one letter each, sorted
}

// modelTile is a tile: what is confirmed, and what was committed since.
type modelTile struct {
	epoch     fence.Epoch
	confirmed version
	tail      []version
}

func (t *modelTile) tip() *version {
	if n := len(t.tail); n > 0 {
		return &t.tail[n-1]
	}
	return &t.confirmed
}

// message is a presentation, or an answer.
type message struct {
	from, to fence.TileID
	answer   bool
	after    stream.TransferID // of a presentation; of an answer the mark
	settled  stream.TransferID
	entries  []stream.Transfer
	refused  []stream.Refusal
	text     string // says all of it
}

func (m *message) String() string { return m.text }

func (m *message) describe() string {
	kind := "presents"
	if m.answer {
		kind = "answers"
	}
	return fmt.Sprint(m.from, kind, m.to, m.after, m.settled, m.entries, m.refused)
}

type world struct {
	tiles     []modelTile // by ID, from 1
	wire      []message
	crossings int   // that may begin
	deaths    int   // that may happen
	failures  int   // of rules with what comes back
	last      *step // how it came here
}

// mutant is a rule that is left out.
type mutant string

const (
	noMutant             mutant = ""
	presentUnconfirmed   mutant = "a departure is presented before it is confirmed"
	answerUnconfirmed    mutant = "a decision is answered before it is confirmed"
	noDedupe             mutant = "what was decided is decided again"
	noPredecessor        mutant = "what does not follow the mark is decided"
	refusalsForgotten    mutant = "refusals are forgotten before they are settled"
	settledBeforeDecided mutant = "a departure is settled when it was presented"
	failedForgotten      mutant = "what the rules fail with is settled and not parked"
	retakenAgain         mutant = "what was parked stays so when it is taken back"
)

// step is one step on the way to a state.
type step struct {
	before *step
	text   string
	args   []any
}

// trace is the way to a state, a line for each step.
func (w *world) trace() (all string) {
	for s := w.last; s != nil; s = s.before {
		all = fmt.Sprintf(s.text, s.args...) + "\n" + all
	}
	return all
}

func (w *world) tile(id fence.TileID) *modelTile { return &w.tiles[id-1] }

func (w *world) clone(text string, args ...any) *world {
	c := *w
	c.tiles = slices.Clone(w.tiles)
	for i := range c.tiles {
		c.tiles[i].tail = slices.Clone(c.tiles[i].tail)
	}
	c.wire = slices.Clone(w.wire)
	c.last = &step{w.last, text, args}
	return &c
}

// key identifies the state.
func (w *world) key() string {
	b := []byte{byte(w.crossings), byte(w.deaths), byte(w.failures)}
	add := func(v *version) {
		b = binary.AppendUvarint(append(append(b, v.holds...), '|', byte(v.at.Epoch)), uint64(v.at.Seq))
		b = append(v.Append(b), '|')
	}
	for i := range w.tiles {
		t := &w.tiles[i]
		b = append(b, byte(t.epoch), byte(len(t.tail)))
		add(&t.confirmed)
		for j := range t.tail {
			add(&t.tail[j])
		}
	}
	lines := make([]string, len(w.wire))
	for i := range w.wire {
		lines[i] = w.wire[i].text
	}
	slices.Sort(lines)
	return string(append(b, strings.Join(lines, "|")...))
}

const mostTail, mostWire = 2, 2

// commit adds a batch to a tile's history; holds is what the game makes of it.
func (w *world) commit(t *testing.T, id fence.TileID, b *stream.Batch, holds string) bool {
	m := w.tile(id)
	if len(m.tail) == mostTail {
		return false
	}
	v := *m.tip()
	v.at = fence.Position{Epoch: m.epoch, Seq: v.at.Seq + 1}
	var err error
	v.State, err = v.Fold(v.at, 0, b)
	if err != nil {
		require.NoError(t, err, w.trace())
	}
	v.holds = holds
	m.tail = append(m.tail, v)
	return true
}

func with(holds string, more ...string) string {
	all := strings.Split(holds+strings.Join(more, ""), "")
	slices.Sort(all)
	return strings.Join(all, "")
}

// census says what is wrong with the entities; empty: nothing. What is decided counts, confirmed or not.
func (w *world) census(entities string) string {
	for _, x := range strings.Split(entities, "") {
		var places []string
		for id := range fence.TileID(len(w.tiles)) {
			v := w.tile(id + 1).tip()
			places = append(places, slices.Repeat([]string{fmt.Sprint("in ", id+1)}, strings.Count(v.holds, x))...)
			for _, peer := range v.Peers() {
				for _, r := range v.With(peer).Parked {
					if r.Entity == x {
						places = append(places, fmt.Sprint("parked in ", id+1))
					}
				}
				other := w.tile(peer).tip().With(id + 1)
				for _, tr := range v.With(peer).Outbox {
					refused := slices.ContainsFunc(other.Refused, func(r stream.Refusal) bool { return r.ID == tr.ID })
					if tr.Entity == x && (refused || tr.ID.Compare(other.Mark) > 0) {
						places = append(places, fmt.Sprintf("from %d to %d", id+1, peer))
					}
				}
			}
		}
		if len(places) != 1 {
			return fmt.Sprintf("%s is in %d places: %v", x, len(places), places)
		}
	}
	return ""
}

// next are the states that can follow.
func (w *world) next(t *testing.T, without mutant) (all []*world) {
	for id := fence.TileID(1); int(id) <= len(w.tiles); id++ {
		all = append(all, w.departs(t, id)...)
		all = append(all, w.retakes(t, id, without)...)
		all = append(all, w.fails(id)...)
		if len(w.tile(id).tail) > 0 {
			c := w.clone("%d: %v is confirmed", id, w.tile(id).tail[0].at)
			m := c.tile(id)
			m.confirmed, m.tail = m.tail[0], m.tail[1:]
			all = append(all, c)
		}
		for peer := fence.TileID(1); int(peer) <= len(w.tiles); peer++ {
			if peer != id {
				all = append(all, w.speaks(id, peer, without)...)
			}
		}
	}
	for i := range w.wire {
		lost := w.clone("lost: %v", &w.wire[i])
		lost.wire = slices.Delete(lost.wire, i, i+1)
		all = append(all, lost)
		all = append(all, w.delivered(t, i, without)...) // and it may come again
	}
	return all
}

func (w *world) departs(t *testing.T, id fence.TileID) (all []*world) {
	v := w.tile(id).tip()
	for peer := fence.TileID(1); int(peer) <= len(w.tiles) && w.crossings > 0; peer++ {
		for _, x := range strings.Split(v.holds, "") {
			if peer == id || x == "" {
				continue
			}
			c := w.clone("%d: %s departs for %d", id, x, peer)
			c.crossings--
			if c.commit(t, id, &stream.Batch{Departures: []stream.Departure{{To: peer, Entity: x}}},
				strings.Replace(v.holds, x, "", 1)) {
				all = append(all, c)
			}
		}
	}
	return all
}

// retakes are the states after the rules have taken back what was parked: all of it, or the first.
func (w *world) retakes(t *testing.T, id fence.TileID, without mutant) (all []*world) {
	v := w.tile(id).tip()
	for _, peer := range v.Peers() {
		parked := v.With(peer).Parked
		for n := 1; n <= len(parked); n++ {
			holds, s := v.holds, stream.Settlement{To: peer}
			for _, r := range parked[:n] {
				holds, s.Retaken = with(holds, r.Entity), append(s.Retaken, r.ID)
			}
			if without == retakenAgain {
				s.Retaken = nil
			}
			c := w.clone("%d: takes back %d that were parked", id, n)
			if c.commit(t, id, &stream.Batch{Settlements: []stream.Settlement{s}}, holds) {
				all = append(all, c)
			}
		}
	}
	return all
}

// fails are the deaths of an owner, alone and with its master.
func (w *world) fails(id fence.TileID) (all []*world) {
	for _, tailLost := range []bool{false, true} {
		if w.deaths == 0 || tailLost && len(w.tile(id).tail) == 0 {
			continue
		}
		c := w.clone("%d: the owner dies, tail lost: %v", id, tailLost)
		c.deaths--
		m := c.tile(id)
		m.epoch++
		if !tailLost {
			m.confirmed = *m.tip()
		}
		m.tail = nil
		all = append(all, c)
	}
	return all
}

// speaks are the messages that a tile can send to another.
func (w *world) speaks(id, peer fence.TileID, without mutant) (all []*world) {
	if len(w.wire) == mostWire {
		return nil
	}
	send := func(m message) {
		m.text = m.describe()
		if slices.ContainsFunc(w.wire, func(o message) bool { return o.String() == m.String() }) {
			return
		}
		c := w.clone("sent: %v", &m)
		c.wire = append(c.wire, m)
		all = append(all, c)
	}
	v, mark := &w.tile(id).confirmed, w.tile(peer).confirmed.With(id).Mark
	if without == presentUnconfirmed {
		v = w.tile(id).tip()
	}
	c := v.With(peer)
	if waiting := c.Waiting(c.Settled, 1<<20); len(waiting) > 0 {
		send(message{from: id, to: peer, after: c.Settled, settled: c.Settled, entries: waiting})
		send(message{from: id, to: peer, after: c.Settled, settled: c.Settled, entries: waiting[:1]})
	}
	if waiting := c.Waiting(mark, 1<<20); len(waiting) > 0 && mark != c.Settled {
		send(message{from: id, to: peer, after: mark, settled: c.Settled, entries: waiting})
	}
	if len(c.Outbox) > 1 { // without waiting for the answer to what comes before
		send(message{from: id, to: peer, after: c.Outbox[0].ID, settled: c.Settled, entries: c.Outbox[1:2]})
	}
	if !c.Settled.IsZero() {
		send(message{from: id, to: peer, after: c.Settled, settled: c.Settled})
	}
	if v = &w.tile(id).confirmed; without == answerUnconfirmed {
		v = w.tile(id).tip()
	}
	if c = v.With(peer); !c.Mark.IsZero() {
		send(message{from: id, to: peer, answer: true, after: c.Mark, refused: c.Refused})
	}
	return all
}

// delivered are the states after a message has come: the decisions that a tile can take of what is presented to it, or
// what it settles by an answer.
func (w *world) delivered(t *testing.T, i int, without mutant) (all []*world) {
	m := w.wire[i]
	v := w.tile(m.to).tip()
	channel := v.With(m.from)
	if m.answer || without == settledBeforeDecided && len(channel.Outbox) > 0 {
		mark := m.after
		if !m.answer {
			mark = channel.Outbox[0].ID
		}
		upTo, returns := channel.Decided(mark, m.refused, 1)
		if upTo.IsZero() {
			return nil
		}
		for failures := range min(w.failures, len(returns)) + 1 { // the rules fail with the first
			holds, s := v.holds, stream.Settlement{To: m.from, UpTo: upTo}
			for i, r := range returns {
				if i >= failures {
					holds = with(holds, r.Entity)
				} else if without != failedForgotten {
					s.Parked = append(s.Parked, stream.Refusal{ID: r.ID, Reason: "the rules fail"})
				}
			}
			c := w.clone("%d: settles up to %v by %v, %d parked", m.to, upTo, &m, failures)
			c.failures -= failures
			if c.commit(t, m.to, &stream.Batch{Settlements: []stream.Settlement{s}}, holds) {
				all = append(all, c)
			}
		}
		return all
	}
	require.NoError(t, Check(m.to, m.after, m.entries))
	fresh, ok := channel.Fresh(m.after, m.entries)
	forget := channel.Forgets(m.settled)
	switch {
	case without == noDedupe:
		fresh, ok = m.entries, true
	case without == noPredecessor && !ok:
		fresh, ok = m.entries, true
	case without == refusalsForgotten && len(channel.Refused) > 0:
		forget = channel.Mark
	}
	if !ok || len(fresh) == 0 && forget.IsZero() {
		return nil
	}
	for refused := range 1 << len(fresh) {
		d := stream.Decision{From: m.from, Forget: forget}
		holds := v.holds
		for j := range fresh {
			d.Mark = fresh[j].ID
			if refused&(1<<j) != 0 {
				d.Refused = append(d.Refused, stream.Refusal{ID: fresh[j].ID, Reason: "full"})
			} else {
				holds = with(holds, fresh[j].Entity)
			}
		}
		if d.Mark.Compare(channel.Mark) < 0 { // only a mutant's
			continue
		}
		if d.Mark == channel.Mark {
			d.Mark, d.Refused = stream.TransferID{}, nil
		}
		c := w.clone("%d: decides %+v by %v", m.to, d, &m)
		if c.commit(t, m.to, &stream.Batch{Decisions: []stream.Decision{d}}, holds) {
			all = append(all, c)
		}
	}
	return all
}

// search visits the states that can be reached from one, and returns the first that is wrong.
func search(t *testing.T, w *world, entities string, without mutant, most int) (states int, wrong string) {
	seen, queue := map[string]bool{w.key(): true}, []*world{w}
	for len(queue) > 0 && len(seen) < most {
		w, queue = queue[0], queue[1:]
		for _, c := range w.next(t, without) {
			if k := c.key(); !seen[k] {
				seen[k] = true
				if bad := c.census(entities); bad != "" {
					return len(seen), bad + "\n" + c.trace()
				}
				queue = append(queue, c)
			}
		}
	}
	return len(seen), ""
}

// begin is a world of tiles, of which the first holds the entities.
func begin(tiles int, entities string, crossings, deaths, failures int) *world {
	w := &world{tiles: make([]modelTile, tiles), crossings: crossings, deaths: deaths, failures: failures}
	for i := range w.tiles {
		w.tiles[i].epoch = 1
	}
	w.tiles[0].confirmed.holds = entities
	return w
}

func TestEachEntityIsInOnePlace(t *testing.T) {
	for name, w := range map[string]*world{
		"one entity there and back": begin(2, "x", 2, 1, 0),
		"two entities":              begin(2, "xy", 2, 1, 0),
		"three tiles":               begin(3, "x", 2, 1, 0),
		"two deaths":                begin(2, "x", 1, 2, 0),
		"failing rules":             begin(2, "x", 2, 1, 1),
	} {
		t.Run(name, func(t *testing.T) {
			states, wrong := search(t, w, w.tiles[0].confirmed.holds, noMutant, 60_000)
			assert.Empty(t, wrong)
			t.Log(states, "states")
		})
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	for _, without := range []mutant{presentUnconfirmed, answerUnconfirmed, noDedupe, noPredecessor, refusalsForgotten,
		settledBeforeDecided, failedForgotten, retakenAgain} {
		t.Run(string(without), func(t *testing.T) {
			_, wrong := search(t, begin(2, "xy", 2, 1, failuresFor(without)), "xy", without, 100_000)
			assert.NotEmpty(t, wrong, "the model does not see it")
		})
	}
}

func failuresFor(without mutant) int {
	if without == failedForgotten || without == retakenAgain {
		return 1
	}
	return 0
}
