package plan_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/plantest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

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
		s := a.serve("a:1", &squadron{ships: ships(5), tier: plan.Background})
		w, _ := a.work(takes(10*time.Second), &plan.WorkerConfig{Slots: 8})
		bill := &account{charge: map[string]int64{}, away: true, forget: true}
		b, err := plan.NewBiller(a.plans, bill, quiet)
		require.NoError(t, err)
		b.GiveAtOnce(7)
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

// fussy is a ledger that refuses a batch with certain requests in it.
type fussy struct {
	mu     sync.Mutex
	charge map[string]bool
	bad    map[string]bool
}

func (f *fussy) Record(_ context.Context, events []plan.UsageEvent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		if f.bad[e.Entity] {
			return errors.New("no such player")
		}
	}
	for _, e := range events {
		f.charge[e.Entity] = true
	}
	return nil
}

// TestAnEventThatIsRefusedHoldsUpNoOther: billing gets all others, and the refused ones when it takes them.
func TestAnEventThatIsRefusedHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memplan.New()
		b := plantest.NewBench(t, store)
		bill := func(from, to int) {
			for i := from; i < to; i++ {
				r := b.Request(fmt.Sprint("ship", i))
				b.Ask(r)
				got := b.Claim(1)
				require.True(t, b.Finish(got[0], plan.End{Usage: plan.Usage{Model: "m", Input: 1}}))
			}
		}
		sink := &fussy{charge: map[string]bool{}, bad: map[string]bool{"ship0": true, "ship1": true, "ship77": true}}
		biller, err := plan.NewBiller(store, sink, quiet)
		require.NoError(t, err)
		biller.GiveAtOnce(50)
		bill(0, 200)
		stop := run(t, biller.Run)
		time.Sleep(time.Minute)
		bill(200, 300)
		time.Sleep(time.Minute)
		sink.mu.Lock()
		require.Len(t, sink.charge, 297)
		clear(sink.bad)
		sink.mu.Unlock()
		time.Sleep(time.Minute)
		stop()
		require.Len(t, sink.charge, 300)
		require.Empty(t, b.Events())
	})
}
