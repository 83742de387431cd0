package admissiontest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
)

// model is what a store should hold of one account and the actions on it: the contract in its shortest form.
type model struct {
	account   admission.Account
	artifacts map[string]admission.Artifact
	credits   map[string]admission.Credit
}

func (m *model) admit(a admission.Artifact) admission.Artifact {
	if had, known := m.artifacts[a.ActionID]; known {
		return had // whatever the second request says; the ledger compares fingerprints
	}
	switch {
	case m.account.Balance < a.Cost:
		a.Reason = admission.ReasonBalance
	case a.Admitted.Before(m.account.CooldownUntil):
		a.Reason = admission.ReasonCooldown
	default:
		m.account.Balance -= a.Cost
		m.account.Version++
		if a.Cooldown > 0 {
			m.account.CooldownUntil = a.Admitted.Add(a.Cooldown)
		}
	}
	if a.Reason != 0 {
		a.Outcome, a.Resolved = stream.Rejected, a.Admitted
	}
	m.artifacts[a.ActionID] = a
	return a
}

// change changes an artifact that is open, and returns what there is then.
func (m *model) change(id string, edit func(a *admission.Artifact) error) (admission.Artifact, error) {
	a, known := m.artifacts[id]
	if !known {
		return a, admission.ErrUnknownAction
	}
	if !a.Open() {
		return a, nil
	}
	err := edit(&a)
	m.artifacts[id] = a
	return a, err
}

func (m *model) attempt(id string, attempt admission.AttemptID, at time.Time) (admission.Artifact, error) {
	return m.change(id, func(a *admission.Artifact) error {
		if a.AttemptID != attempt {
			a.Attempts++
			a.AttemptID, a.Attempted = attempt, at
		}
		return nil
	})
}

func (m *model) withdraw(id string, attempt admission.AttemptID) (admission.Artifact, error) {
	return m.change(id, func(a *admission.Artifact) error {
		if a.AttemptID == attempt {
			a.Attempts--
			a.AttemptID = ""
		}
		return nil
	})
}

func (m *model) settle(c admission.Settlement) (admission.Artifact, error) {
	return m.change(c.ActionID, func(a *admission.Artifact) error {
		if c.Sole != "" && (a.Attempts != 1 || a.AttemptID != c.Sole) {
			return admission.ErrContested
		}
		if c.Refund && m.account.Balance > admission.MaxAmount-a.Cost {
			return admission.ErrBalanceLimit
		}
		a.Outcome, a.Resolved, a.Refunded = c.Outcome, c.At, c.Refund
		if c.Refund {
			m.account.Balance += a.Cost
			m.account.Version++
			if m.account.CooldownUntil.Equal(a.CooldownUntil()) { // and not a later action's
				m.account.CooldownUntil = time.Time{}
			}
		}
		return nil
	})
}

func (m *model) credit(c admission.Credit) error {
	had, known := m.credits[c.ID]
	switch {
	case known && (had.Amount != c.Amount || had.Owner != c.Owner || had.Asset != c.Asset):
		return admission.ErrReused
	case known:
		return nil
	case m.account.Balance > admission.MaxAmount-c.Amount:
		return admission.ErrBalanceLimit // and the ID stays unused
	}
	m.credits[c.ID] = c
	m.account.Balance += c.Amount
	m.account.Version++
	return nil
}

// drawCredit gives a credit, often one that was given before, and now and then another under its ID, or one that the
// account has just room for, or just none.
func (m *model) drawCredit(rng *rand.Rand, id string, at time.Time) admission.Credit {
	c := admission.Credit{ID: id, Owner: m.account.Owner, Asset: m.account.Asset, Amount: 3, At: at}
	had, known := m.credits[id]
	switch balance := m.account.Balance; {
	case known:
		c.Amount = had.Amount
		edits := []func(){
			func() { c.Amount = had.Amount%2 + 1 }, func() { c.Owner = player() }, func() { c.Asset = "silver" },
		}
		if n := rng.IntN(6); n < len(edits) {
			edits[n]()
		}
	case balance > 0 && balance < admission.MaxAmount && rng.IntN(4) == 0:
		c.Amount = admission.MaxAmount - balance + admission.Amount(rng.IntN(2))
	}
	return c
}

// testModel compares the answers to random calls, many of them about the same few actions, with the model.
func testModel(t *testing.T, s suite) {
	rng := seed.Rand(t)
	for range 12 {
		m := &model{artifacts: map[string]admission.Artifact{}, credits: map[string]admission.Credit{}}
		m.account.Owner, m.account.Asset = player(), "card"
		require.Equal(t, m.account, s.balance(m.account.Owner, "card"))
		s.credit(m.account.Owner, "another asset", 7)
		other := s.balance(m.account.Owner, "another asset")
		var actions []admission.Artifact
		for range 5 {
			a := action(m.account.Owner, "card", admission.Amount(rng.IntN(4)))
			a.Admitted = epoch.Add(time.Duration(rng.IntN(5)) * 500 * time.Millisecond)
			a.Attempted, a.Cooldown = a.Admitted, time.Duration(rng.IntN(3))*500*time.Millisecond
			actions = append(actions, a)
		}
		for range 45 {
			s.compare(m, rng, actions[rng.IntN(len(actions))])
		}
		require.Equal(t, other, s.balance(m.account.Owner, "another asset"))
	}
}

// compare makes one random call about an action, and requires the model's answer and what the store then has.
func (s suite) compare(m *model, rng *rand.Rand, a admission.Artifact) {
	id, at := a.ActionID, epoch.Add(time.Duration(rng.IntN(1000))*time.Millisecond)
	attempts := []admission.AttemptID{a.AttemptID, "second", "third", m.artifacts[id].AttemptID}
	attempt := attempts[rng.IntN(3)]
	if last := attempts[3]; last != "" && rng.IntN(2) == 0 {
		attempt = last
	}
	var got, want admission.Artifact
	var err, wantErr error
	switch n := rng.IntN(20); {
	case n < 5:
		call := again(a)
		call.Attempted = call.Admitted
		if _, known := m.artifacts[id]; known && rng.IntN(2) == 0 {
			call.Cost, call.Fingerprint = call.Cost+1, admission.Fingerprint{2}
		}
		got, err = s.store.Admit(s.ctx, call)
		want = m.admit(call)
	case n < 8:
		got, err = s.store.Attempt(s.ctx, id, attempt, at)
		want, wantErr = m.attempt(id, attempt, at)
	case n < 11:
		_, wantErr = m.withdraw(id, attempt)
		err = s.store.Withdraw(s.ctx, id, attempt)
	case n < 15:
		c := admission.Settlement{ActionID: id, Outcome: stream.Outcome(1 + rng.IntN(4)), At: at}
		if rng.IntN(3) > 0 {
			c.Outcome, c.Refund = stream.Redirected, true
			if rng.IntN(4) > 0 {
				c.Sole = attempt
			}
		}
		got, err = s.store.Settle(s.ctx, c)
		want, wantErr = m.settle(c)
	default: // credits and actions are different things, so an ID may name one of each
		c := m.drawCredit(rng, id, at)
		err, wantErr = s.store.Credit(s.ctx, c), m.credit(c)
	}
	require.ErrorIs(s, err, wantErr)
	require.Equal(s, want, got)
	if held, known := m.artifacts[id]; known {
		require.Equal(s, held, s.lookup(id))
	} else {
		_, err := s.store.Lookup(s.ctx, id)
		require.ErrorIs(s, err, admission.ErrUnknownAction)
	}
	require.Equal(s, m.account, s.balance(a.Actor, a.Asset))
}
