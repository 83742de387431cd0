package plan

import (
	"crypto/rand"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// deskTile is one tile under one epoch. The desk's lock guards it.
type deskTile struct {
	id       fence.TileID
	epoch    fence.Epoch
	list     bool // the next turn lists what is outstanding
	entities map[string]*entity
	shares   map[string]int // entities by the requester of their request
	asks     []string       // entities with a request that the store has not answered to
	seen     []Receipt      // of answers that the store may still have
	turned   time.Time      // when the last turn was taken
	looked   time.Time      // when a turn listed last
	took     time.Duration  // from a request to its plan, averaged over the last ones
}

// entity is one that waits for a plan.
type entity struct {
	request  Request
	since    time.Time
	asking   bool     // the store has not answered to the request
	deciding bool     // the answer is here
	next     *Request // of a player, to be sent when this one is answered
}

// answered is an answer that is news, with its request.
type answered struct {
	request Request
	since   time.Time
	kind    AnswerKind
	body    []byte
}

func newDeskTile(id fence.TileID, epoch fence.Epoch) *deskTile {
	return &deskTile{id: id, epoch: epoch, list: true, entities: map[string]*entity{}, shares: map[string]int{},
		took: turnLatest * turnPart}
}

// A tile that ticks fast does not turn with each tick: a turn takes the store's time, commits to the same node wait for
// it, and calls take seconds. A plan of the background tier may come a tenth later than it could. turnLatest is below
// half a second so that a tile that ticks at 2 Hz still turns with each tick. A player's request is sent with the next
// tick, and so are many requests or receipts.
const (
	turnSoonest = 100 * time.Millisecond // and while a player waits
	turnLatest  = 450 * time.Millisecond
	turnPart    = 10 // of the time that a plan takes
	turnMany    = 16 // requests and receipts
)

// listAfter is how long a tile may wait for plans without looking whether the store still has all the requests. Most
// losses show at once, by their number.
const listAfter = time.Minute

// due reports whether there is anything to do at the store now.
func (t *deskTile) due(now time.Time) bool {
	switch {
	case t.list || len(t.asks)+len(t.seen) >= turnMany:
		return true
	case len(t.entities) == 0 && len(t.seen) == 0:
		return false
	}
	every := min(max(t.took/turnPart, turnSoonest), turnLatest)
	for _, e := range t.entities {
		if e.request.Tier == Player {
			if e.asking {
				return true
			}
			every = turnSoonest
		}
	}
	return now.Sub(t.turned) >= every
}

// ask takes a request into the next turn, if the entity has none in flight, and the tile and the requester have room.
func (t *deskTile) ask(r Request, stats *DeskStats) bool {
	e := t.entities[r.Entity]
	if e != nil && r.Tier != Player {
		return false
	}
	if e == nil && len(t.entities) >= MaxOutstanding || r.Requester != "" && t.shares[r.Requester] >= MaxOfRequester &&
		(e == nil || e.request.Requester != r.Requester) {
		stats.Full++
		return false
	}
	r.ID = rand.Text()
	if e == nil {
		t.add(&entity{request: r, since: time.Now(), asking: true})
		t.asks = append(t.asks, r.Entity)
		return true
	}
	e.next = &r
	if !e.deciding && !e.asking && e.request.Tier == Background && !e.request.Running {
		t.promote(e)
	}
	return true
}

// add and remove keep account of the requesters' shares.
func (t *deskTile) add(e *entity) {
	t.entities[e.request.Entity] = e
	t.count(e.request.Requester, 1)
}

func (t *deskTile) remove(name string) {
	if e := t.entities[name]; e != nil {
		t.count(e.request.Requester, -1)
		delete(t.entities, name)
	}
}

func (t *deskTile) count(requester string, n int) {
	if t.shares[requester] += n; t.shares[requester] == 0 {
		delete(t.shares, requester)
	}
}

// replace gives an entity another request.
func (t *deskTile) replace(e *entity, r Request) {
	t.count(e.request.Requester, -1)
	e.request = r
	t.count(r.Requester, 1)
}

// promote asks the store for the player's request that waits behind another one: it takes its place, unless that runs.
func (t *deskTile) promote(e *entity) {
	t.replace(e, *e.next)
	e.next, e.asking = nil, true
	t.asks = append(t.asks, e.request.Entity)
}

// turn is the tile's next one. What it takes stays until the reply is there.
func (t *deskTile) turn(now time.Time) Turn {
	t.turned = now
	n := Turn{Tile: t.id, Epoch: t.epoch, List: t.list || now.Sub(t.looked) >= listAfter,
		Seen: t.seen[:min(len(t.seen), MaxOutstanding)]}
	for _, name := range t.asks[:min(len(t.asks), MaxAsks)] {
		n.Ask = append(n.Ask, t.entities[name].request)
	}
	return n
}

// settle reads the reply to a turn and returns the answers that are news.
func (t *deskTile) settle(turn *Turn, r *TurnReply, stats *DeskStats) []*answered {
	t.seen, t.list = t.seen[len(turn.Seen):], t.list && !turn.List
	t.asks = t.asks[len(turn.Ask):]
	for i, reply := range r.Asked {
		t.asked(&turn.Ask[i], reply, stats)
	}
	if turn.List {
		t.looked = t.turned
		t.listed(r, stats)
	}
	var news []*answered
	for i := range r.Answers {
		if a := t.answer(&r.Answers[i], stats); a != nil {
			news = append(news, a)
			t.took += (time.Since(a.since) - t.took) / 8
		}
	}
	waiting := 0
	for _, e := range t.entities {
		if !e.asking && !e.deciding {
			waiting++
		}
	}
	if waiting+len(r.Answers) != r.InStore {
		t.list = true // the store has lost something, or has what this desk does not know
	}
	return news
}

// asked reads the answer to a request.
func (t *deskTile) asked(r *Request, reply AskReply, stats *DeskStats) {
	e := t.entities[r.Entity]
	e.asking = false
	switch {
	case reply.ID == "":
		stats.Full++
		t.remove(r.Entity)
		return
	case reply.Taken:
		stats.Asked++
	case r.Tier == Player && e.next == nil:
		later := *r
		e.next = &later
	}
	e.request.ID, e.request.Running = reply.ID, !reply.Taken
	if e.next != nil && reply.Taken && r.Tier == Background {
		t.promote(e) // a player has asked meanwhile
	}
}

// listed takes over what the store says is in flight.
func (t *deskTile) listed(r *TurnReply, stats *DeskStats) {
	inStore := map[string]bool{}
	for i := range r.Listed {
		l := r.Listed[i]
		inStore[l.Entity] = true
		if e := t.entities[l.Entity]; e == nil {
			t.add(&entity{request: l, since: time.Now().Add(-l.Age)})
		} else if !e.asking && !e.deciding {
			t.replace(e, l)
			e.since = time.Now().Add(-l.Age)
		}
	}
	for i := range r.Answers {
		a := &r.Answers[i]
		inStore[a.Entity] = true
		if t.entities[a.Entity] == nil {
			t.add(&entity{request: Request{Tile: t.id, Entity: a.Entity, ID: a.ID, Tier: Background},
				since: time.Now()})
		}
	}
	for name, e := range t.entities {
		if !inStore[name] && !e.asking && !e.deciding {
			stats.Missing++
			t.free(name, stats)
		}
	}
}

// answer takes an answer; nil if it is none that an entity waits for.
func (t *deskTile) answer(a *Answer, stats *DeskStats) *answered {
	receipt := Receipt{Entity: a.Entity, ID: a.ID}
	e := t.entities[a.Entity]
	if known := e != nil && !e.asking && e.request.ID == a.ID; known && a.Kind == Planned {
		receipt.Requester, receipt.Usage = e.request.Requester, a.Usage
	} else if !known {
		stats.Unknown++
		e = nil
	}
	t.seen = append(t.seen, receipt)
	if e == nil || e.deciding { // deciding: its receipt was lost
		return nil
	}
	e.deciding = true
	switch a.Kind {
	case Discarded:
		stats.Discarded++
	case Died:
		stats.Died++
	case Expired:
		stats.Expired++
	case Stale:
		stats.Stale++
	}
	return &answered{request: e.request, since: e.since, kind: a.Kind, body: a.Body}
}

// free ends an entity's waiting, or sends what a player has asked for meanwhile.
func (t *deskTile) free(name string, stats *DeskStats) {
	e := t.entities[name]
	if e == nil {
		return
	}
	t.remove(name)
	if e.next != nil {
		t.ask(*e.next, stats)
	}
}
