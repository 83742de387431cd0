package dynamoledger_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
)

// TestAWrongClock: one gateway's clock is two minutes off. It neither skips a cooldown nor locks the account for the
// others, and says in its log that its clock is wrong.
func TestAWrongClock(t *testing.T) {
	table := newTable(t)
	for _, off := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		t.Run(off.String(), func(t *testing.T) {
			var log bytes.Buffer
			open := func(off time.Duration) *admission.AdmissionLedger {
				store, err := dynamoledger.New(connect(t, nil), table,
					&dynamoledger.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				require.NoError(t, err)
				store.Mistime(off)
				ledger, err := admission.New(store, nil)
				require.NoError(t, err)
				return ledger
			}
			right, wrong := open(0), open(off)
			dash := func(l *admission.AdmissionLedger, actor string, cooldown time.Duration) admission.Artifact {
				t.Helper()
				art, err := l.Admit(t.Context(), admission.Action{ID: admission.NewActionID(), Actor: actor,
					Asset: "dash", Tile: 7, Cooldown: cooldown})
				require.NoError(t, err)
				return art
			}
			skips, locked := "w-"+admission.NewActionID(), "w-"+admission.NewActionID()
			require.True(t, dash(right, skips, time.Minute).Open())
			assert.Equal(t, admission.ReasonCooldown, dash(wrong, skips, time.Minute).Reason, "a minute is not over")

			require.True(t, dash(wrong, locked, time.Minute).Open())
			account, err := right.Balance(t.Context(), locked, "dash")
			require.NoError(t, err)
			until := time.Until(account.CooldownUntil)
			assert.InDelta(t, time.Minute, until, float64(20*time.Second), "not three minutes, and not none")
			assert.Contains(t, log.String(), "this machine's clock is wrong")
		})
	}
}
