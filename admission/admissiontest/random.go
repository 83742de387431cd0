package admissiontest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
)

func testRandom(t *testing.T, s suite) {
	require.NoError(t, Soak(s.ctx, s.store, seed.Of(t)))
}

// Soak plays random calls, many of them repetitions of earlier ones, from several goroutines at once, then
// checks what must hold of any history:
//
//   - for each account, what is left and what the artifacts say was spent are together what was credited;
//   - every answer about an action names the same admission, and the same outcome once it is terminal.
//
// An error says what was violated. A call that fails with an unknown outcome is presented again until it is
// answered, as a ledger's client would do; so a store that loses answers can be soaked too.
func Soak(ctx context.Context, store admission.Store, seed uint64) error {
	const workers, calls = 4, 60
	h := newHistory(store)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i))) // a repeatable sequence is the point
			for range calls {
				if errs[i] = h.step(ctx, r); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return h.check(ctx)
}

// history is what the callers know: their calls and the answers.
type history struct {
	store   admission.Store
	owners  []string
	actions []admission.Artifact // requests that may be presented
	credits []admission.Credit

	mu       sync.Mutex
	credited map[int]bool
	told     map[string]admission.Artifact // the last answer per action
}

const soakAsset = "gold"

func newHistory(store admission.Store) *history {
	h := &history{store: store, credited: map[int]bool{}, told: map[string]admission.Artifact{}}
	for range 3 {
		h.owners = append(h.owners, player())
	}
	for i := range 60 {
		a := action(h.owners[i%3], soakAsset, admission.Amount(i%5))
		if i%7 == 0 {
			a.Cooldown = 5 * time.Millisecond
		}
		a.Admitted = epoch.Add(time.Duration(i) * time.Millisecond)
		a.Attempted = a.Admitted
		h.actions = append(h.actions, a)
		h.credits = append(h.credits, admission.Credit{ID: admission.NewActionID(), Owner: h.owners[i%3],
			Asset: soakAsset, Amount: admission.Amount(1 + i%11), At: epoch})
	}
	return h
}

func (h *history) step(ctx context.Context, r *rand.Rand) error {
	pick := r.IntN(len(h.actions))
	a := h.actions[pick]
	switch p := r.IntN(100); {
	case p < 12:
		err := persist(ctx, func() error { return h.store.Credit(ctx, h.credits[pick]) })
		if err == nil {
			h.mu.Lock()
			h.credited[pick] = true
			h.mu.Unlock()
		}
		return err
	case p < 50:
		call := again(a)
		return h.ask(ctx, func() (admission.Artifact, error) { return h.store.Admit(ctx, call) })
	case p < 54:
		id := admission.AttemptID(strconv.Itoa(r.IntN(4)))
		return h.ask(ctx, func() (admission.Artifact, error) { return h.store.Attempt(ctx, a.ActionID, id, epoch) })
	case p < 57:
		id := admission.AttemptID(strconv.Itoa(r.IntN(4)))
		return persist(ctx, func() error { return h.store.Withdraw(ctx, a.ActionID, id) })
	case p < 62:
		return h.ask(ctx, func() (admission.Artifact, error) { return h.store.Lookup(ctx, a.ActionID) })
	}
	c := admission.Settlement{ActionID: a.ActionID, Outcome: stream.Outcome(1 + r.IntN(4)), At: epoch}
	if r.IntN(2) == 0 {
		c.Outcome, c.Refund = stream.Redirected, true
		if r.IntN(4) > 0 {
			c.Sole = h.lastAttempt(a.ActionID)
		}
	}
	return h.ask(ctx, func() (admission.Artifact, error) { return h.store.Settle(ctx, c) })
}

// lastAttempt is the attempt an abandonment names, as far as the callers know.
func (h *history) lastAttempt(actionID string) admission.AttemptID {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a, told := h.told[actionID]; told && a.AttemptID != "" {
		return a.AttemptID
	}
	return "none"
}

// persist presents a call until it is answered. Answers that are no artifact are answers.
func persist(ctx context.Context, call func() error) error {
	for {
		err := call()
		var failed *fence.StoreError
		switch {
		case errors.Is(err, admission.ErrUnknownAction) || errors.Is(err, admission.ErrContested):
			return nil
		case !errors.As(err, &failed) || ctx.Err() != nil:
			return err
		}
	}
}

// reread reads until the store answers: the final check runs against the same unreliable store as the calls.
func reread[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for {
		got, err := read()
		_, ok := errors.AsType[*fence.StoreError](err)
		if !ok || ctx.Err() != nil {
			return got, err
		}
	}
}

func (h *history) ask(ctx context.Context, call func() (admission.Artifact, error)) error {
	return persist(ctx, func() error {
		got, err := call()
		if err != nil {
			return err
		}
		return h.heard(got)
	})
}

// heard compares an answer with the one before.
func (h *history) heard(got admission.Artifact) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, known := h.told[got.ActionID]
	if known && last.AdmissionID != got.AdmissionID {
		return fmt.Errorf("action %s was admitted as %s and as %s", got.ActionID, last.AdmissionID, got.AdmissionID)
	}
	// Answers overtake each other on their way here, so an open one may follow a terminal one.
	if known && !last.Open() {
		if !got.Open() && last.Outcome != got.Outcome {
			return fmt.Errorf("action %s was %v, then %v", got.ActionID, last.Outcome, got.Outcome)
		}
		return nil
	}
	h.told[got.ActionID] = got
	return nil
}

func (h *history) check(ctx context.Context) error {
	sums := map[string]admission.Amount{}
	for i := range h.credited {
		sums[h.credits[i].Owner] += h.credits[i].Amount
	}
	for _, a := range h.actions {
		got, err := reread(ctx, func() (admission.Artifact, error) { return h.store.Lookup(ctx, a.ActionID) })
		if errors.Is(err, admission.ErrUnknownAction) {
			if _, told := h.told[a.ActionID]; told {
				return fmt.Errorf("action %s was answered and is now unknown", a.ActionID)
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := h.heard(got); err != nil {
			return err
		}
		if !h.told[a.ActionID].Open() && got.Open() {
			return fmt.Errorf("action %s was %v and is open again", a.ActionID, h.told[a.ActionID].Outcome)
		}
		sums[a.Actor] -= got.Spent() // wraps below zero, and then fails the comparison
	}
	for _, owner := range h.owners {
		account, err := reread(ctx, func() (admission.Account, error) { return h.store.Balance(ctx, owner, soakAsset) })
		if err != nil {
			return err
		}
		if account.Balance != sums[owner] {
			return fmt.Errorf("account %s holds %d, credits less spends are %d", owner, account.Balance,
				int64(sums[owner]))
		}
	}
	return nil
}
