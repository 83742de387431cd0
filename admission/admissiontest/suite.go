// Package admissiontest is the contract of admission.Store as tests. A back end passes it, embedded and
// real alike:
//
//	func TestStore(t *testing.T) {
//		admissiontest.Run(t, func(t *testing.T) admission.Store { return openMine(t) })
//	}
//
// The suite uses names of its own, so the stores it gets may share a database that holds other
// data. It asks for a store once a test and does not close it.
//
// Two of its tests are random: they print their seed, and the environment variable TILEFENCE_SEED repeats a run's
// calls (how those of several goroutines interleave stays the scheduler's choice).
package admissiontest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
)

// Run runs the suite against the stores that open returns.
func Run(t *testing.T, open func(t *testing.T) admission.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, suite)
	}{
		{"PendingListsTheLongestUntouched", testPending},
		{"NamesDoNotRunTogether", testNames},
		{"FieldsRoundTrip", testRoundTrip},
		{"CancelledContext", testCancelled},
		{"ConcurrentAdmitsOfOneActionSpendOnce", testConcurrentSame},
		{"ConcurrentAdmitsRacingACreditGetOneAnswer", testConcurrentCredit},
		{"ConcurrentSpendsNeverOverdraw", testConcurrentSpends},
		{"ConcurrentSettlementsHaveOneWinner", testConcurrentSettle},
		{"RandomHistoryKeepsTheSums", testRandom},
		{"Model", testModel},
		{"AuditBalancesEveryCurrency", testAudit},
		{"InterruptedCallsConserve", testInterrupted},
		{"ReplaysAreTheFirstAnswer", testReplays},
		{"RefundsObeyTheLimit", testRefundLimit},
		{"Clock", testClock},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, suite{T: t, store: open(t), ctx: t.Context()})
		})
	}
}

// suite is one test's store and its short ways of saying things.
type suite struct {
	*testing.T
	store admission.Store
	ctx   context.Context // of one test
}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)

// action makes an artifact as a ledger would present it, by a new action ID.
func action(actor, asset string, cost admission.Amount) admission.Artifact {
	return again(admission.Artifact{
		ActionID: admission.NewActionID(), Actor: actor, Asset: asset, Cost: cost,
		Tile: 0x85283473fffffff, Body: []byte("body"), Fingerprint: admission.Fingerprint{1},
		Attempts: 1, Admitted: epoch, Attempted: epoch,
	})
}

// again makes the same request with the admission ID of another call.
func again(a admission.Artifact) admission.Artifact {
	id := fence.NewClaimID().String()
	a.AdmissionID, a.AttemptID = admission.AdmissionID(id), admission.AttemptID(id)
	return a
}

func (s suite) credit(owner, asset string, amount admission.Amount) {
	s.Helper()
	require.NoError(s, s.store.Credit(s.ctx, admission.Credit{
		ID: admission.NewActionID(), Owner: owner, Asset: asset, Amount: amount, At: epoch,
	}))
}

func (s suite) admit(a admission.Artifact) admission.Artifact {
	s.Helper()
	got, err := s.store.Admit(s.ctx, a)
	require.NoError(s, err)
	return got
}

func (s suite) settle(id string, o stream.Outcome, sole admission.AttemptID) admission.Artifact {
	s.Helper()
	got, err := s.store.Settle(s.ctx, admission.Settlement{ActionID: id, Outcome: o, At: epoch.Add(time.Second),
		Refund: sole != "", Sole: sole})
	require.NoError(s, err)
	return got
}

func (s suite) balance(owner, asset string) admission.Account {
	s.Helper()
	got, err := s.store.Balance(s.ctx, owner, asset)
	require.NoError(s, err)
	return got
}

func (s suite) lookup(id string) admission.Artifact {
	s.Helper()
	got, err := s.store.Lookup(s.ctx, id)
	require.NoError(s, err)
	return got
}

// player returns an owner that no other test uses.
func player() string { return "player-" + admission.NewActionID() }

