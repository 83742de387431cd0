package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// crash ends a gateway in the middle of a call: it unwinds everything and nothing is tidied up.
type crash struct{ step string }

// steps is a store and a forwarder that call at before and after each step, which may panic with a crash
// or say that the answer is lost.
type steps struct {
	admission.Store
	forwarder admission.Forwarder
	at        func(step string) error
}

func around[T any](s *steps, op string, f func() (T, error)) (T, error) {
	var none T
	if err := s.at("before " + op); err != nil {
		return none, &fence.StoreError{Op: op, Outcome: fence.ErrNotApplied, Err: err}
	}
	got, err := f()
	if lost := s.at("after " + op); lost != nil {
		return none, &fence.StoreError{Op: op, Outcome: fence.ErrUnknownOutcome, Err: lost}
	}
	return got, err
}

func (s *steps) Admit(ctx context.Context, a admission.Artifact) (admission.Artifact, error) {
	return around(s, "admit", func() (admission.Artifact, error) { return s.Store.Admit(ctx, a) })
}

func (s *steps) Attempt(
	ctx context.Context, id string, attempt admission.AttemptID, at time.Time,
) (admission.Artifact, error) {
	return around(s, "attempt", func() (admission.Artifact, error) { return s.Store.Attempt(ctx, id, attempt, at) })
}

func (s *steps) Withdraw(ctx context.Context, id string, attempt admission.AttemptID) error {
	_, err := around(s, "withdraw", func() (any, error) { return nil, s.Store.Withdraw(ctx, id, attempt) })
	return err
}

func (s *steps) Settle(ctx context.Context, c admission.Settlement) (admission.Artifact, error) {
	return around(s, "settle", func() (admission.Artifact, error) { return s.Store.Settle(ctx, c) })
}

func (s *steps) Forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error) {
	if err := s.at("before forward"); err != nil {
		return tile.Result{}, err
	}
	o, err := s.forwarder.Forward(ctx, contact, in)
	if lost := s.at("after forward"); lost != nil {
		return tile.Result{}, lost
	}
	return o, err
}

// survive runs f and reports whether it crashed.
func survive(f func()) (crashed bool) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case crash:
			crashed = true
		default:
			panic(v)
		}
	}()
	f()
	return false
}

func TestCrashAtEachStepThenRetry(t *testing.T) {
	redirects := []error{&tile.RedirectError{Tile: here, Epoch: 2, Contact: "b"},
		&tile.RedirectError{Tile: here, Epoch: 3, Contact: "c"}}
	for name, answers := range map[string][]error{"applied": nil, "redirected twice": redirects,
		"overloaded": {tile.ErrOverloaded}} {
		for _, op := range []string{"admit", "forward", "settle", "withdraw", "attempt"} {
			for _, when := range []string{"before ", "after "} {
				t.Run(name+"/"+when+op, func(t *testing.T) { crashThenRetry(t, when+op, answers) })
			}
		}
	}
}

func crashThenRetry(t *testing.T, step string, answers []error) {
	store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	w := newWorld("a")
	w.answers = answers
	armed := true
	s := &steps{Store: store, forwarder: w, at: func(at string) error {
		if armed && at == step {
			armed = false
			panic(crash{at})
		}
		return nil
	}}
	restart := func() *rig {
		r := newRigOver(t, s, w, nil)
		r.gate, err = admission.NewGateway(r.ledger, r.router, s, admission.ClientPrices,
			&admission.GatewayConfig{Unlimited: true})
		require.NoError(t, err)
		return r
	}
	r := restart()
	r.credit("ann", 2)

	var art admission.Artifact
	for range 8 {
		if survive(func() { art, err = r.gate.Act(t.Context(), play("x")) }) {
			r = restart()
			continue
		}
		if err == nil {
			break
		}
		require.ErrorIs(t, err, admission.ErrPending)
	}
	require.NoError(t, err, "an answer in the end")
	want := map[stream.Outcome]int{stream.Applied: 1, stream.Redirected: 0}
	times, known := want[art.Outcome]
	require.True(t, known, art.Outcome)
	assert.Equal(t, times, w.applied["x"])
	// 0 or 1
	assert.Equal(t, admission.Amount(2), r.balance("ann")+admission.Amount(times), "spent if applied, and once")
	for range 2 {
		again, err := restart().gate.Act(t.Context(), play("x"))
		require.NoError(t, err)
		assert.Equal(t, art.Outcome, again.Outcome)
		assert.Equal(t, art.AdmissionID, again.AdmissionID)
	}
	assert.Equal(t, times, w.applied["x"])
}

