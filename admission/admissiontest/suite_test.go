package admissiontest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/admissiontest"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func memory(t *testing.T) *sqliteledger.Store {
	t.Helper()
	store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// mutant is a store with one promise broken.
type mutant struct {
	admission.Store
	admit   func(ctx context.Context, s admission.Store, a admission.Artifact) (admission.Artifact, error)
	attempt func(ctx context.Context, s admission.Store, id string) (admission.Artifact, error)
	settle  func(ctx context.Context, s admission.Store, c admission.Settlement) (admission.Artifact, error)
	credit  func(ctx context.Context, s admission.Store, g admission.Credit) error
}

func (m mutant) Admit(ctx context.Context, a admission.Artifact) (admission.Artifact, error) {
	if m.admit == nil {
		return m.Store.Admit(ctx, a)
	}
	return m.admit(ctx, m.Store, a)
}

func (m mutant) Attempt(
	ctx context.Context, id string, attempt admission.AttemptID, at time.Time,
) (admission.Artifact, error) {
	if m.attempt == nil {
		return m.Store.Attempt(ctx, id, attempt, at)
	}
	return m.attempt(ctx, m.Store, id)
}

func (m mutant) Settle(ctx context.Context, c admission.Settlement) (admission.Artifact, error) {
	if m.settle == nil {
		return m.Store.Settle(ctx, c)
	}
	return m.settle(ctx, m.Store, c)
}

func (m mutant) Credit(ctx context.Context, g admission.Credit) error {
	if m.credit == nil {
		return m.Store.Credit(ctx, g)
	}
	return m.credit(ctx, m.Store, g)
}

// TestSoakCatchesMutants breaks one promise at a time; the soak must notice.
func TestSoakCatchesMutants(t *testing.T) {
	for name, m := range map[string]mutant{
		"a retry spends again": {admit: func(ctx context.Context, s admission.Store,
			a admission.Artifact) (admission.Artifact, error) {
			if had, err := s.Lookup(ctx, a.ActionID); err == nil {
				b := a
				b.ActionID = admission.NewActionID()
				_, err := s.Admit(ctx, b)
				return had, err
			}
			return s.Admit(ctx, a)
		}},
		"a retry gets an admission of its own": {admit: func(ctx context.Context, s admission.Store,
			a admission.Artifact) (admission.Artifact, error) {
			got, err := s.Admit(ctx, a)
			got.AdmissionID = a.AdmissionID
			return got, err
		}},
		"the last outcome wins": {settle: func(ctx context.Context, s admission.Store,
			c admission.Settlement) (admission.Artifact, error) {
			got, err := s.Settle(ctx, c)
			got.Outcome = c.Outcome
			return got, err
		}},
		"abandoning gives back twice": {settle: func(ctx context.Context, s admission.Store,
			c admission.Settlement) (admission.Artifact, error) {
			got, err := s.Settle(ctx, c)
			if err == nil && c.Refund && got.Refunded && got.Cost > 0 {
				g := admission.Credit{ID: admission.NewActionID(), Owner: got.Actor, Asset: got.Asset, Amount: got.Cost,
					At: c.At}
				err = s.Credit(ctx, g)
			}
			return got, err
		}},
		"abandoning gives back nothing": {settle: func(ctx context.Context, s admission.Store,
			c admission.Settlement) (admission.Artifact, error) {
			got, err := s.Settle(ctx, c)
			if err == nil && got.Refunded && got.Cost > 0 {
				b := got
				b.ActionID, b.Outcome, b.Attempts = admission.NewActionID(), 0, 1
				_, err = s.Admit(ctx, b)
			}
			return got, err
		}},
		"a credit is minted at each try": {credit: func(ctx context.Context, s admission.Store,
			g admission.Credit) error {
			g.ID = admission.NewActionID()
			return s.Credit(ctx, g)
		}},
		"an answer is made up": {attempt: func(_ context.Context, _ admission.Store, id string) (admission.Artifact,
			error) {
			return admission.Artifact{ActionID: id, AdmissionID: "x", Outcome: stream.Applied}, nil
		}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			m.Store = memory(t)
			for seed := range uint64(20) {
				if err := admissiontest.Soak(t.Context(), m, seed); err != nil {
					t.Logf("caught: %v", err)
					return
				}
			}
			t.Error("not noticed")
		})
	}
	require.NoError(t, admissiontest.Soak(t.Context(), memory(t), 1))
}