func testPending(t *testing.T, s suite) {
	// Long before anything else that a shared store may hold.
	base := time.Unix(1_000_000, 0).UTC()
	var ids []string
	for i := range 5 {
		a := action(player(), "wave", 0)
		a.Admitted = base.Add(time.Duration(i) * time.Second)
		a.Attempted = a.Admitted
		s.admit(a)
		ids = append(ids, a.ActionID)
	}
	s.settle(ids[1], stream.Applied, "")
	_, err := s.store.Attempt(s.ctx, ids[0], "second", epoch)
	require.NoError(t, err)

	pending := func(from, before time.Duration, limit int) (ids []string) {
		got, err := s.store.Pending(s.ctx, base.Add(from), base.Add(before), limit)
		require.NoError(t, err)
		for _, p := range got {
			ids = append(ids, p.ActionID)
			art := s.lookup(p.ActionID)
			assert.Equal(t, art.Attempted, p.Attempted)
			assert.Contains(t, []fence.TileID{art.Tile, 0}, p.Tile)
		}
		return ids
	}
	waittest.Until(t, func() bool {
		return assert.ObjectsAreEqual(ids[2:], pending(0, time.Minute, 100))
	}, 10*time.Second, 50*time.Millisecond, "settled and newly attempted actions must leave the list")
	assert.Equal(t, ids[2:4], pending(-time.Hour, time.Minute, 2))
	assert.Equal(t, ids[2:3], pending(0, 3*time.Second, 100), "the bound is exclusive")
	assert.Equal(t, ids[3:], pending(3*time.Second, time.Minute, 100), "the beginning is inclusive")
	assert.Empty(t, pending(0, 0, 100))
	assert.Empty(t, pending(time.Minute, 0, 100))
	for _, id := range ids[2:] {
		s.settle(id, stream.Applied, "")
	}
}

func testNames(t *testing.T, s suite) {
	p := player()
	pairs := [][2]string{{p + "#a", "b"}, {p, "a#b"}, {p + "/a", "b"}, {p, "a/b"}, {p + "A", "b"}, {p + "a", "b"},
		{p + "a ", "b"}, {p + "\u00e9", "b"}, {p + "e\u0301", "b"}}
	for i, pair := range pairs {
		s.credit(pair[0], pair[1], admission.Amount(i+1))
	}
	for i, pair := range pairs {
		assert.Equal(t, admission.Amount(i+1), s.balance(pair[0], pair[1]).Balance, "%q", pair)
	}
}

func testRoundTrip(t *testing.T, s suite) {
	who := player()
	s.credit(who, "géld 🂡", admission.MaxAmount)
	body := make([]byte, 4096)
	for i := range body {
		body[i] = byte(i)
	}
	a := action(who, "géld 🂡", admission.MaxAmount)
	a.ActionID = fmt.Sprintf("%.50s-🂡é'\"#", a.ActionID)
	a.Body, a.Tile, a.Cooldown = body, 1<<64-1, 1234567*time.Millisecond
	for i := range a.Fingerprint {
		a.Fingerprint[i] = byte(255 - i)
	}
	assert.Equal(t, a, s.admit(a))
	assert.Equal(t, a, s.lookup(a.ActionID))
	assert.Equal(t, a, s.admit(again(a)))

	empty := action(who, "wave", 0)
	empty.Body = nil
	s.admit(empty)
	assert.Empty(t, s.lookup(empty.ActionID).Body)
}

func testCancelled(t *testing.T, s suite) {
	who := player()
	s.credit(who, "card", 1)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	a := action(who, "card", 1)
	_, err := s.store.Admit(ctx, a)
	var failed *fence.StoreError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, a, s.admit(a), "the same call is safe afterwards")
	assert.Zero(t, s.balance(who, "card").Balance)
	_, err = s.store.Lookup(ctx, a.ActionID)
	require.ErrorAs(t, err, &failed)
	_, err = s.store.Pending(ctx, time.Time{}, epoch, 1)
	require.ErrorAs(t, err, &failed)
	require.ErrorAs(t, s.store.Credit(ctx, admission.Credit{ID: admission.NewActionID(), Owner: who, Asset: "card",
		Amount: 1, At: epoch}), &failed)
}