// TestLostAnswersAreReadBack: the write is done, its answer lost, and the same call still answers.
func TestLostAnswersAreReadBack(t *testing.T) {
	for _, op := range []string{"admit", "settle"} {
		t.Run(op, func(t *testing.T) {
			store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			s := &steps{Store: store, at: func(at string) error {
				if at == "after "+op {
					return errReset
				}
				return nil
			}}
			r := newRigOver(t, s, newWorld("a"), nil)
			r.credit("ann", 2)
			art, err := r.gate.Act(t.Context(), play("x"))
			require.NoError(t, err)
			assert.Equal(t, stream.Applied, art.Outcome)
			assert.Equal(t, admission.Amount(1), r.balance("ann"))
		})
	}
}

// TestUncountedAttemptIsNotSent: an attempt that is not recorded could be abandoned by another client.
func TestUncountedAttemptIsNotSent(t *testing.T) {
	store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	s := &steps{Store: store, at: func(at string) error {
		if at == "after attempt" {
			return errReset
		}
		return nil
	}}
	w := newWorld("a")
	r := newRigOver(t, s, w, nil)
	r.credit("ann", 1)
	_, err = r.ledger.Admit(t.Context(), play("x"))
	require.NoError(t, err)
	_, err = r.gate.Act(t.Context(), play("x"))
	require.ErrorIs(t, err, admission.ErrPending)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	assert.Zero(t, w.calls)
}

// TestRandomFaults plays many clients on several gateways that crash, lose answers and are sent from owner
// to owner, and then compares what the ledger says with what the tile did.
func TestRandomFaults(t *testing.T) {
	seed := seed.Of(t)
	store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	w := newWorld("a")
	quiet := newRigOver(t, store, w, nil)
	const players, actions = 4, 200 // 40 would miss one of seven attempts in doubt that are withdrawn
	for p := range players {
		quiet.credit(fmt.Sprint("player-", p), actions/2)
	}

	var wg sync.WaitGroup
	for client := range 8 { // two for each player, which send the same actions
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client))) // a repeatable sequence is the point
			network := &moody{world: w, rand: r, flees: map[string]int{}}
			s := &steps{Store: store, forwarder: network, at: func(step string) error {
				switch r.IntN(40) {
				case 0:
					panic(crash{step})
				case 1:
					return errReset
				}
				return nil
			}}
			for n := range actions {
				a := play(fmt.Sprintf("%d-%d", client%players, n))
				a.Actor = fmt.Sprint("player-", client%players)
				for range 1 + r.IntN(3) {
					survive(func() {
						g := newRigOver(t, s, w, nil)
						gate, err := admission.NewGateway(g.ledger, g.router, s, admission.ClientPrices,
							&admission.GatewayConfig{Unlimited: true})
						assert.NoError(t, err)
						_, _ = gate.Act(t.Context(), a) // the faults are what is tested
					})
				}
			}
		})
	}
	wg.Wait()

	outcomes := map[stream.Outcome]int{}
	for p := range players {
		owner := fmt.Sprint("player-", p)
		var spent admission.Amount
		for n := range actions {
			a := play(fmt.Sprintf("%d-%d", p, n))
			a.Actor = owner
			art, err := quiet.gate.Act(t.Context(), a)
			require.NoError(t, err)
			outcomes[art.Outcome]++
			spent += art.Spent()
			applied := 0
			if art.Outcome == stream.Applied {
				applied = 1
			}
			require.Equal(t, applied, w.applied[a.ID], "seed %d: the ledger says %v", seed, art.Outcome)
		}
		require.Equal(t, admission.Amount(actions/2), spent+quiet.balance(owner), "seed %d", seed)
	}
	t.Logf("%v", outcomes)
	assert.Positive(t, outcomes[stream.Applied])
	assert.Positive(t, outcomes[stream.Rejected])
}

// moody is a world seen through a bad network, whose tile moves about.
type moody struct {
	world *world
	rand  *rand.Rand
	flees map[string]int // by action whose answer was lost: how often the tile moves on when it is sent again
}

func (m *moody) Forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error) {
	if m.flees[in.ActionID] > 0 {
		m.flees[in.ActionID]--
		m.world.move(string('a'+(contact[0]-'a'+1)%4), true)
		return m.world.Forward(ctx, contact, in)
	}
	switch m.rand.IntN(12) {
	case 0:
		return tile.Result{}, tile.ErrOverloaded
	case 1, 2, 3, 4:
		m.world.move(string(rune('a'+m.rand.IntN(4))), m.rand.IntN(2) == 0)
	case 5:
		_, _ = m.world.Forward(ctx, contact, in)
		m.flees[in.ActionID] = 2 * m.rand.IntN(2)
		return tile.Result{}, errReset
	case 6:
		if _, err := m.world.Forward(ctx, contact, in); !errors.Is(err, tile.ErrRedirect) {
			m.world.move("b", true)
			return tile.Result{}, &tile.UnresolvedError{Tile: in.Tile, Contact: "b", Epoch: 9}
		}
	case 7:
		return tile.Result{}, errReset
	}
	return m.world.Forward(ctx, contact, in)
}
