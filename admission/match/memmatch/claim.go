package memmatch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/internal/denied"
)

// busyFor is how long a worker is given to compare the few tickets that wait before another joins in.
const busyFor = 50 * time.Millisecond

// bandSize is how many tickets a claim takes around one of those whose turn it is.
const bandSize = 64

// Claim implements match.Store.
func (s *store) Claim(ctx context.Context, name string, c match.Claim) (match.Holding, error) {
	if err := match.CheckClaim(c); err != nil {
		return match.Holding{}, err
	}
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return match.Holding{}, err
	}
	defer unlock()
	now := time.Now()
	h := match.Holding{Epoch: c.Epoch, Arrivals: sh.arrivals}
	if h.Epoch == 0 {
		sh.epoch++
		h.Epoch = sh.epoch
	} else if _, live := sh.leases[h.Epoch]; !live {
		return match.Holding{}, denied.Stale(name, c.Epoch)
	}
	sh.leases[h.Epoch] = now.Add(c.Lease)
	sh.changed(sh.expire(now, c.Limit)...)
	var held, waiting []*ticket
	others := 0
	for _, t := range sh.tickets {
		switch {
		case t.state == match.Waiting:
			waiting = append(waiting, t)
		case t.state == match.Claimed && t.epoch == h.Epoch:
			held = append(held, t)
		case t.state == match.Claimed:
			others++
		}
	}
	room := min(c.Limit-len(held), len(waiting))
	if others > 0 && len(waiting) < c.Limit && now.Sub(sh.looked) < busyFor {
		h.Busy, room = true, 0
	}
	if room > 0 {
		sh.looked = now
		for _, t := range bands(waiting, room) {
			sh.move(t, match.Claimed)
			t.epoch = h.Epoch
			held = append(held, t)
		}
	}
	for _, t := range held {
		h.Tickets = append(h.Tickets, match.Candidate{Ticket: t.Ticket, Waited: now.Sub(t.enqueued)})
	}
	return h, nil
}

// bands takes n tickets: neighbours by rating around those whose turn it is, in turn one that no worker has looked at
// and one that was looked at longest ago.
func bands(waiting []*ticket, n int) []*ticket {
	slices.SortFunc(waiting, func(a, b *ticket) int {
		return cmp.Or(cmp.Compare(a.Rating, b.Rating), cmp.Compare(a.ID, b.ID))
	})
	var turns [2][]*ticket
	for _, t := range waiting {
		if t.fresh {
			turns[0] = append(turns[0], t)
		} else {
			turns[1] = append(turns[1], t)
		}
	}
	for i := range turns {
		slices.SortFunc(turns[i], func(a, b *ticket) int {
			return cmp.Or(a.turn.Compare(b.turn), cmp.Compare(a.ID, b.ID))
		})
	}
	taken := make(map[*ticket]bool, n)
	next := func(k int) *ticket {
		for len(turns[k]) > 0 {
			t := turns[k][0]
			turns[k] = turns[k][1:]
			if !taken[t] {
				return t
			}
		}
		return nil
	}
	for k := 0; len(taken) < n; k++ {
		seed := next(k % 2)
		if seed == nil {
			if seed = next((k + 1) % 2); seed == nil {
				break
			}
		}
		taken[seed] = true
		at := slices.Index(waiting, seed)
		size := min(bandSize, n-len(taken)+1) - 1
		for i, got := at-1, 0; i >= 0 && got < size/2; i-- {
			if !taken[waiting[i]] {
				taken[waiting[i]], got = true, got+1
			}
		}
		for i, got := at+1, 0; i < len(waiting) && got < size-size/2; i++ {
			if !taken[waiting[i]] {
				taken[waiting[i]], got = true, got+1
			}
		}
	}
	return slices.DeleteFunc(waiting, func(t *ticket) bool { return !taken[t] })
}

// Heartbeat implements match.Store.
func (s *store) Heartbeat(ctx context.Context, name string, e match.Epoch, lease time.Duration) error {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if _, live := sh.leases[e]; !live {
		return denied.Stale(name, e)
	}
	sh.leases[e] = time.Now().Add(lease)
	return nil
}

// Record implements match.Store.
func (s *store) Record(ctx context.Context, name string, e match.Epoch, matches []match.Match) ([]error, error) {
	if err := match.CheckRecord(matches); err != nil {
		return nil, err
	}
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ends, live := sh.leases[e]
	if !live {
		return nil, denied.Stale(name, e)
	}
	results := make([]error, len(matches))
	for i, m := range matches {
		if sh.matches[m.ID] != nil {
			continue
		}
		if gone := slices.IndexFunc(m.Tickets, func(t match.Ticket) bool {
			had := sh.tickets[t.ID]
			return had == nil || had.state != match.Claimed || had.epoch != e
		}); gone >= 0 {
			results[i] = denied.Gone(m.ID, m.Tickets[gone].ID)
			continue
		}
		sh.matches[m.ID] = &recorded{Match: m, due: ends}
		sh.made++
		for _, t := range m.Tickets {
			had := sh.tickets[t.ID]
			sh.move(had, match.Matched)
			had.match, had.ended = m.ID, time.Now()
			sh.changed(t.ID)
		}
	}
	return results, nil
}

