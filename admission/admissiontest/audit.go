package admissiontest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
)

// audit is the balance of an asset that only this test uses, and what is open of it.
func (s suite) audit(asset string) (admission.Currency, []admission.Artifact) {
	s.Helper()
	ledger, err := admission.New(s.store, nil)
	require.NoError(s, err)
	report, err := ledger.Audit(s.ctx, epoch.Add(time.Hour))
	require.NoError(s, err)
	require.Empty(s, report.Damaged)
	var open []admission.Artifact
	for _, a := range report.Pending {
		if a.Asset == asset {
			open = append(open, a)
		}
	}
	for _, c := range report.Currencies {
		if c.Asset == asset {
			return c, open
		}
	}
	return admission.Currency{Asset: asset}, open
}

func testAudit(t *testing.T, s suite) {
	asset := "asset-" + admission.NewActionID()
	ann, bob := player(), player()
	s.credit(ann, asset, 10)
	s.credit(bob, asset, 5)
	var actions []admission.Artifact
	for _, cost := range []admission.Amount{1, 2, 4, 50, 0} {
		a := action(ann, asset, cost)
		a.Admitted = epoch.Add(-time.Duration(cost) * time.Second)
		a.Attempted = a.Admitted
		s.admit(a)
		actions = append(actions, a)
	}
	s.settle(actions[0].ActionID, stream.Applied, "")
	s.settle(actions[1].ActionID, stream.Redirected, actions[1].AttemptID)
	got, open := s.audit(asset)
	assert.Equal(t, admission.Currency{Asset: asset, Accounts: 2, Actions: 5, Credited: 15, Held: 10, Spent: 5, Open: 4,
		Refunded: 2}, got)
	assert.True(t, got.Conserved())
	require.Len(t, open, 2, "not those with an outcome")
	assert.Equal(t, actions[2].ActionID, open[0].ActionID, "the oldest first")
	assert.Equal(t, actions[4].ActionID, open[1].ActionID)

	stop := context.Canceled
	require.ErrorIs(t, s.store.Scan(s.ctx, func(admission.Record) error { return stop }), stop)
}

// testInterrupted ends calls at any moment: what a call spends or gives back, and the record of it, are one step.
func testInterrupted(t *testing.T, s suite) {
	rng := seed.Rand(t)
	asset, who := "asset-"+admission.NewActionID(), player()
	s.credit(who, asset, 1000)
	var delays []time.Duration
	for range 60 {
		delays = append(delays, time.Duration(rng.Int64N(int64(3*time.Millisecond))))
	}
	together(len(delays), func(i int) {
		ctx, cancel := context.WithTimeout(s.ctx, delays[i])
		defer cancel()
		a := action(who, asset, admission.Amount(1+i%7))
		if i%4 == 0 {
			a.Cost = 2000 // rejected
		}
		if _, err := s.store.Admit(ctx, a); err != nil {
			return
		}
		c := admission.Settlement{ActionID: a.ActionID, Outcome: stream.Rejected, At: epoch}
		if i%2 == 1 {
			c.Refund, c.Sole = true, a.AttemptID
		}
		_, _ = s.store.Settle(ctx, c) // interrupted, or not
	})
	var last admission.Currency
	waittest.Until(t, func() bool { // what was given up may still arrive
		c, _ := s.audit(asset)
		same := c == last
		last = c
		return same && c.Conserved()
	}, 10*time.Second, 20*time.Millisecond, "%+v", &last)
	assert.EqualValues(t, 1000, last.Credited)
}

// testReplays compares each answer with the first one, byte by byte, when the request comes again: later, at another
// price, by other callers, after the account has changed.
func testReplays(t *testing.T, s suite) {
	who := player()
	first := map[string][]byte{}
	note := func(a admission.Artifact) {
		b, err := json.Marshal(a)
		require.NoError(t, err)
		first[a.ActionID] = b
	}
	poor := s.admit(action(who, "card", 1))
	note(poor)
	s.credit(who, "card", 9)
	cooled := action(who, "card", 1)
	cooled.Cooldown = time.Hour
	s.admit(cooled)
	note(s.settle(cooled.ActionID, stream.Applied, ""))
	note(s.admit(action(who, "card", 1))) // cooling down
	given := action(who, "gem", 0)
	s.admit(given)
	note(s.settle(given.ActionID, stream.Redirected, given.AttemptID))
	require.Len(t, first, 4)

	s.credit(who, "card", 100)
	for id, want := range first {
		same := func(a admission.Artifact, err error) {
			t.Helper()
			require.NoError(t, err)
			got, err := json.Marshal(a)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
		}
		retry := action(player(), "gold", 7)
		retry.ActionID, retry.Body = id, []byte("another")
		retry.Admitted = epoch.Add(48 * time.Hour)
		same(s.store.Admit(s.ctx, retry))
		same(s.store.Settle(s.ctx, admission.Settlement{ActionID: id, Outcome: stream.Fizzled, At: retry.Admitted}))
		same(s.store.Settle(s.ctx, admission.Settlement{ActionID: id, Outcome: stream.Rejected, At: retry.Admitted,
			Refund: true, Sole: retry.AttemptID}))
		same(s.store.Settle(s.ctx, admission.Settlement{ActionID: id, Outcome: stream.Rejected, At: retry.Admitted,
			Refund: true}))
		same(s.store.Attempt(s.ctx, id, retry.AttemptID, retry.Admitted))
		same(s.store.Lookup(s.ctx, id))
	}
}

// testRefundLimit: what is given back obeys the limit that credits obey, and nothing is lost by it.
func testRefundLimit(t *testing.T, s suite) {
	who := player()
	s.credit(who, "gold", admission.MaxAmount)
	a := action(who, "gold", 10)
	a.Cooldown = time.Minute
	s.admit(a)
	s.credit(who, "gold", 10)
	abandon := admission.Settlement{ActionID: a.ActionID, Outcome: stream.Rejected, At: epoch, Refund: true,
		Sole: a.AttemptID}
	_, err := s.store.Settle(s.ctx, abandon)
	require.ErrorIs(t, err, admission.ErrBalanceLimit)
	assert.Equal(t, admission.MaxAmount, s.balance(who, "gold").Balance)
	assert.True(t, s.lookup(a.ActionID).Open(), "it can be given back later")

	room := action(who, "gold", 10)
	room.Admitted = a.CooldownUntil()
	s.admit(room)
	got, err := s.store.Settle(s.ctx, abandon)
	require.NoError(t, err)
	assert.True(t, got.Refunded)
	assert.Equal(t, admission.MaxAmount, s.balance(who, "gold").Balance)
}

// testClock: the store has one clock, which moves.
func testClock(t *testing.T, s suite) {
	before, err := s.store.Now(s.ctx)
	require.NoError(t, err)
	assert.Equal(t, time.UTC, before.Location())
	assert.Zero(t, before.Nanosecond()%int(time.Millisecond))
	waittest.Until(t, func() bool {
		now, err := s.store.Now(s.ctx)
		return err == nil && now.After(before)
	}, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, _ = s.store.Now(ctx) // may answer; must not hang

	ledger, err := admission.New(s.store, nil)
	require.NoError(t, err)
	a := admission.Action{ID: admission.NewActionID(), Actor: player(), Asset: "dash", Tile: 7, Cooldown: time.Hour}
	art, err := ledger.Admit(s.ctx, a)
	require.NoError(t, err)
	assert.False(t, art.Admitted.Before(before), "an admission is dated by the store's clock")
}
