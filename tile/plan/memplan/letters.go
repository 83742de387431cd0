package memplan

import (
	"context"
	"slices"
	"time"

	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/tile/plan"
)

// Letters implements plan.Store.
func (s *store) Letters(ctx context.Context, at int) ([]plan.Letter, error) {
	if err := guard.Ended(ctx, "letters", 0); err != nil {
		return nil, err
	}
	sh, now := s.shards[at], time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	letters := make([]plan.Letter, 0, len(sh.dead))
	for _, id := range sh.dead {
		r := sh.requests[id]
		letters = append(letters, plan.Letter{Request: r.view(now), Error: r.error, At: r.died})
	}
	return letters, nil
}

// Replay implements plan.Store.
func (s *store) Replay(ctx context.Context, at int, id string) error {
	if err := guard.Ended(ctx, "replay", 0); err != nil {
		return err
	}
	sh := s.shards[at]
	tier, err := sh.replay(id)
	if err == nil {
		s.notify(at, tier)
	}
	return err
}

func (s *shard) replay(id string) (plan.Tier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests[id]
	if r == nil || r.state != dead {
		return 0, plan.ErrNoLetter
	}
	t := s.tile(r.Tile)
	if t.flight[r.Entity] != "" {
		return 0, plan.ErrInFlight
	}
	if a := t.answers[r.Entity]; a != nil && a.id != id {
		return 0, plan.ErrInFlight
	}
	delete(t.answers, r.Entity)
	s.dead = slices.DeleteFunc(s.dead, func(d string) bool { return d == id })
	t.flight[r.Entity] = id
	r.state, r.Attempt, r.Epoch, r.queued = waiting, 0, t.epoch, time.Now()
	s.queues[r.Tier-1].push(r.Tile, id, false)
	return r.Tier, nil
}

// Drop implements plan.Store.
func (s *store) Drop(ctx context.Context, at int, id string) error {
	if err := guard.Ended(ctx, "drop", 0); err != nil {
		return err
	}
	sh := s.shards[at]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if r := sh.requests[id]; r == nil || r.state != dead {
		return plan.ErrNoLetter
	}
	delete(sh.requests, id)
	sh.dead = slices.DeleteFunc(sh.dead, func(d string) bool { return d == id })
	return nil
}
