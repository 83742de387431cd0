package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// slowStore does so many calls at once, each of which takes a time. The others wait in the order in which they came.
type slowStore struct {
	admission.Store
	lines chan struct{}
	takes time.Duration
}

func (s *slowStore) serve(ctx context.Context) error {
	select {
	case s.lines <- struct{}{}:
		defer func() { <-s.lines }()
		time.Sleep(s.takes)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowStore) Admit(ctx context.Context, a admission.Artifact) (admission.Artifact, error) {
	if err := s.serve(ctx); err != nil {
		return admission.Artifact{}, err
	}
	return s.Store.Admit(ctx, a)
}

func (s *slowStore) Attempt(
	ctx context.Context, action string, id admission.AttemptID, at time.Time,
) (admission.Artifact, error) {
	if err := s.serve(ctx); err != nil {
		return admission.Artifact{}, err
	}
	return s.Store.Attempt(ctx, action, id, at)
}

func (s *slowStore) Settle(ctx context.Context, c admission.Settlement) (admission.Artifact, error) {
	if err := s.serve(ctx); err != nil {
		return admission.Artifact{}, err
	}
	return s.Store.Settle(ctx, c)
}

// A ledger of which three times as much is asked as it can do, by clients that present their actions again after three
// seconds, settles as much as it can.
func TestALedgerThatIsLateGoesOnAtItsCapacity(t *testing.T) {
	const atOnce, perSecond = 8, 50 // of actions, each of which takes two calls
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		slow := &slowStore{r.store, make(chan struct{}, atOnce), time.Second * atOnce / (2 * perSecond)}
		r = newRigOver(t, slow, newWorld("a"), nil)
		const seconds, clients = 30, 3 * perSecond * 30
		var settled, refused atomic.Int64
		var all sync.WaitGroup
		ctx, over := context.WithTimeout(t.Context(), seconds*time.Second)
		defer over()
		for i := range clients {
			a := admission.Action{ID: fmt.Sprint(i), Actor: fmt.Sprint(i), Asset: "card", Tile: here}
			all.Go(func() {
				for ctx.Err() == nil {
					art, err := patiently(ctx, r.gate, a)
					if err == nil && art.Outcome == stream.Applied {
						settled.Add(1)
						return
					}
					pause := 50 * time.Millisecond
					if limited, late := errors.AsType[*admission.LimitError](err); late {
						refused.Add(1)
						pause = limited.RetryAfter
					}
					time.Sleep(pause)
				}
			})
			time.Sleep(time.Second / (3 * perSecond))
		}
		all.Wait()
		t.Log(settled.Load(), "settled,", refused.Load(), "refused")
		assert.GreaterOrEqual(t, settled.Load(), int64(0.9*perSecond*seconds))
	})
}

// patiently waits three seconds for an outcome. The gateway goes on for 15, as it does for a client.
func patiently(ctx context.Context, g *admission.Gateway, a admission.Action) (admission.Artifact, error) {
	type answer struct {
		art admission.Artifact
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		art, err := g.Act(ctx, a)
		answered <- answer{art, err}
	}()
	select {
	case got := <-answered:
		return got.art, got.err
	case <-time.After(3 * time.Second):
		return admission.Artifact{}, context.DeadlineExceeded
	}
}

// waitingStore admits nothing until it is told to.
type waitingStore struct {
	admission.Store
	admits atomic.Int64
	open   chan struct{}
}

func (s *waitingStore) Admit(ctx context.Context, a admission.Artifact) (admission.Artifact, error) {
	s.admits.Add(1)
	select {
	case <-s.open:
		return s.Store.Admit(ctx, a)
	case <-ctx.Done():
		return admission.Artifact{}, ctx.Err()
	}
}

func TestCallsForAnActionUnderWayShareItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.credit("ann", 2)
		store := &waitingStore{Store: r.store, open: make(chan struct{})}
		r = newRigOver(t, store, newWorld("a"), nil)
		var all sync.WaitGroup
		act := func(ctx context.Context, a admission.Action, want error) {
			all.Go(func() {
				art, err := r.gate.Act(ctx, a)
				if want != nil {
					assert.ErrorIs(t, err, want)
					return
				}
				assert.NoError(t, err)
				assert.Equal(t, stream.Applied, art.Outcome)
			})
		}
		first, leave := context.WithCancel(t.Context())
		act(first, play("x"), context.Canceled)
		synctest.Wait()
		for range 3 {
			act(t.Context(), play("x"), nil)
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		act(impatient, play("x"), context.DeadlineExceeded)
		other := play("x")
		other.Actor = "bob" // another request: it does not share ann's answer
		act(impatient, other, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 2, store.admits.Load())
		leave() // another call goes on in its place
		synctest.Wait()
		require.EqualValues(t, 3, store.admits.Load())
		close(store.open)
		all.Wait()
		assert.Equal(t, 1, r.world.applied["x"])
		assert.Equal(t, admission.Amount(1), r.balance("ann"))
	})
}

// hungStore answers no settlement before its caller leaves.
type hungStore struct{ admission.Store }

func (hungStore) Settle(ctx context.Context, _ admission.Settlement) (admission.Artifact, error) {
	<-ctx.Done()
	return admission.Artifact{}, ctx.Err()
}

// What is owed and finds no place is no rate of a player's: the error says that the store was not asked.
func TestWhatIsOwedIsNotBelowARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, err := admission.New(hungStore{newRig(t, nil).store}, nil)
		require.NoError(t, err)
		ctx, leave := context.WithCancel(t.Context())
		errs := make(chan error, 4096+32+1)
		for i := range cap(errs) {
			go func() {
				_, err := ledger.Resolve(ctx, fmt.Sprint(i), stream.Applied)
				errs <- err
			}()
		}
		err = <-errs // of the one that is more than may wait
		require.ErrorIs(t, err, fence.ErrNotApplied)
		require.NotErrorIs(t, err, admission.ErrLimited)
		leave()
	})
}
