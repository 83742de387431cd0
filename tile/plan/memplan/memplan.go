// Package memplan is a plan.Store in memory: for tests, for development, and for games whose workers run in the
// process of their tiles. It is also the specification that redisplan is compared with.
//
//	plans := memplan.New()
//	desk, err := plan.NewDesk(plans, host.Submit, nil)
//	worker, err := plan.NewWorker(plans, planner, nil)
//
// Nothing survives the process. Time is that of package time, so it runs under testing/synctest.
package memplan

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/listen"
	"github.com/tilefence/tilefence/tile/plan"
)

// shards is how many there are: more than one, so that a worker has to choose as it does over Redis.
const shards = 4

// store implements plan.Store.
type store struct {
	shards  [shards]*shard
	hearers listen.Set[struct{}, func(int, plan.Tier)]
}

// New returns an empty store.
func New() plan.Store {
	s := &store{}
	for i := range s.shards {
		s.shards[i] = &shard{requests: map[string]*record{}, tiles: map[fence.TileID]*tile{}}
	}
	return s
}

// shard is everything of one shard.
type shard struct {
	mu       sync.Mutex
	requests map[string]*record
	queues   [2]ring  // by tier
	dead     []string // oldest first
	usage    []plan.UsageEvent
	events   int // ever stored
	tiles    map[fence.TileID]*tile
}

// ring is the requests of a tier that wait, by tile. Each tile has its turn, so that none fills the queue of the rest.
type ring struct {
	turns []fence.TileID            // that have requests, the next one in turn first
	tiles map[fence.TileID][]string // IDs; some have no record any more, or have moved to the other tier
}

func (r *ring) push(t fence.TileID, id string, first bool) {
	if r.tiles == nil {
		r.tiles = map[fence.TileID][]string{}
	}
	at := len(r.tiles[t])
	if at == 0 {
		r.turns = append(r.turns, t)
	}
	if first {
		at = 0
	}
	r.tiles[t] = slices.Insert(r.tiles[t], at, id)
}

// pop takes the next request of the next tile in turn.
func (r *ring) pop() (id string, found bool) {
	if len(r.turns) == 0 {
		return "", false
	}
	t := r.turns[0]
	id, r.turns, r.tiles[t] = r.tiles[t][0], r.turns[1:], r.tiles[t][1:]
	if len(r.tiles[t]) > 0 {
		r.turns = append(r.turns, t)
	} else {
		delete(r.tiles, t)
	}
	return id, true
}

func (r *ring) len() (n int) {
	for _, ids := range r.tiles {
		n += len(ids)
	}
	return n
}

type tile struct {
	epoch   fence.Epoch
	flight  map[string]string // entity to ID
	answers map[string]*answer
}

type answer struct {
	id      string
	kind    plan.AnswerKind
	epoch   fence.Epoch
	body    []byte
	usage   plan.Usage
	expires time.Time
}

type state int

const (
	waiting state = 1
	resting state = 2
	running state = 3
	dead    state = 4
)

// record is one request. Its Attempt counts those begun.
type record struct {
	plan.Request
	state  state
	queued time.Time
	due    time.Time // resting, running: when it returns to the queue
	worker string
	error  string
	died   time.Time
}

func (r *record) view(now time.Time) plan.Request {
	v := r.Request
	v.Age, v.Running = now.Sub(r.queued), r.state == running
	return v
}

func (s *shard) tile(id fence.TileID) *tile {
	t := s.tiles[id]
	if t == nil {
		t = &tile{flight: map[string]string{}, answers: map[string]*answer{}}
		s.tiles[id] = t
	}
	return t
}

// Shards implements plan.Store.
func (s *store) Shards() int { return shards }

// Turn implements plan.Store.
func (s *store) Turn(ctx context.Context, at int, turns []plan.Turn) []plan.TurnReply {
	replies := make([]plan.TurnReply, len(turns))
	var heard [3]bool
	for i := range turns {
		if replies[i].Err = guard.Ended(ctx, "turn", 0); replies[i].Err == nil {
			s.shards[at].turn(&turns[i], &replies[i], &heard)
		}
	}
	for _, t := range []plan.Tier{plan.Player, plan.Background} {
		if heard[t] {
			s.notify(at, t)
		}
	}
	return replies
}

func (s *store) notify(at int, t plan.Tier) {
	for _, heard := range s.hearers.Of(struct{}{}) {
		heard(at, t)
	}
}

// Wake implements plan.Store.
func (s *store) Wake(ctx context.Context, heard func(int, plan.Tier)) error {
	defer s.hearers.Add(struct{}{}, heard)()
	for at := range s.shards {
		heard(at, plan.Player)
		heard(at, plan.Background)
	}
	<-ctx.Done()
	return nil
}

