package admission_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// TestOutcomeIsAskedForAlone: a question admits, sends and spends nothing, and gets the first answer byte by byte.
func TestOutcomeIsAskedForAlone(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 2)
	_, err := r.gate.Outcome(t.Context(), "ann", "x")
	require.ErrorIs(t, err, admission.ErrUnknownAction)
	assert.Equal(t, admission.Amount(2), r.balance("ann"))

	first, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	calls := r.world.calls
	for range 2 {
		asked, err := r.gate.Outcome(t.Context(), "ann", "x")
		require.NoError(t, err)
		want, err := json.Marshal(first)
		require.NoError(t, err)
		got, err := json.Marshal(asked)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
		assert.False(t, asked.Resolved.IsZero())
	}
	assert.Equal(t, calls, r.world.calls, "no tile was asked")
	assert.Equal(t, admission.Amount(1), r.balance("ann"))

	_, err = r.gate.Outcome(t.Context(), "bob", "x")
	require.ErrorIs(t, err, admission.ErrUnknownAction, "of another actor's action, not even that it exists")
	_, err = r.gate.Outcome(t.Context(), "ann", "")
	require.ErrorIs(t, err, fence.ErrInvalidArgument)

	r.world.down = true
	_, err = r.gate.Act(t.Context(), play("y"))
	require.ErrorIs(t, err, admission.ErrPending)
	open, err := r.gate.Outcome(t.Context(), "ann", "y")
	require.NoError(t, err)
	assert.True(t, open.Open())
}

// TestQuestionsObeyTheActorsRate: they read the ledger.
func TestQuestionsObeyTheActorsRate(t *testing.T) {
	r := newRig(t, &admission.GatewayConfig{ActRate: admission.Rate{PerSecond: 0.001, Burst: 3}})
	var err error
	for range 4 {
		_, err = r.gate.Outcome(t.Context(), "ann", "x")
	}
	require.ErrorIs(t, err, admission.ErrLimited)
}

// TestRetryWindowIsShorterThanTheMemoryOfTheLedger: an action whose record is gone would be a new one.
func TestRetryWindowIsShorterThanTheMemoryOfTheLedger(t *testing.T) {
	r := newRig(t, nil)
	_, err := admission.NewGateway(r.ledger, r.router, r.world, admission.ClientPrices,
		&admission.GatewayConfig{RetryWindow: admission.MinRetention + time.Second})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	assert.GreaterOrEqual(t, admission.MinRetention, 24*time.Hour)
	assert.Less(t, tile.DefaultRetryWindow, admission.MinRetention)
}

// TestAuditSaysWhatIsPending: an action whose gateway has gone, and the sums.
func TestAuditSaysWhatIsPending(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 5)
	_, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	r.world.down = true
	_, err = r.gate.Act(t.Context(), play("y"))
	require.ErrorIs(t, err, admission.ErrPending)
	now, err := r.ledger.Now(t.Context())
	require.NoError(t, err)
	report, err := r.ledger.Audit(t.Context(), now.Add(time.Second))
	require.NoError(t, err)
	assert.True(t, report.Sound())
	require.Len(t, report.Pending, 1)
	assert.Equal(t, "y", report.Pending[0].ActionID)
	assert.Equal(t, []admission.Currency{{Asset: "card", Accounts: 1, Actions: 2, Credited: 5, Held: 3, Spent: 2,
		Open: 1}}, report.Currencies)

	_, err = r.ledger.Resolve(t.Context(), "y", stream.Applied)
	require.NoError(t, err)
	report, err = r.ledger.Audit(t.Context(), now.Add(time.Hour))
	require.NoError(t, err)
	assert.Empty(t, report.Pending)
}
