package spec

import (
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

// next are the states that can follow.
func (w *seas) next(without Rule) (all []*seas) {
	for _, id := range w.ids() {
		p := w.tile(id)
		all = append(all, w.fails(id, without)...)
		if p.asleep {
			continue
		}
		all = append(all, w.departs(id)...)
		all = append(all, w.gives(id)...)
		if without == NotCalledBack {
			all = append(all, w.callsBack(id)...)
		}
		all = append(all, w.ticks(id, nil, without)...)
		if p.sure < len(p.log)-1 {
			c := w.clone("%d: %v is confirmed", id, p.log[p.sure+1].at)
			c.tile(id).confirms()
			all = append(all, c)
		}
		if p.journal && p.wrote < len(p.log)-1 {
			c := w.clone("%d: %v is in the journal", id, p.log[p.wrote+1].at)
			c.tile(id).journals()
			all = append(all, c)
		}
		if !p.journal && p.wrote < len(p.log)-1 {
			c := w.clone("%d: %v is in the checkpoint", id, p.now().at)
			c.tile(id).wrote = len(p.log) - 1
			c.tile(id).trimmed()
			if w.left.losses+w.left.all > 0 || c.tile(id).sure == len(c.tile(id).log)-1 {
				all = append(all, c)
			}
		}
		for _, peer := range w.ids() {
			if peer != id {
				all = append(all, w.speaks(id, peer, without)...)
			}
		}
	}
	if w.left.all > 0 {
		c := w.clone("all of coordination is lost")
		c.left.all--
		for i := range c.tiles {
			c.tiles[i].goesBack(c.tiles[i].wrote)
		}
		all = append(all, c)
	}
	for i := range w.wire {
		lost := w.clone("lost: %v", w.wire[i].text)
		lost.wire = slices.Delete(slices.Clone(lost.wire), i, i+1)
		all = append(all, lost)
		all = append(all, w.delivered(&w.wire[i], without)...) // and it may come again
	}
	return all
}

// goesBack begins a tile's next owner at an older state.
func (p *place) goesBack(to int) {
	p.log = p.log[: to+1 : to+1]
	p.wrote = min(p.wrote, to)
	jumped := *p.now()
	if jumped.at.Seq += fence.RebaseJump; jumped.at.Seq > 0 {
		p.log = append(p.log[:to:to], jumped.described())
	}
	p.begin()
}

// fails are the deaths of an owner, alone, with its master, and with all of coordination, and the collection of a tile.
func (w *seas) fails(id fence.TileID, without Rule) (all []*seas) {
	p := w.tile(id)
	if w.left.deaths > 0 && !p.asleep {
		c := w.clone("%d: the owner dies", id)
		c.left.deaths--
		c.tile(id).begin()
		all = append(all, c)
	}
	if w.left.tails > 0 && p.sure < len(p.log)-1 {
		c := w.clone("%d: owner and master die", id)
		c.left.tails--
		to := p.sure
		if p.journal {
			to = max(to, p.wrote)
		}
		c.tile(id).goesBack(to)
		all = append(all, c)
	}
	if w.left.losses > 0 && !p.asleep {
		c := w.clone("%d: all of coordination is lost", id)
		c.left.losses--
		c.tile(id).goesBack(p.wrote)
		all = append(all, c)
	}
	rests := p.now().Rests() || without == AwakeUnderWay
	if w.left.sleeps > 0 && !p.asleep && rests && p.sure == len(p.log)-1 && p.wrote == p.sure {
		c := w.clone("%d: sleeps", id)
		c.left.sleeps--
		s := c.tile(id)
		v := *s.now()
		state := v.Append(nil)
		if without == MarksKept {
			state = nil
		}
		var err error
		if v.State, err = transfer.Decode(state); err != nil {
			panic(err)
		}
		s.log, s.asleep, s.speech = []version{v.described()}, true, transfer.Speech{}
		all = append(all, c)
	}
	return all
}

// room is the payload of which one has room in a window, and no two have.
var room = func() int {
	var empty transfer.State
	bytes := 2 << 20
	for empty.Room(2, bytes) == 0 {
		bytes--
	}
	return bytes
}()

func (w *seas) departs(id fence.TileID) (all []*seas) {
	if w.left.crossings == 0 {
		return nil
	}
	v := w.tile(id).now()
	each := 1
	if w.left.window {
		each = room
	}
	for _, peer := range w.ids() {
		for _, x := range v.has() {
			if peer == id || v.Room(peer, each) == 0 {
				continue
			}
			c := w.clone("%d: %s departs for %d", id, x, peer)
			c.left.crossings--
			d := stream.Departure{To: peer, Entity: x[:1], Payload: []byte(x[1:])}
			if !c.commit(id, &stream.Batch{Departures: []stream.Departure{d}}, strings.Replace(v.holds, x, "", 1)) {
				continue
			}
			all = append(all, c)
		}
	}
	return all
}

// gives has an entity give its coin to another one in its tile: a batch of the game's alone.
func (w *seas) gives(id fence.TileID) (all []*seas) {
	here := w.tile(id).now().has()
	for _, x := range here {
		for _, y := range here {
			if w.left.gifts == 0 || x == y || x[1] == '0' {
				continue
			}
			after := slices.DeleteFunc(slices.Clone(here), func(z string) bool { return z == x || z == y })
			c := w.clone("%d: %s gives a coin to %s", id, x, y)
			c.left.gifts--
			after = append(after, x[:1]+string(x[1]-1), y[:1]+string(y[1]+1))
			if c.commit(id, &stream.Batch{}, with("", after...)) {
				all = append(all, c)
			}
		}
	}
	return all
}

// speaks are the messages that a tile can send to another: what an owner does say, and less of it.
func (w *seas) speaks(id, peer fence.TileID, without Rule) (all []*seas) {
	if len(w.wire) >= max(1, w.left.wire) {
		return nil
	}
	p := w.tile(id)
	send := func(m message) {
		m.from, m.to = id, peer
		m = m.describe()
		if slices.ContainsFunc(w.wire, func(o message) bool { return o.text == m.text }) {
			return
		}
		c := w.clone("sent: %v", m.text)
		c.wire = append(c.wire, m)
		all = append(all, c)
	}
	stable := func(broken Rule) *transfer.Channel {
		if without == broken {
			return p.now().With(peer)
		}
		if without == JournalSpoken && p.journal {
			return p.log[p.sure].With(peer)
		}
		return p.speech.Stable.With(peer)
	}
	c, n := stable(PresentsStable), &p.peers[peer]
	if n.Owes(c) {
		send(message{Presented: n.Presents(c, 1<<20)})
		send(message{Presented: n.Presents(c, 0)})
	}
	if len(c.Outbox) > 1 { // without waiting for the answer to what comes before
		send(message{Presented: transfer.Presented{After: c.Outbox[0].ID, Settled: c.Settled,
			Transfers: c.Outbox[1:2]}})
	}
	if c = stable(AnswersStable); !c.Mark.IsZero() {
		send(message{answer: true, mark: c.Mark, refused: c.Refused})
	}
	return all
}

// delivered are the states after a message has come.
func (w *seas) delivered(m *message, without Rule) (all []*seas) {
	p := w.tile(m.to)
	if m.answer {
		if p.asleep {
			return nil
		}
		c := w.clone("heard: %v", m.text)
		n := &c.tile(m.to).peers[m.from]
		n.Hears(m.mark, m.refused, c.tile(m.to).speech.Stable.With(m.from))
		all = append(all, c)
		return append(all, c.ticks(m.to, nil, without)...)
	}
	if !transfer.Admits(w.tile(m.from).journal, p.journal, w.left.mixed || without == BordersAlike) {
		return nil
	}
	if without == DecidedFirst && len(m.Transfers) > 0 { // it settles what it has only presented
		c := w.clone("heard: %v", m.text)
		c.tile(m.from).peers[m.to] = transfer.Peer{Answered: true, Mark: m.Transfers[0].ID}
		all = append(all, c)
	}
	if p.asleep {
		w = w.clone("%d: wakes", m.to)
		w.tile(m.to).begin()
	}
	return append(all, w.ticks(m.to, m, without)...)
}

// ticks are the states after a tick that decides what was presented, and what else there is to decide: the rules take,
// refuse or leave each arrival, and fail with what comes back.
func (w *seas) ticks(id fence.TileID, m *message, without Rule) (all []*seas) {
	v := w.tile(id).now()
	shown := map[fence.TileID]transfer.Presented{}
	if m != nil {
		shown[m.from] = m.Presented
	}
	peers := w.tile(id).peers
	heard := func(peer fence.TileID) *transfer.Peer { return &peers[peer] }
	f, _ := v.Offer(shown, heard, nil, 0)
	if m != nil {
		f = w.broken(v, m, f, without)
	}
	if f.Empty() {
		return nil
	}
	for n := f.Items(); n >= 0; n-- { // the first of them
		part := f.First(n)
		if n == f.Items() {
			part = f
		}
		for failing := range min(w.left.failures, len(part.Returns)) + 1 {
			for refused := range 1 << len(part.Arrivals) {
				if c := w.decides(id, part, failing, refused, without); c != nil {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// decides commits a tick in which the rules fail with the first that come back, and refuse some of the arrivals.
func (w *seas) decides(id fence.TileID, f *transfer.Offer, failing, refused int, without Rule) *seas {
	holds := w.tile(id).now().holds
	var verdicts []string
	for j := range f.Arrivals {
		a := &f.Arrivals[j]
		if a.Poison = ""; refused&(1<<j) != 0 {
			verdicts = append(verdicts, "full")
			continue
		}
		verdicts = append(verdicts, "")
		holds = with(holds, a.Entity+string(a.Payload))
	}
	for j := range f.Returns {
		if f.Returns[j].Poison = ""; j < failing {
			f.Returns[j].Poison = "the rules fail"
		} else {
			holds = with(holds, f.Returns[j].Entity+string(f.Returns[j].Payload))
		}
	}
	var b stream.Batch
	if _, err := f.Decide(verdicts, &b); err != nil {
		panic(err)
	}
	for i := range b.Settlements {
		switch s := &b.Settlements[i]; without {
		case ParkedKept:
			s.Parked = nil
		case RetakenLeaves:
			s.Retaken = nil
		}
	}
	for i := range b.Decisions { // where a rule is left out, it may have been decided
		if d := &b.Decisions[i]; d.Mark.Compare(w.tile(id).now().With(d.From).Mark) <= 0 {
			d.Mark, d.Refused = stream.TransferID{}, nil
		}
	}
	if len(b.Decisions)+len(b.Settlements) == 0 {
		return nil
	}
	c := w.clone("%d: decides %+v %+v", id, b.Decisions, b.Settlements)
	c.left.failures -= failing
	if !c.commit(id, &b, holds) {
		return nil
	}
	return c
}

// broken is the offer where a rule is left out.
func (w *seas) broken(v *version, m *message, f *transfer.Offer, without Rule) *transfer.Offer {
	c := v.With(m.from)
	_, joins := c.Fresh(m.After, m.Transfers)
	shown := m.Presented
	switch {
	case without == DecidedOnce && len(f.Arrivals) == 0, without == FollowsMark && !joins:
		shown.After = c.Mark
	case without == RefusalsKept && len(c.Refused) > 0:
		shown.Settled = c.Mark
	default:
		return f
	}
	peers := transfer.Peer{}
	f, _ = v.Offer(map[fence.TileID]transfer.Presented{m.from: shown}, func(fence.TileID) *transfer.Peer {
		return &peers
	}, nil, 0)
	return f
}

// callsBack is what tiles do not do: one takes back by its own word what is under way.
func (w *seas) callsBack(id fence.TileID) (all []*seas) {
	v := w.tile(id).now()
	for _, peer := range v.Peers() {
		if box := v.With(peer).Outbox; len(box) > 0 {
			c := w.clone("%d: %s is called back", id, box[0].Entity)
			s := stream.Settlement{To: peer, UpTo: box[0].ID}
			if c.commit(id, &stream.Batch{Settlements: []stream.Settlement{s}},
				with(v.holds, box[0].Entity+string(box[0].Payload))) {
				all = append(all, c)
			}
		}
	}
	return all
}

// rest plays without faults until nothing is left to do, and says what is wrong then.
func (w *seas) rest(entities string, without Rule) string {
	c := w.clone("comes to rest")
	c.wire = nil
	for range 12 {
		if !c.settles(without) {
			break
		}
	}
	if bad := c.census(entities); bad != "" {
		return "at rest, " + bad
	}
	for _, id := range c.ids() {
		v := c.tile(id).now()
		if v.UnderWay() > 0 && (w.left.mixed || !c.unlike()) {
			return "at rest, something is under way still"
		}
		for _, peer := range v.Peers() {
			// A new owner with nothing to present does not say what was settled, so that it wakes no tile for it: the
			// refusal is forgotten with what departs next.
			settled := c.tile(peer).now().With(id).Settled
			if all := v.With(peer).Refused; len(all) > 0 && all[len(all)-1].ID.Compare(settled) > 0 {
				return "at rest, a refusal is not settled"
			}
		}
	}
	return ""
}

// unlike says that there are tiles with a journal, and tiles without.
func (w *seas) unlike() bool { return w.tiles[0].journal != w.tiles[1].journal }

// settles plays one round without faults, and reports whether anything has happened.
func (w *seas) settles(without Rule) (went bool) {
	play := func(id fence.TileID, m *message) {
		w.tile(id).log = w.tile(id).log[len(w.tile(id).log)-1:]
		w.tile(id).sure, w.tile(id).wrote = 0, 0
		if next := w.ticks(id, m, without); len(next) > 0 {
			*w, went = *next[0], true // the rules take all, and fail with nothing
		}
		p := w.tile(id)
		p.speech.Confirmed(p.now().at)
		p.speech.Journaled(p.now().at)
		p.log, p.sure, p.wrote = p.log[len(p.log)-1:], 0, 0
	}
	for _, id := range w.ids() {
		if w.tile(id).asleep {
			continue
		}
		play(id, nil)
		for _, peer := range w.ids() {
			c, n := w.tile(id).speech.Stable.With(peer), &w.tile(id).peers[peer]
			if peer == id || !n.Owes(c) ||
				!transfer.Admits(w.tile(id).journal, w.tile(peer).journal, w.left.mixed || without == BordersAlike) {
				continue
			}
			if went = true; w.tile(peer).asleep {
				w.tile(peer).begin()
			}
			play(peer, &message{from: id, to: peer, Presented: n.Presents(c, 1<<20)})
			a := w.tile(peer).speech.Stable.With(id)
			w.tile(id).peers[peer].Hears(a.Mark, a.Refused, w.tile(id).speech.Stable.With(peer))
			play(id, nil)
		}
	}
	return went
}
