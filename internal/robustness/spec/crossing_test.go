package spec

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

// version is a tile after a batch.
type version struct {
	transfer.State
	at    fence.Position
	holds string // the entities in the tile and the coins that each has: "x1y0", sorted
	text  string // says all of it
}

func (v version) described() version {
	b := append([]byte(v.holds), '|', byte(v.at.Epoch))
	v.text = string(append(v.Append(binary.AppendUvarint(b, uint64(v.at.Seq))), ';'))
	return v
}

// has are the entities in the tile.
func (v *version) has() (all []string) {
	for i := 0; i < len(v.holds); i += 2 {
		all = append(all, v.holds[i:i+2])
	}
	return all
}

// with is what the tile holds with more entities, or without some.
func with(holds string, more ...string) string {
	for _, m := range more {
		holds += m
	}
	all := (&version{holds: holds}).has()
	slices.Sort(all)
	return strings.Join(all, "")
}

// place is a tile. What was committed is kept from the oldest state on that it may go back to.
type place struct {
	epoch   fence.Epoch
	journal bool
	log     []version // the last is where the tile is
	sure    int       // every replica has the log up to this one,
	wrote   int       // and the journal up to this one; without a journal, that is the checkpoint
	speech  transfer.Speech
	peers   [4]transfer.Peer // by ID
	asleep  bool             // collected: only the checkpoint is left
}

func (p *place) now() *version { return &p.log[len(p.log)-1] }

// trimmed drops what no fault goes back to.
func (p *place) trimmed() {
	n := min(p.sure, p.wrote)
	p.log, p.sure, p.wrote = p.log[n:], p.sure-n, p.wrote-n
}

// message is a presentation, or an answer.
type message struct {
	from, to fence.TileID
	answer   bool
	transfer.Presented
	mark    stream.TransferID
	refused []stream.Refusal
	text    string
}

func (m *message) describe() message {
	if m.text = fmt.Sprint(m.from, " presents to ", m.to, " what follows ", m.After, ", settled ", m.Settled, ":",
		m.Transfers); m.answer {
		m.text = fmt.Sprint(m.from, " answers ", m.to, " ", m.mark, " ", m.refused)
	}
	return *m
}

// crossing is what may happen in a search.
type crossing struct {
	tiles    int
	entities string // in the first tile, and a coin with each; those after a slash are in the second
	journals string // a letter for each tile: j, or not
	mixed    bool   // tile.Config.MixedBorders
	window   bool   // room for one entity under way with a tile
	wire     int    // messages at a time; 0: one

	crossings, gifts              int // that may begin
	deaths, tails, losses, sleeps int // of an owner; with its master; of all of coordination of a tile; collections
	failures, all                 int // rules that fail with what comes back; losses of all tiles' at once
}

// seas is a state of the tiles, and how it came about.
type seas struct {
	left  crossing // what may still happen
	tiles []place  // by ID, from 1
	wire  []message
	last  *leg
}

// leg is one step on the way to a state.
type leg struct {
	before *leg
	text   string
	args   []any
}

// way is the way to the state, a line for each step.
func (w *seas) way() (all string) {
	for s := w.last; s != nil; s = s.before {
		all = fmt.Sprintf(s.text, s.args...) + "\n" + all
	}
	return all
}

func (w *seas) tile(id fence.TileID) *place { return &w.tiles[id-1] }

func (w *seas) ids() (all []fence.TileID) {
	for i := range w.tiles {
		all = append(all, fence.TileID(i+1))
	}
	return all
}

func (w *seas) clone(text string, args ...any) *seas {
	c := *w
	c.tiles = slices.Clone(w.tiles)
	for i := range c.tiles {
		c.tiles[i].log = slices.Clip(c.tiles[i].log)
	}
	c.wire = slices.Clip(w.wire)
	c.last = &leg{w.last, text, args}
	return &c
}

// key identifies the state.
func (w *seas) key() string {
	l := &w.left
	b := []byte{byte(l.crossings), byte(l.gifts), byte(l.deaths), byte(l.tails), byte(l.losses), byte(l.sleeps),
		byte(l.failures), byte(l.all)}
	lines := make([]string, len(w.wire))
	for i := range w.wire {
		lines[i] = w.wire[i].text
	}
	slices.Sort(lines)
	return string(append(w.ashore(b), strings.Join(lines, "|")...))
}

// ashore adds to a key what the tiles are: from there on a run without faults is the same.
func (w *seas) ashore(b []byte) []byte {
	for i := range w.tiles {
		p := &w.tiles[i]
		b = append(b, byte(p.epoch), byte(p.sure), byte(p.wrote), '0')
		if p.asleep {
			b[len(b)-1] = '1'
		}
		for j := range p.log {
			b = append(b, p.log[j].text...)
		}
		for j := range p.peers {
			if n := &p.peers[j]; n.Answered {
				b = stream.AppendRefusals(stream.AppendTransferID(append(b, byte(j)), n.Mark), n.Refused)
			}
		}
	}
	return b
}