func (s *shard) turn(turn *plan.Turn, r *plan.TurnReply, heard *[3]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, t := time.Now(), s.tile(turn.Tile)
	if turn.Epoch < t.epoch {
		r.Err = &fence.RefusedError{Reason: fence.ErrStale, Tile: turn.Tile, Epoch: turn.Epoch,
			Current: fence.Owner{Tile: turn.Tile, Epoch: t.epoch}}
		return
	}
	t.epoch = turn.Epoch
	for _, seen := range turn.Seen {
		s.forget(turn.Tile, &seen, now)
	}
	if turn.List {
		for _, id := range t.flight {
			if q := s.requests[id]; q.state != running {
				q.Epoch = turn.Epoch
			}
		}
	}
	for i := range turn.Ask {
		ask := s.ask(t, turn.Ask[i], now)
		r.Asked = append(r.Asked, ask)
		heard[turn.Ask[i].Tier] = heard[turn.Ask[i].Tier] || ask.Taken
	}
	for name, a := range t.answers {
		v := plan.Answer{Entity: name, ID: a.id, Kind: a.kindAt(turn.Epoch, now)}
		if v.Kind == plan.Planned {
			v.Body, v.Usage = a.body, a.usage
		}
		r.Answers = append(r.Answers, v)
	}
	if turn.List {
		for _, id := range t.flight {
			r.Listed = append(r.Listed, s.requests[id].view(now))
		}
	}
	r.InStore = len(t.flight) + len(t.answers)
}

// forget removes an answer, or makes up for one that the store does not have.
func (s *shard) forget(id fence.TileID, seen *plan.Receipt, now time.Time) {
	t, billed := s.tile(id), false
	if a := t.answers[seen.Entity]; a != nil && a.id == seen.ID {
		delete(t.answers, seen.Entity)
		billed = a.usage.Model != ""
	}
	if billed || seen.Usage.Model == "" {
		return
	}
	s.bill(id, seen, now)
	if t.flight[seen.Entity] == seen.ID {
		delete(t.flight, seen.Entity)
		delete(s.requests, seen.ID)
	}
}

func (a *answer) kindAt(epoch fence.Epoch, now time.Time) plan.AnswerKind {
	switch {
	case a.epoch < epoch:
		return plan.Stale
	case !now.Before(a.expires):
		return plan.Expired
	}
	return a.kind
}

func (s *shard) ask(t *tile, r plan.Request, now time.Time) plan.AskReply {
	if a := t.answers[r.Entity]; a != nil {
		return plan.AskReply{ID: a.id, Taken: a.id == r.ID}
	}
	if id := t.flight[r.Entity]; id != "" {
		q := s.requests[id]
		if id == r.ID || r.Tier != plan.Player || q.Tier == plan.Player || q.state == running {
			return plan.AskReply{ID: id, Taken: id == r.ID}
		}
		delete(s.requests, id) // the player's request takes its place
	} else if len(t.flight)+len(t.answers) >= plan.MaxOutstanding {
		return plan.AskReply{}
	}
	r.Epoch, r.Attempt = t.epoch, 0
	t.flight[r.Entity] = r.ID
	s.requests[r.ID] = &record{Request: r, state: waiting, queued: now}
	s.queues[r.Tier-1].push(r.Tile, r.ID, false)
	return plan.AskReply{ID: r.ID, Taken: true}
}

// requeue returns a request to the head of its tile's queue: it has waited longest there.
func (s *shard) requeue(r *record) {
	r.state = waiting
	s.queues[r.Tier-1].push(r.Tile, r.ID, true)
}

// Claim implements plan.Store.
func (s *store) Claim(ctx context.Context, at int, c plan.Claim) (plan.Claimed, error) {
	if err := guard.Ended(ctx, "claim", 0); err != nil {
		return plan.Claimed{}, err
	}
	sh, now := s.shards[at], time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.sweep(c.Attempts, now)
	var got plan.Claimed
	take := func(t plan.Tier, n int) (took int) {
		for ; took < n; took++ {
			r := sh.pop(t)
			if r == nil {
				break
			}
			r.state, r.worker, r.due = running, c.Worker, now.Add(c.Lease)
			r.Attempt++
			got.Requests = append(got.Requests, r.view(now))
		}
		return took
	}
	take(plan.Player, c.Players)
	if c.Background {
		c.Any -= take(plan.Background, c.Any)
	}
	c.Any -= take(plan.Player, c.Any)
	take(plan.Background, c.Any)
	got.Players, got.Background = len(sh.queues[0].turns), len(sh.queues[1].turns)
	return got, nil
}

// pop takes the next request of a tier, or nil.
func (s *shard) pop(t plan.Tier) *record {
	for {
		id, found := s.queues[t-1].pop()
		if !found {
			return nil
		}
		if r := s.requests[id]; r != nil && r.state == waiting && r.Tier == t {
			return r
		}
	}
}

