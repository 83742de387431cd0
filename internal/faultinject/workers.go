package faultinject

import (
	"context"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/tile/plan"
)

// Step is what a match worker has done last when it dies.
type Step int

// The steps.
const (
	Claiming  Step = 1 // tickets
	Recording Step = 2 // matches
)

// MatchWorker kills a match server with tickets in hand: no call of it to its back ends returns any more. Pass the
// server the results of Backend and Seats. All methods may be called from any goroutine.
type MatchWorker struct {
	Line *Line

	mu    sync.Mutex
	dying Step     // after which it dies, once it has tickets in hand
	hands []string // the tickets that it died with
	died  time.Time
}

// handsFull is how long Kill waits for a worker to have tickets in hand.
const handsFull = 3 * time.Second

// DieAfter lets the worker die after the next step of a kind with tickets.
func (w *MatchWorker) DieAfter(s Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dying = s
}

// Kill lets the worker die after a step, and waits for that. A worker that gets no ticket in 3 s dies with none.
func (w *MatchWorker) Kill(after Step) {
	w.DieAfter(after)
	for end := time.Now().Add(handsFull); time.Now().Before(end) && !w.Line.Is(Dead); {
		time.Sleep(10 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.die(nil)
}

// Died returns when the worker died, and the tickets that it had in hand. The time is zero while it lives.
func (w *MatchWorker) Died() (at time.Time, hands []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.died, w.hands
}

// did is called when the worker has done a step with tickets. It returns when the worker lives.
func (w *MatchWorker) did(s Step, tickets []string) error {
	w.mu.Lock()
	if w.dying == s && len(tickets) > 0 {
		w.die(tickets)
	}
	w.mu.Unlock()
	return w.Line.Lives()
}

// die ends the worker with tickets in hand. The mutex is held.
func (w *MatchWorker) die(hands []string) {
	if w.died.IsZero() {
		w.hands, w.died = hands, time.Now()
		w.Line.Set(Dead)
	}
}

// Backend returns a back end as the server sees it. It stops the calls that claim and keep tickets, and those with
// which a supervisor begins a look; the server makes all others after one of them.
func (w *MatchWorker) Backend(b match.Backend) match.Backend { return &ticketStore{b, w} }

// Seats returns an allocator as the server sees it.
func (w *MatchWorker) Seats(a match.Allocator) match.Allocator { return &seats{a, w.Line} }

type ticketStore struct {
	match.Backend
	w *MatchWorker
}

func (s *ticketStore) Claim(ctx context.Context, shard string, c match.Claim) (match.Holding, error) {
	if err := s.w.Line.Lives(); err != nil {
		return match.Holding{}, err
	}
	h, err := s.Backend.Claim(ctx, shard, c)
	var tickets []string
	for _, t := range h.Tickets {
		tickets = append(tickets, t.ID)
	}
	if dead := s.w.did(Claiming, tickets); dead != nil {
		return match.Holding{}, dead
	}
	return h, err
}

func (s *ticketStore) Record(ctx context.Context, shard string, e match.Epoch, all []match.Match) ([]error, error) {
	if err := s.w.Line.Lives(); err != nil {
		return nil, err
	}
	errs, err := s.Backend.Record(ctx, shard, e, all)
	var tickets []string
	for _, m := range all {
		for _, t := range m.Tickets {
			tickets = append(tickets, t.ID)
		}
	}
	if dead := s.w.did(Recording, tickets); dead != nil {
		return nil, dead
	}
	return errs, err
}

func (s *ticketStore) Heartbeat(ctx context.Context, shard string, e match.Epoch, lease time.Duration) error {
	if err := s.w.Line.Lives(); err != nil {
		return err
	}
	return s.Backend.Heartbeat(ctx, shard, e, lease)
}

func (s *ticketStore) Reclaim(ctx context.Context, shard string, limit int) (match.Reclaim, error) {
	if err := s.w.Line.Lives(); err != nil {
		return match.Reclaim{}, err
	}
	return s.Backend.Reclaim(ctx, shard, limit)
}

type seats struct {
	match.Allocator
	line *Line
}

func (s *seats) Lapsed(ctx context.Context, limit int) ([]match.Lapse, error) {
	if err := s.line.Lives(); err != nil {
		return nil, err
	}
	return s.Allocator.Lapsed(ctx, limit)
}

func (s *seats) Allocate(ctx context.Context, all []match.Match) []match.Allocation {
	if err := s.line.Lives(); err != nil {
		answers := make([]match.Allocation, len(all))
		for i := range answers {
			answers[i].Err = &fence.StoreError{Op: "allocate", Outcome: fence.ErrNotApplied, Err: err}
		}
		return answers
	}
	return s.Allocator.Allocate(ctx, all)
}

// Plans returns a store of plans as a planner, or a tile server, at the end of the line sees it: no call of one that is
// dead returns.
func (l *Line) Plans(s plan.Store) plan.Store { return &planStore{s, l} }

type planStore struct {
	plan.Store
	line *Line
}

func (s *planStore) Turn(ctx context.Context, shard int, turns []plan.Turn) (replies []plan.TurnReply) {
	err := s.line.call(ctx, intercept.Call{Op: "turn", Write: true}, func(ctx context.Context) error {
		replies = s.Store.Turn(ctx, shard, turns)
		return nil
	})
	if err != nil {
		replies = make([]plan.TurnReply, len(turns))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

func (s *planStore) Usage(ctx context.Context, shard int, after string, limit int) ([]plan.UsageEvent, error) {
	if err := s.line.Lives(); err != nil {
		return nil, err
	}
	return s.Store.Usage(ctx, shard, after, limit)
}

func (s *planStore) Claim(ctx context.Context, shard int, c plan.Claim) (plan.Claimed, error) {
	if err := s.line.Lives(); err != nil {
		return plan.Claimed{}, err
	}
	return s.Store.Claim(ctx, shard, c)
}

func (s *planStore) Renew(
	ctx context.Context, shard int, worker string, lease time.Duration, claims []plan.Held,
) ([]string, error) {
	if err := s.line.Lives(); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, shard, worker, lease, claims)
}

// offers are the seats that a tile server at the end of a line offers.
type offers struct {
	match.Backend
	line *Line
}

func (o *offers) Offer(
	ctx context.Context, pool string, offer match.Offer, ttl time.Duration,
) (load match.Load, err error) {
	err = o.line.call(ctx, intercept.Call{Op: "offer", Write: true}, func(ctx context.Context) error {
		load, err = o.Backend.Offer(ctx, pool, offer, ttl)
		return err
	})
	return load, err
}

func (s *planStore) Finish(ctx context.Context, shard int, worker string, ends []plan.End) ([]bool, error) {
	if err := s.line.Lives(); err != nil {
		return nil, err
	}
	return s.Store.Finish(ctx, shard, worker, ends)
}
