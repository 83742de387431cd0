// Package memmatch keeps tickets and seats in the memory of one process: for tests, for local development, and as the
// specification of what match.Store and match.Seats promise, which package redismatch does with Redis functions.
//
//	store := memmatch.New()
//	seats, err := match.NewSeatAllocator(store, "eu", 0)
//	lobby, err := match.NewLobby(store, match.Queue{Name: "ranked-eu", Max: 2})
//
// Nothing survives the process. Every method takes one lock; a claim sorts all tickets of its shard. The clock is the
// process's own.
package memmatch

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/internal/denied"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/listen"
)

// store implements match.Backend.
type store struct {
	mu     sync.Mutex
	shards map[string]*shard
	pools  map[string]*pool
}

// New returns an empty store. Its methods may be called from any goroutine.
func New() match.Backend {
	return &store{shards: make(map[string]*shard), pools: make(map[string]*pool)}
}

type shard struct {
	tickets  map[string]*ticket
	matches  map[string]*recorded
	leases   map[match.Epoch]time.Time // when they end
	epoch    match.Epoch
	arrivals uint64
	counts   map[match.State]uint64
	created  uint64
	made     uint64
	looked   time.Time // the last claim
	swept    time.Time
	players  map[string]claimed              // by player
	holds    map[string]noted                // by player
	sources  map[string]map[string]time.Time // open tickets by source and ID, and until when; zero: until they end
	hints    listen.Set[struct{}, func()]
	changes  listen.Set[struct{}, func([]string)]
}

// ticket is one ticket. turn orders the tickets that wait: those never looked at, and those that are back from a match,
// by when they came; the others by when they were looked at.
type ticket struct {
	match.Ticket
	state    match.State
	fresh    bool // never looked at, or back from a match
	turn     time.Time
	enqueued time.Time
	deadline time.Time
	ended    time.Time // when it was matched, cancelled or timed out
	epoch    match.Epoch
	match    string
	why      match.Why
	source   string
	lapses   int
}

type recorded struct {
	match.Match
	due        time.Time // when a supervisor finishes it
	dissolved  bool
	assignment *match.Assignment
	ended      time.Time
}

// enter locks the store and returns a shard.
func (s *store) enter(ctx context.Context, name string) (*shard, func(), error) {
	if err := guard.Ended(ctx, "match", 0); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	sh := s.shards[name]
	if sh == nil {
		sh = &shard{tickets: make(map[string]*ticket), matches: make(map[string]*recorded),
			leases: make(map[match.Epoch]time.Time), counts: make(map[match.State]uint64),
			players: make(map[string]claimed), holds: make(map[string]noted),
			sources: make(map[string]map[string]time.Time)}
		s.shards[name] = sh
	}
	sh.sweep(time.Now())
	return sh, s.mu.Unlock, nil
}

// sweep forgets what ended long ago.
func (sh *shard) sweep(now time.Time) {
	if now.Sub(sh.swept) < match.Kept/60 {
		return
	}
	sh.swept = now
	old := func(at time.Time) bool { return !at.IsZero() && now.Sub(at) > match.Kept }
	maps.DeleteFunc(sh.tickets, func(_ string, t *ticket) bool { return t.state != match.Matched && old(t.ended) })
	sh.forget(now)
	maps.DeleteFunc(sh.matches, func(_ string, m *recorded) bool { return old(m.ended) })
}

func (sh *shard) move(t *ticket, to match.State) {
	sh.counts[t.state]--
	sh.counts[to]++
	t.state = to
}

func (sh *shard) changed(tickets ...string) {
	if len(tickets) == 0 {
		return
	}
	for _, f := range sh.changes.Of(struct{}{}) {
		f(tickets)
	}
}

func (sh *shard) arrived() {
	for _, f := range sh.hints.Of(struct{}{}) {
		f()
	}
}

func (sh *shard) status(name string, t *ticket, now time.Time) match.Status {
	st := match.Status{Ticket: t.Ticket, Shard: name, State: t.state, Enqueued: t.enqueued, Deadline: t.deadline,
		Why: t.why, Match: t.match, Waited: now.Sub(t.enqueued)}
	if !t.ended.IsZero() {
		st.Waited = t.ended.Sub(t.enqueued)
	}
	if m := sh.matches[t.match]; m != nil && t.state == match.Seated {
		st.Assignment = m.assignment
	}
	return st
}

