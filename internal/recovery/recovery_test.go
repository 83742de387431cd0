package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/recovery"
)

// The rows of the package comment.
func TestDecide(t *testing.T) {
	type evidence = recovery.Evidence
	ours, forgotten := recovery.Ours, recovery.Forgotten
	for _, row := range []struct {
		evidence
		want recovery.Action
	}{
		{evidence{Event: recovery.Stale}, recovery.AskAuthority},
		{evidence{Event: recovery.NoOwner, Authority: recovery.Superseded}, recovery.StandDown},
		{evidence{Event: recovery.NoOwner, Authority: recovery.Silent}, recovery.Wait},
		{evidence{Event: recovery.InstalledAnew, Authority: ours}, recovery.AskDurable},
		{evidence{Event: recovery.InstalledAnew, Authority: ours, Durable: recovery.DurableLater}, recovery.Rebase},
		{evidence{Event: recovery.InstalledAnew, Authority: forgotten, Durable: recovery.DurableNotLater},
			recovery.Settle},
		{evidence{Event: recovery.Damaged, Authority: ours}, recovery.Rebase},
		{evidence{Event: recovery.ShownAbove, Authority: forgotten}, recovery.Rebase},
		{evidence{Event: recovery.Stale, Authority: ours, Later: recovery.LaterSeen}, recovery.WatchLater},
		{evidence{Event: recovery.Stale, Authority: ours, Later: recovery.LaterWaits}, recovery.Wait},
		{evidence{Event: recovery.Stale, Authority: ours, Later: recovery.LaterServes}, recovery.StandDown},
		{evidence{Event: recovery.Stale, Authority: forgotten, Later: recovery.LaterDead}, recovery.TakeUp},
		{evidence{Event: recovery.NoOwner, Authority: ours, Earlier: recovery.EarlierSeen}, recovery.AskCopies},
		{evidence{Event: recovery.NoOwner, Authority: ours, Earlier: recovery.EarlierUnconfirmed}, recovery.Wait},
		{evidence{Event: recovery.NoOwner, Authority: ours, Earlier: recovery.EarlierServes}, recovery.StandDown},
		{evidence{Event: recovery.Forked, Authority: forgotten, Earlier: recovery.EarlierLeft}, recovery.TakeUp},
		{evidence{Event: recovery.NoOwner, Authority: forgotten}, recovery.Rebase},
		{evidence{Event: recovery.JournalRestored, Authority: forgotten}, recovery.Rebase},
		{evidence{Event: recovery.JournalRestored, Authority: ours}, recovery.WriteBase},
		{evidence{Event: recovery.JournalTaken, Authority: ours}, recovery.TakeUp},
		{evidence{Event: recovery.NoOwner, Authority: ours}, recovery.InstallAnew},
		{evidence{Event: recovery.Behind, Authority: ours, Kept: true}, recovery.Reappend},
		{evidence{Event: recovery.Behind, Authority: ours}, recovery.Rebase},
		{evidence{Event: recovery.Replay, Authority: ours}, recovery.Rebase},
		{evidence{Event: recovery.Forked, Authority: ours}, recovery.Rebase},
		{evidence{Event: recovery.Stale, Authority: ours}, recovery.Fail},
		{evidence{Event: recovery.ReinstallBehind}, recovery.Rebase},
		{evidence{Event: recovery.ReinstallRefused}, recovery.TakeUp},
		{evidence{Event: recovery.ClaimStale}, recovery.AskAuthority},
		{evidence{Event: recovery.ClaimStale, Authority: recovery.Superseded}, recovery.StandDown},
		{evidence{Event: recovery.ClaimStale, Authority: ours, Later: recovery.LaterSeen}, recovery.TakeUp},
		{evidence{Event: recovery.ClaimStale, Authority: forgotten}, recovery.ClaimAgain},
		{evidence{Event: recovery.ClaimBehind}, recovery.ClaimAgain},
		{evidence{Event: recovery.ClaimBehind, Earlier: recovery.EarlierSeen}, recovery.AskCopies},
		{evidence{Event: recovery.ClaimBehind, Earlier: recovery.EarlierServes}, recovery.StandDown},
		{evidence{Event: recovery.ClaimBehind, Earlier: recovery.EarlierLeft}, recovery.TakeUp},
		{evidence{Event: recovery.ClaimBehind, Earlier: recovery.EarlierUnconfirmed}, recovery.AskAuthority},
		{evidence{Event: recovery.ClaimBehind, Authority: ours, Earlier: recovery.EarlierUnconfirmed}, recovery.Wait},
	} {
		require.Equal(t, row.want, recovery.Decide(&row.evidence), "%+v", row.evidence)
	}
}

// Whatever the evidence: nothing is asked that is known, and nothing replaces or installs a history before the
// authority has answered, or while another owner is in sight.
func TestDecideOnAllEvidence(t *testing.T) {
	changes := []recovery.Action{recovery.Settle, recovery.InstallAnew, recovery.Reappend, recovery.WriteBase}
	n := 0
	for e := range all {
		n++
		a := recovery.Decide(&e)
		// Its epoch was granted just now, or by the answer before.
		granted := e.Event >= recovery.JournalTaken && e.Event != recovery.ClaimStale
		switch a {
		case recovery.AskAuthority:
			require.Equal(t, recovery.Unasked, e.Authority, "%+v", e)
		case recovery.AskDurable:
			require.Equal(t, recovery.DurableUnasked, e.Durable, "%+v", e)
		case recovery.WatchLater:
			require.Equal(t, recovery.LaterSeen, e.Later, "%+v", e)
		case recovery.AskCopies:
			require.Equal(t, recovery.EarlierSeen, e.Earlier, "%+v", e)
		}
		if e.Authority == recovery.Unasked && !granted {
			require.Equal(t, recovery.AskAuthority, a, "%+v", e)
		}
		if e.Event.Refusal() && (e.Later != recovery.NoLater || e.Earlier != recovery.NoEarlier) {
			require.NotContains(t, append(changes, recovery.Rebase), a, "%+v", e)
		}
		if e.Authority == recovery.Superseded && !granted {
			require.Equal(t, recovery.StandDown, a, "%+v", e)
		}
	}
	require.Equal(t, 14*5*5*5*3*2, n)
}

// all yields all evidence there can be.
func all(yield func(recovery.Evidence) bool) {
	for event := recovery.NoOwner; event <= recovery.ClaimBehind; event++ {
		for authority := recovery.Unasked; authority <= recovery.Silent; authority++ {
			for later := recovery.NoLater; later <= recovery.LaterDead; later++ {
				for earlier := recovery.NoEarlier; earlier <= recovery.EarlierLeft; earlier++ {
					for durable := recovery.DurableUnasked; durable <= recovery.DurableLater; durable++ {
						for _, kept := range []bool{false, true} {
							e := recovery.Evidence{Event: event, Authority: authority, Later: later, Earlier: earlier,
								Durable: durable, Kept: kept}
							if !yield(e) {
								return
							}
						}
					}
				}
			}
		}
	}
}