// sweep returns what is due to its queue.
func (s *shard) sweep(attempts int, now time.Time) {
	var due []*record
	for _, r := range s.requests {
		if (r.state == resting || r.state == running) && !now.Before(r.due) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *record) int { return a.due.Compare(b.due) })
	for _, r := range due {
		if r.state == running && r.Attempt >= attempts {
			s.kill(r, "the lease of its last attempt has ended", now)
		} else {
			s.requeue(r)
		}
	}
}

// kill makes a dead letter of a request.
func (s *shard) kill(r *record, why string, now time.Time) {
	r.state, r.error, r.died = dead, why, now
	s.dead = append(s.dead, r.ID)
	if len(s.dead) > plan.MaxLetters {
		delete(s.requests, s.dead[0])
		s.dead = s.dead[1:]
	}
	s.answer(r, &answer{kind: plan.Died, expires: now.Add(plan.AnswerTTL)})
}

// answer ends the request's flight.
func (s *shard) answer(r *record, a *answer) {
	t := s.tile(r.Tile)
	delete(t.flight, r.Entity)
	a.id, a.epoch = r.ID, r.Epoch
	t.answers[r.Entity] = a
}

// Renew implements plan.Store.
func (s *store) Renew(
	ctx context.Context, at int, worker string, lease time.Duration, claims []plan.Held,
) (lost []string, err error) {
	if err := guard.Ended(ctx, "renew", 0); err != nil {
		return nil, err
	}
	sh := s.shards[at]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, h := range claims {
		if r := sh.claimed(worker, h); r != nil {
			r.due = time.Now().Add(lease)
		} else {
			lost = append(lost, h.ID)
		}
	}
	return lost, nil
}

// claimed is a request if the worker has this claim on it.
func (s *shard) claimed(worker string, h plan.Held) *record {
	r := s.requests[h.ID]
	if r == nil || r.state != running || r.worker != worker || r.Attempt != h.Attempt {
		return nil
	}
	return r
}

// Finish implements plan.Store.
func (s *store) Finish(ctx context.Context, at int, worker string, ends []plan.End) ([]bool, error) {
	if err := guard.Ended(ctx, "finish", 0); err != nil {
		return nil, err
	}
	sh, now := s.shards[at], time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	held := make([]bool, len(ends))
	for i := range ends {
		held[i] = sh.finish(worker, &ends[i], now)
	}
	return held, nil
}

func (s *shard) finish(worker string, e *plan.End, now time.Time) bool {
	r := s.claimed(worker, e.Held)
	switch {
	case r == nil:
		return false
	case e.Kind == plan.Failed && r.Attempt >= e.Attempts:
		s.kill(r, e.Error, now)
	case e.Kind == plan.Failed:
		r.state, r.due, r.error = resting, now.Add(e.Pause), e.Error
	default:
		a := &answer{kind: plan.Discarded, expires: now.Add(e.Keep)}
		if e.Kind == plan.Succeeded {
			a.kind, a.body, a.usage = plan.Planned, slices.Clone(e.Body), e.Usage
		}
		if a.usage.Model != "" {
			s.bill(r.Tile, &plan.Receipt{Entity: r.Entity, ID: r.ID, Requester: r.Requester, Usage: e.Usage}, now)
		}
		s.answer(r, a)
		delete(s.requests, r.ID)
	}
	return true
}

// bill stores a usage event.
func (s *shard) bill(t fence.TileID, of *plan.Receipt, now time.Time) {
	s.events++
	s.usage = append(s.usage, plan.UsageEvent{Position: fmt.Sprintf("%012d", s.events), Request: of.ID, Tile: t,
		Entity: of.Entity, Requester: of.Requester, Usage: of.Usage, At: now})
}

// Usage implements plan.Store.
func (s *store) Usage(ctx context.Context, at int, after string, limit int) ([]plan.UsageEvent, error) {
	if err := guard.Ended(ctx, "usage", 0); err != nil {
		return nil, err
	}
	sh := s.shards[at]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for len(sh.usage) > 0 && sh.usage[0].Position <= after {
		sh.usage = sh.usage[1:]
	}
	return slices.Clone(sh.usage[:min(limit, len(sh.usage))]), nil
}

// Depth implements plan.Store.
func (s *store) Depth(ctx context.Context, at int) (plan.Depth, error) {
	if err := guard.Ended(ctx, "depth", 0); err != nil {
		return plan.Depth{}, err
	}
	sh, now := s.shards[at], time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := plan.Depth{Players: sh.queues[0].len(), Background: sh.queues[1].len(), Dead: len(sh.dead),
		Usage: len(sh.usage)}
	for _, r := range sh.requests {
		switch r.state {
		case resting, running:
			l.Busy++
		case waiting:
			l.Oldest = max(l.Oldest, now.Sub(r.queued))
		}
	}
	return l, nil
}
