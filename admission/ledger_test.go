package admission_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

func TestLedger(t *testing.T) {
	store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	var admitted []admission.AdmitInfo
	var settled []admission.SettleInfo
	ledger, err := admission.New(store, &admission.Config{Hooks: admission.Hooks{
		Admitted: func(i admission.AdmitInfo) { admitted = append(admitted, i) },
		Settled:  func(i admission.SettleInfo) { settled = append(settled, i) },
	}})
	require.NoError(t, err)
	ctx := t.Context()
	require.NoError(t, ledger.Credit(ctx, "ann", "card", 2, "quest-1"))
	require.NoError(t, ledger.Credit(ctx, "ann", "card", 2, "quest-1"))
	require.ErrorIs(t, ledger.Credit(ctx, "ann", "card", 3, "quest-1"), admission.ErrReused)
	require.ErrorIs(t, ledger.Credit(ctx, "ann", "card", 0, "quest-2"), fence.ErrInvalidArgument)
	require.ErrorIs(t, ledger.Credit(ctx, "ann", "card", 1, ""), fence.ErrInvalidArgument)

	first, err := ledger.Admit(ctx, play("x"))
	require.NoError(t, err)
	assert.False(t, first.Duplicate)
	assert.Equal(t, admission.AttemptID(first.AdmissionID), first.AttemptID)
	assert.Equal(t, admission.FingerprintOf(play("x")), first.Fingerprint)
	again, err := ledger.Admit(ctx, play("x"))
	require.NoError(t, err)
	assert.True(t, again.Duplicate)
	other := play("x")
	other.Body = nil
	_, err = ledger.Admit(ctx, other)
	require.ErrorIs(t, err, admission.ErrReused)

	_, err = ledger.Abandon(ctx, first, stream.Applied)
	require.ErrorIs(t, err, fence.ErrInvalidArgument, "what a tile applied is not given back")
	_, err = ledger.Abandon(ctx, admission.Artifact{ActionID: "x"}, stream.Rejected)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = ledger.Resolve(ctx, "x", 0)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = ledger.Resolve(ctx, "y", stream.Applied)
	require.ErrorIs(t, err, admission.ErrUnknownAction)
	attempt, err := ledger.Attempt(ctx, "x")
	require.NoError(t, err)
	assert.Equal(t, 2, attempt.Attempts)
	contested, err := ledger.Abandon(ctx, attempt, stream.Redirected)
	require.ErrorIs(t, err, admission.ErrContested)
	assert.True(t, contested.Open())
	require.NoError(t, ledger.Withdraw(ctx, attempt))
	got, err := ledger.Resolve(ctx, "x", stream.Fizzled)
	require.NoError(t, err)
	assert.Equal(t, stream.Fizzled, got.Outcome)
	got, err = ledger.Resolve(ctx, "x", stream.Applied)
	require.NoError(t, err)
	assert.Equal(t, stream.Fizzled, got.Outcome, "the first outcome wins")

	for _, limit := range []int{0, 1001} {
		_, err = ledger.Pending(ctx, time.Time{}, time.Now(), limit)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	for _, bad := range []func() error{
		func() error { _, err := ledger.Lookup(ctx, ""); return err },
		func() error { _, err := ledger.Attempt(ctx, ""); return err },
		func() error { _, err := ledger.Resolve(ctx, "", stream.Applied); return err },
		func() error { _, err := ledger.Balance(ctx, "", "card"); return err },
		func() error { _, err := ledger.Balance(ctx, "ann", "\x01"); return err },
	} {
		require.ErrorIs(t, bad(), fence.ErrInvalidArgument)
	}
	require.Len(t, admitted, 3)
	assert.True(t, admitted[1].Duplicate)
	require.ErrorIs(t, admitted[2].Err, admission.ErrReused)
	last := settled[len(settled)-1]
	assert.Equal(t, stream.Applied, last.Asked)
	assert.Equal(t, stream.Fizzled, last.Outcome)
}

func TestCooldownRunsOnTheLedgersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		dash := admission.Action{ID: "1", Actor: "ann", Asset: "dash", Cooldown: 3 * time.Second, Tile: here}
		art, err := r.gate.Act(t.Context(), dash)
		require.NoError(t, err)
		assert.Equal(t, stream.Applied, art.Outcome)
		time.Sleep(2999 * time.Millisecond)
		dash.ID = "2"
		art, err = r.gate.Act(t.Context(), dash)
		require.NoError(t, err)
		assert.Equal(t, admission.ReasonCooldown, art.Reason)
		time.Sleep(time.Millisecond)
		dash.ID = "3"
		art, err = r.gate.Act(t.Context(), dash)
		require.NoError(t, err)
		assert.Equal(t, stream.Applied, art.Outcome)
	})
}

// TestFingerprint pins the hash: another one would refuse every retry across an upgrade.
func TestFingerprint(t *testing.T) {
	a := admission.Action{ID: "any", Actor: "ann", Asset: "card", Cost: 3, Cooldown: 1500 * time.Millisecond,
		Tile: here, Body: []byte("body")}
	assert.Equal(t, "0e41067d08cb62e5ea3872f2c61ffc983d2a8828de1a97e93f3dd5c3223a39aa",
		admission.FingerprintOf(a).String())
	b := a
	b.Actor, b.Asset = "annc", "ard"
	assert.NotEqual(t, admission.FingerprintOf(a), admission.FingerprintOf(b), "fields do not run together")
	b = a
	b.ID = "another"
	assert.Equal(t, admission.FingerprintOf(a), admission.FingerprintOf(b))
}

func TestNames(t *testing.T) {
	for s, want := range map[string]string{
		admission.ReasonBalance.String(): "balance", admission.ReasonCooldown.String(): "cooldown",
		admission.Reason(9).String(): "reason(9)",
	} {
		assert.Equal(t, want, s)
	}
	for r := admission.Reason(0); r <= admission.ReasonCooldown; r++ {
		got, err := admission.ParseReason(r.String())
		require.NoError(t, err)
		assert.Equal(t, r, got)
	}
	_, err := admission.ParseReason("greed")
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
