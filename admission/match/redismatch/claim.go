package redismatch

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/internal/denied"
	"github.com/tilefence/tilefence/fence"
)

// fenced is call for a function that may answer that the epoch is stale.
func (s *store) fenced(ctx context.Context, op, shard string, e match.Epoch, args ...any) (fields, error) {
	code, reply, err := s.call(ctx, op, baseOf(shard), args...)
	if code == "stale" {
		return nil, denied.Stale(shard, e)
	}
	return reply, err
}

// Claim implements match.Store.
func (s *store) Claim(ctx context.Context, shard string, c match.Claim) (match.Holding, error) {
	if err := match.CheckClaim(c); err != nil {
		return match.Holding{}, err
	}
	f, err := s.fenced(ctx, "claim", shard, c.Epoch, c.Worker, uint64(c.Epoch), millis(c.Lease), c.Limit, 1)
	if err != nil {
		return match.Holding{}, err
	}
	h := match.Holding{Epoch: match.Epoch(f.number(0)), Arrivals: f.number(1), Busy: f.text(2) == "1"}
	now := f.millis(3)
	for i := 4; i+2 < len(f); i += 3 {
		t := match.Candidate{Waited: now.Sub(f.millis(i + 1))}
		if decode(f.text(i), &t.Ticket) != nil || t.ID != f.text(i+2) {
			// It can never be matched, and would be claimed again and again: what is left of it ends.
			if _, _, err := s.call(ctx, "cancel", baseOf(shard), f.text(i+2)); err != nil {
				return match.Holding{}, err
			}
			continue
		}
		h.Tickets = append(h.Tickets, t)
	}
	return h, nil
}

// Heartbeat implements match.Store.
func (s *store) Heartbeat(ctx context.Context, shard string, e match.Epoch, lease time.Duration) error {
	_, err := s.fenced(ctx, "heartbeat", shard, e, uint64(e), millis(lease))
	return err
}

// Leave implements match.Store.
func (s *store) Leave(ctx context.Context, shard string, e match.Epoch) error {
	_, err := s.fenced(ctx, "leave", shard, e, uint64(e))
	return err
}

// Record implements match.Store.
func (s *store) Record(ctx context.Context, shard string, e match.Epoch, matches []match.Match) ([]error, error) {
	if err := match.CheckRecord(matches); err != nil {
		return nil, err
	}
	args := append(make([]any, 0, 1+3*len(matches)), uint64(e))
	for _, m := range matches {
		data, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(m.Tickets))
		for i, t := range m.Tickets {
			ids[i] = t.ID
		}
		args = append(args, m.ID, data, strings.Join(ids, " "))
	}
	f, err := s.fenced(ctx, "record", shard, e, args...)
	if err != nil {
		return nil, err
	}
	results := make([]error, len(matches))
	for i, m := range matches {
		if gone := f.text(i); gone != "" {
			results[i] = denied.Gone(m.ID, gone)
		}
	}
	return results, nil
}

// Release implements match.Store.
func (s *store) Release(ctx context.Context, shard string, e match.Epoch, tickets []match.Unmatched) (uint64, error) {
	args := append(make([]any, 0, 1+2*len(tickets)), uint64(e))
	for _, t := range tickets {
		why, err := json.Marshal(t.Why)
		if err != nil {
			return 0, err
		}
		args = append(args, t.Ticket, why)
	}
	f, err := s.fenced(ctx, "release", shard, e, args...)
	return f.number(0), err
}

// Publish implements match.Store.
func (s *store) Publish(ctx context.Context, shard string, assignments []match.Assignment) ([]error, error) {
	args := make([]any, 0, 2*len(assignments))
	for _, a := range assignments {
		data, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		args = append(args, a.Match+" "+strconv.FormatInt(max(a.TakeBy.UnixMilli(), 0), 10), data)
	}
	_, reply, err := s.call(ctx, "publish", baseOf(shard), args...)
	if err != nil {
		return nil, err
	}
	results := make([]error, len(assignments))
	for i, a := range assignments {
		if fields(reply).text(i) != "1" {
			results[i] = denied.Dissolved(a.Match)
		}
	}
	return results, nil
}

// Dissolve implements match.Store.
func (s *store) Dissolve(ctx context.Context, shard, id string, why match.Why) error {
	data, err := json.Marshal(why)
	if err != nil {
		return err
	}
	_, _, err = s.call(ctx, "dissolve", baseOf(shard), id, data)
	return err
}

// Requeue implements match.Store.
func (s *store) Requeue(ctx context.Context, shard, id, ticket string) (bool, error) {
	_, reply, err := s.call(ctx, "requeue", baseOf(shard), id, ticket)
	return fields(reply).text(0) == "1", err
}

// Reclaim implements match.Store.
func (s *store) Reclaim(ctx context.Context, shard string, limit int) (match.Reclaim, error) {
	if limit < 1 || limit > match.MaxClaim {
		return match.Reclaim{}, &fence.ArgumentError{Field: "limit", Value: limit, Want: "1 to 1000"}
	}
	_, reply, err := s.call(ctx, "reclaim", baseOf(shard), limit, 1)
	if err != nil {
		return match.Reclaim{}, err
	}
	f := fields(reply)
	r := match.Reclaim{Returned: f.words(0), TimedOut: f.words(1), More: f.text(2) == "1"}
	for i := 3; i+1 < len(f); i += 2 {
		var m match.Match
		if decode(f.text(i), &m) != nil || m.ID != f.text(i+1) { // no allocator can place it: its tickets wait again
			if err := s.Dissolve(ctx, shard, f.text(i+1), match.Why{Reason: match.Reclaimed}); err != nil {
				return match.Reclaim{}, err
			}
			continue
		}
		r.Pending = append(r.Pending, m)
	}
	return r, nil
}