const mostTail = 2

// commit adds a batch to a tile's history; holds is what the game makes of it.
func (w *seas) commit(id fence.TileID, b *stream.Batch, holds string) bool {
	p := w.tile(id)
	if len(p.log) > mostTail+1 {
		return false
	}
	v := *p.now()
	v.at = fence.Position{Epoch: p.epoch, Seq: v.at.Seq + 1}
	var err error
	if v.State, err = v.Fold(v.at, 0, b); err != nil {
		panic(err.Error() + "\n" + w.way())
	}
	v.holds = holds
	p.log = append(p.log, v.described())
	p.speech.Committed(b, v.at, v.State, false)
	return true
}

// begin begins a tile's next owner, at the end of what is left of its history. Every replica confirms that, and it is
// the journal's base.
func (p *place) begin() {
	p.epoch++
	p.asleep = false
	p.sure = len(p.log) - 1
	if p.journal {
		p.wrote = p.sure
	}
	p.trimmed()
	p.speech.Begin(p.now().State, p.journal, false)
	p.peers = [4]transfer.Peer{}
}

// confirms has the replicas, or the journal, have one batch more.
func (p *place) confirms() {
	p.sure++
	p.speech.Confirmed(p.log[p.sure].at)
	p.trimmed()
}

func (p *place) journals() {
	p.wrote++
	p.speech.Journaled(p.log[p.wrote].at)
	p.trimmed()
}

// census says what is wrong with the entities and their coins; empty: nothing. What is decided counts, confirmed or
// not.
func (w *seas) census(entities string) string {
	places, coins := map[string][]string{}, 0
	note := func(name string, payload byte, format string, args ...any) {
		places[name] = append(places[name], fmt.Sprintf(format, args...))
		coins += int(payload - '0')
	}
	for _, id := range w.ids() {
		v := w.tile(id).now()
		for _, x := range v.has() {
			note(x[:1], x[1], "in %d", id)
		}
		for _, peer := range v.Peers() {
			for _, r := range v.With(peer).Parked {
				note(r.Entity, r.Payload[0], "parked in %d", id)
			}
			other := w.tile(peer).now().With(id)
			for _, tr := range v.With(peer).Outbox {
				refused := slices.ContainsFunc(other.Refused, func(r stream.Refusal) bool { return r.ID == tr.ID })
				if refused || tr.ID.Compare(other.Mark) > 0 {
					note(tr.Entity, tr.Payload[0], "from %d to %d", id, peer)
				}
			}
		}
	}
	for _, x := range strings.Split(entities, "") {
		if n := len(places[x]); n != 1 {
			return fmt.Sprintf("%s is in %d places: %v", x, n, places[x])
		}
	}
	if coins != len(entities) {
		return fmt.Sprintf("there are %d coins, and were %d", coins, len(entities))
	}
	return ""
}

// sailed is a search's result.
type sailed struct {
	states int
	whole  bool   // there is no state beyond those
	wrong  string // empty: nothing
}

// sail visits the states that can be reached, those of fewer steps first, until one is wrong, or does not come to rest
// as it should.
func (s crossing) sail(without Rule, most int) sailed {
	w := &seas{left: s, tiles: make([]place, s.tiles)}
	first, second, _ := strings.Cut(s.entities, "/")
	entities := first + second
	for i := range w.tiles {
		holds := ""
		for _, x := range strings.Split([]string{first, second, ""}[i], "") {
			if x != "" {
				holds += x + "1"
			}
		}
		w.tiles[i] = place{journal: strings.HasPrefix(s.journals[min(i, len(s.journals)):], "j"),
			log: []version{version{holds: holds}.described()}}
		w.tiles[i].begin()
	}
	seen, rested, queue := map[string]bool{w.key(): true}, map[string]bool{}, []*seas{w}
	for len(queue) > 0 && len(seen) < most {
		w, queue = queue[0], queue[1:]
		for _, c := range w.next(without) {
			k := c.key()
			if seen[k] {
				continue
			}
			seen[k] = true
			bad := c.census(entities)
			if a := string(c.ashore(nil)); bad == "" && !rested[a] {
				rested[a] = true
				bad = c.rest(entities, without)
			}
			if bad != "" {
				return sailed{states: len(seen), wrong: bad + "\n" + c.way()}
			}
			queue = append(queue, c)
		}
	}
	return sailed{states: len(seen), whole: len(queue) == 0}
}