// Release implements match.Store.
func (s *store) Release(ctx context.Context, name string, e match.Epoch, tickets []match.Unmatched) (uint64, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if _, live := sh.leases[e]; !live {
		return 0, denied.Stale(name, e)
	}
	for _, u := range tickets {
		if t := sh.tickets[u.Ticket]; t != nil && t.state == match.Claimed && t.epoch == e {
			sh.move(t, match.Waiting)
			t.fresh, t.turn, t.why = false, time.Now(), u.Why
		}
	}
	return sh.arrivals, nil
}

// Leave implements match.Store.
func (s *store) Leave(ctx context.Context, name string, e match.Epoch) error {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	delete(sh.leases, e)
	return nil
}

// Publish implements match.Store.
func (s *store) Publish(ctx context.Context, name string, assignments []match.Assignment) ([]error, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	results := make([]error, len(assignments))
	for i, a := range assignments {
		m := sh.matches[a.Match]
		switch {
		case m == nil || m.dissolved:
			results[i] = denied.Dissolved(a.Match)
			continue
		case m.assignment != nil:
			continue
		}
		now := time.Now()
		m.assignment, m.ended = &a, now
		for _, t := range m.Tickets {
			had := sh.tickets[t.ID]
			if had == nil {
				continue
			}
			if had.state == match.Matched && had.match == a.Match {
				sh.move(had, match.Seated)
				sh.changed(t.ID)
			}
			if had.state == match.Seated && had.match == a.Match || had.state == match.Cancelled {
				sh.keep(had, heldUntil(&a, now))
			}
		}
	}
	return results, nil
}

// Dissolve implements match.Store.
func (s *store) Dissolve(ctx context.Context, name, id string, why match.Why) error {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	m := sh.matches[id]
	if m == nil || m.dissolved || m.assignment != nil {
		return nil
	}
	m.dissolved, m.ended = true, time.Now()
	for _, t := range m.Tickets {
		switch had := sh.tickets[t.ID]; {
		case had == nil:
		case had.state == match.Cancelled:
			sh.free(had)
		case had.state == match.Matched && had.match == id:
			sh.back(had, why)
			sh.changed(t.ID)
		}
	}
	sh.arrived()
	return nil
}

// Requeue implements match.Store.
func (s *store) Requeue(ctx context.Context, name, id, ticket string) (bool, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return false, err
	}
	defer unlock()
	m := sh.matches[id]
	if m != nil && m.assignment == nil && !m.dissolved {
		return false, nil
	}
	if t := sh.tickets[ticket]; t != nil && t.state == match.Seated && t.match == id {
		why := match.Why{Reason: match.SeatLapsed}
		if t.lapses++; t.lapses < match.MaxLapses {
			t.deadline = t.deadline.Add(time.Since(t.ended)) // the time it had a seat is not waiting
			sh.back(t, why)
		} else {
			sh.timeOut(t, time.Now())
			t.why, t.match = why, ""
		}
		sh.changed(ticket)
		sh.arrived()
	}
	return true, nil
}

// Reclaim implements match.Store.
func (s *store) Reclaim(ctx context.Context, name string, limit int) (match.Reclaim, error) {
	sh, unlock, err := s.enter(ctx, name)
	if err != nil {
		return match.Reclaim{}, err
	}
	defer unlock()
	now := time.Now()
	maps.DeleteFunc(sh.leases, func(_ match.Epoch, ends time.Time) bool { return ends.Before(now) })
	var r match.Reclaim
	for id, t := range sh.tickets {
		_, live := sh.leases[t.epoch]
		if t.state == match.Claimed && !live && len(r.Returned) < limit {
			sh.move(t, match.Waiting)
			t.fresh, t.turn, t.why = true, t.enqueued, match.Why{Reason: match.Reclaimed}
			sh.arrivals++
			r.Returned = append(r.Returned, id)
		}
	}
	r.TimedOut = sh.expire(now, limit)
	r.Pending = sh.overdue(now, limit)
	r.More = len(r.Returned) == limit || len(r.TimedOut) == limit || len(r.Pending) == limit
	if changed := append(slices.Clone(r.Returned), r.TimedOut...); len(changed) > 0 {
		sh.changed(changed...)
		sh.arrived()
	}
	return r, nil
}

// overdue returns matches that their worker should have finished, and gives the caller the time to.
func (sh *shard) overdue(now time.Time, limit int) (pending []match.Match) {
	var due []*recorded
	for _, m := range sh.matches {
		if m.ended.IsZero() && m.due.Before(now) {
			due = append(due, m)
		}
	}
	slices.SortFunc(due, func(a, b *recorded) int { return a.due.Compare(b.due) })
	for _, m := range due[:min(len(due), limit)] {
		m.due = now.Add(match.PendingAgain)
		pending = append(pending, m.Match)
	}
	return pending
}