// Enqueue implements match.Store.
func (s *store) Enqueue(
	ctx context.Context, name string, t match.Ticket, e match.Entry,
) (match.Status, error) {
	e, err := match.CheckEntry(e)
	if err != nil {
		return match.Status{}, err
	}
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return match.Status{}, err
	}
	defer unlock()
	now, source := time.Now(), t.Source
	t.Source = ""
	if had := sh.tickets[t.ID]; had != nil {
		if !reflect.DeepEqual(had.Ticket, t) {
			return match.Status{}, denied.Reused(t.ID)
		}
		return sh.status(name, had, now), nil
	}
	if player, open, found := sh.other(&t, now); found {
		return match.Status{}, &match.OpenError{Player: player, Ticket: open.ticket, Until: open.until}
	}
	if err := sh.room(name, source, e, now); err != nil {
		return match.Status{}, err
	}
	n := &ticket{Ticket: t, state: match.Waiting, fresh: true, turn: now, enqueued: now,
		deadline: now.Add(e.MaxWait), source: source}
	sh.tickets[t.ID] = n
	sh.keep(n, time.Time{})
	sh.counts[match.Waiting]++
	sh.created++
	sh.arrivals++
	sh.arrived()
	return sh.status(name, n, now), nil
}

// Status implements match.Store.
func (s *store) Status(ctx context.Context, name, id string) (match.Status, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return match.Status{}, err
	}
	defer unlock()
	t := sh.tickets[id]
	if t == nil {
		return match.Status{}, denied.Unknown(id)
	}
	return sh.status(name, t, time.Now()), nil
}

// Cancel implements match.Store.
func (s *store) Cancel(ctx context.Context, name, id string) (match.Status, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return match.Status{}, err
	}
	defer unlock()
	t := sh.tickets[id]
	if t == nil {
		return match.Status{}, denied.Unknown(id)
	}
	now := time.Now()
	if !t.state.Terminal() {
		if t.ended.IsZero() {
			t.ended = now
		}
		switch t.state {
		case match.Matched: // its seats may be held by now
			sh.keep(t, now.Add(match.MaxHold))
		case match.Seated: // until its seats are not held any more
		default:
			sh.free(t)
		}
		sh.move(t, match.Cancelled)
		t.match = ""
		sh.changed(id)
	}
	return sh.status(name, t, now), nil
}

// List implements match.Store.
func (s *store) List(ctx context.Context, name string, limit int) ([]match.Status, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var list []match.Status
	for _, t := range sh.tickets {
		if t.state == match.Waiting || t.state == match.Claimed {
			list = append(list, sh.status(name, t, time.Now()))
		}
	}
	slices.SortFunc(list, func(a, b match.Status) int {
		return cmp.Or(a.Enqueued.Compare(b.Enqueued), cmp.Compare(a.Ticket.ID, b.Ticket.ID))
	})
	return list[:min(max(limit, 0), len(list))], nil
}

// Depth implements match.Store.
func (s *store) Depth(ctx context.Context, name string) (match.Depth, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return match.Depth{}, err
	}
	defer unlock()
	d := match.Depth{Created: sh.created, Waiting: sh.counts[match.Waiting], Claimed: sh.counts[match.Claimed],
		Matched: sh.counts[match.Matched], Seated: sh.counts[match.Seated], Cancelled: sh.counts[match.Cancelled],
		TimedOut: sh.counts[match.TimedOut], Matches: sh.made, Workers: uint64(len(sh.leases))}
	for _, m := range sh.matches {
		if m.ended.IsZero() {
			d.Pending++
		}
	}
	return d, nil
}

// Arrivals implements match.Store.
func (s *store) Arrivals(ctx context.Context, name string, f func()) error {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return err
	}
	unlock()
	defer sh.hints.Add(struct{}{}, f)()
	<-ctx.Done()
	return nil
}

// Changes implements match.Store. f is called under the store's lock and must not call it.
func (s *store) Changes(ctx context.Context, name string, ready func(), f func([]string)) error {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return err
	}
	unlock()
	defer sh.changes.Add(struct{}{}, f)()
	if ready != nil {
		ready()
	}
	<-ctx.Done()
	return nil
}
