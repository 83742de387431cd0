package plan_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

// ledger is billing's own store, idempotent by the request.
type ledger map[string]int

func (l ledger) Record(_ context.Context, events []plan.UsageEvent) error {
	for _, e := range events {
		l[e.Request]++
	}
	return nil
}

// account is a ledger that can be away, or store and then say that it did not.
type account struct {
	mu     sync.Mutex
	charge map[string]int64
	again  int // events that it had
	away   bool
	forget bool
}

func (a *account) Record(_ context.Context, events []plan.UsageEvent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return errors.New("billing is away")
	}
	for _, e := range events {
		if _, ok := a.charge[e.Request]; ok {
			a.again++
			continue
		}
		a.charge[e.Request] = e.Usage.Input
	}
	if a.forget {
		a.forget = false
		return errors.New("the connection was lost")
	}
	return nil
}

// TestBillingIsAwayForAnHour: nothing is lost, nothing is slower, and all is charged once when it is back.
func TestBillingIsAwayForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		a.tick = time.Second // an hour of ticks
		s := a.serve("a:1", &squadron{ships: ships(5), tier: plan.Background}, nil)
		w, _ := a.work(takes(10*time.Second), &plan.WorkerConfig{Slots: 8})
		bill := &account{charge: map[string]int64{}, away: true, forget: true}
		b, err := plan.NewBiller(a.plans, bill, &plan.BillerConfig{Batch: 7, Logger: quiet})
		require.NoError(t, err)
		stop := run(t, b.Run)
		time.Sleep(time.Hour)
		require.Greater(t, s.planned(t), 5*270, "a plan each ten seconds and two or three ticks")
		bill.mu.Lock()
		bill.away = false
		bill.mu.Unlock()
		s.retire()
		time.Sleep(time.Minute)
		stop()
		require.EqualValues(t, w.Stats().Succeeded, len(bill.charge))
		require.NotZero(t, bill.again, "an answer was lost")
	})
}
