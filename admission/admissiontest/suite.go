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
	"github.com/tilefence/tilefence/stream"
)

// Run runs the suite against the stores that open returns.
func Run(t *testing.T, open func(t *testing.T) admission.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, suite)
	}{
		{"AdmitSpendsAndRecords", testAdmit},
		{"AdmitAgainReturnsTheArtifact", testAdmitAgain},
		{"AdmitUnaffordableIsRejectedForEver", testRejected},
		{"AdmitJudgesCooldownByTheTimeGiven", testCooldown},
		{"AdmitForFree", testFree},
		{"AttemptCountsOnlyOpenActions", testAttempt},
		{"WithdrawTakesBackTheLastAttempt", testWithdraw},
		{"SettleOnce", testSettle},
		{"AbandonGivesBackOnce", testAbandon},
		{"AbandonIsContestedByAnotherAttempt", testContested},
		{"AbandonLeavesALaterCooldown", testAbandonCooldown},
		{"PendingListsTheLongestUntouched", testPending},
		{"CreditOnce", testCredit},
		{"CreditStopsAtTheLimit", testCreditLimit},
		{"NamesDoNotRunTogether", testNames},
		{"FieldsRoundTrip", testRoundTrip},
		{"CancelledContext", testCancelled},
		{"ConcurrentAdmitsOfOneActionSpendOnce", testConcurrentSame},
		{"ConcurrentAdmitsRacingACreditGetOneAnswer", testConcurrentCredit},
		{"ConcurrentSpendsNeverOverdraw", testConcurrentSpends},
		{"ConcurrentSettlementsHaveOneWinner", testConcurrentSettle},
		{"RandomHistoryKeepsTheSums", testRandom},
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
		Sole: sole})
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

func testAdmit(t *testing.T, s suite) {
	who := player()
	s.credit(who, "card", 3)
	before := s.balance(who, "card")
	assert.Equal(t, admission.Amount(3), before.Balance)

	a := action(who, "card", 2)
	_, err := s.store.Lookup(s.ctx, a.ActionID)
	require.ErrorIs(t, err, admission.ErrUnknownAction)

	got := s.admit(a)
	assert.True(t, got.Open())
	assert.Equal(t, a, got)
	assert.Equal(t, a, s.lookup(a.ActionID))
	after := s.balance(who, "card")
	assert.Equal(t, admission.Amount(1), after.Balance)
	assert.Greater(t, after.Version, before.Version)
	assert.Zero(t, after.CooldownUntil)
}

func testAdmitAgain(t *testing.T, s suite) {
	who := player()
	s.credit(who, "card", 3)
	a := action(who, "card", 1)
	s.admit(a)
	for range 3 {
		assert.Equal(t, a, s.admit(again(a)))
	}
	assert.Equal(t, a, s.admit(a), "the same call presented again")

	// The store keeps the first request whatever the second one says; the ledger compares fingerprints.
	other := again(a)
	other.Cost, other.Fingerprint = 3, admission.Fingerprint{2}
	assert.Equal(t, a, s.admit(other))
	assert.Equal(t, admission.Amount(2), s.balance(who, "card").Balance)

	s.settle(a.ActionID, stream.Fizzled, "")
	assert.Equal(t, stream.Fizzled, s.admit(again(a)).Outcome)
	assert.Equal(t, admission.Amount(2), s.balance(who, "card").Balance)
}

func testRejected(t *testing.T, s suite) {
	who := player()
	s.credit(who, "card", 1)
	version := s.balance(who, "card").Version
	a := action(who, "card", 2)
	got := s.admit(a)
	assert.Equal(t, stream.Rejected, got.Outcome)
	assert.Equal(t, admission.ReasonBalance, got.Reason)
	assert.Zero(t, got.Spent())
	assert.Equal(t, a.Admitted, got.Resolved)
	assert.Equal(t, got, s.lookup(a.ActionID))
	assert.Equal(t, version, s.balance(who, "card").Version)

	s.credit(who, "card", 5)
	assert.Equal(t, got, s.admit(again(a)), "the answer stays when the balance grows")
	assert.Equal(t, got, s.settle(a.ActionID, stream.Applied, ""), "and when a tile says otherwise")
	assert.Equal(t, got, s.settle(a.ActionID, stream.Redirected, a.AttemptID), "and has nothing to give back")
	assert.Equal(t, admission.Amount(6), s.balance(who, "card").Balance)

	unknown := s.admit(action(player(), "card", 1))
	assert.Equal(t, admission.ReasonBalance, unknown.Reason, "an account never credited")
}

func testCooldown(t *testing.T, s suite) {
	who := player()
	s.credit(who, "card", 10)
	first := action(who, "card", 1)
	first.Cooldown = 1500 * time.Millisecond
	s.admit(first)
	assert.Equal(t, epoch.Add(1500*time.Millisecond), s.balance(who, "card").CooldownUntil)

	early := action(who, "card", 1)
	early.Admitted = epoch.Add(1499 * time.Millisecond)
	got := s.admit(early)
	assert.Equal(t, stream.Rejected, got.Outcome)
	assert.Equal(t, admission.ReasonCooldown, got.Reason)

	both := action(who, "card", 100)
	assert.Equal(t, admission.ReasonBalance, s.admit(both).Reason, "balance comes first")

	late := action(who, "card", 1)
	late.Admitted = epoch.Add(1500 * time.Millisecond)
	got = s.admit(late)
	assert.True(t, got.Open())
	account := s.balance(who, "card")
	assert.Equal(t, admission.Amount(8), account.Balance)
	assert.Equal(t, epoch.Add(1500*time.Millisecond), account.CooldownUntil, "an action without a cooldown sets none")
}

func testFree(t *testing.T, s suite) {
	who := player()
	a := action(who, "dash", 0)
	a.Cooldown = time.Minute
	got := s.admit(a)
	assert.True(t, got.Open())
	assert.Equal(t, epoch.Add(time.Minute), s.balance(who, "dash").CooldownUntil)
	assert.Equal(t, admission.ReasonCooldown, s.admit(action(who, "dash", 0)).Reason)

	plain := player()
	assert.True(t, s.admit(action(plain, "wave", 0)).Open())
	assert.Zero(t, s.balance(plain, "wave").Balance)
}

func testAttempt(t *testing.T, s suite) {
	_, err := s.store.Attempt(s.ctx, admission.NewActionID(), "x", epoch)
	require.ErrorIs(t, err, admission.ErrUnknownAction)

	a := action(player(), "wave", 0)
	s.admit(a)
	got, err := s.store.Attempt(s.ctx, a.ActionID, "second", epoch.Add(time.Minute))
	require.NoError(t, err)
	want := a
	want.Attempts, want.AttemptID, want.Attempted = 2, "second", epoch.Add(time.Minute)
	assert.Equal(t, want, got)
	got, err = s.store.Attempt(s.ctx, a.ActionID, "second", epoch.Add(time.Minute))
	require.NoError(t, err)
	assert.Equal(t, want, got, "the same attempt presented again counts once")
	assert.Equal(t, want, s.lookup(a.ActionID))

	done := s.settle(a.ActionID, stream.Applied, "")
	got, err = s.store.Attempt(s.ctx, a.ActionID, "third", epoch.Add(time.Hour))
	require.NoError(t, err)
	assert.Equal(t, done, got)
	require.NoError(t, s.store.Withdraw(s.ctx, a.ActionID, "second"))
	assert.Equal(t, done, s.lookup(a.ActionID))
}

func testWithdraw(t *testing.T, s suite) {
	require.ErrorIs(t, s.store.Withdraw(s.ctx, admission.NewActionID(), "x"), admission.ErrUnknownAction)

	a := action(player(), "wave", 0)
	s.admit(a)
	withdraw := func(attempt admission.AttemptID, attempts int, last admission.AttemptID) {
		t.Helper()
		require.NoError(t, s.store.Withdraw(s.ctx, a.ActionID, attempt))
		got := s.lookup(a.ActionID)
		assert.Equal(t, attempts, got.Attempts)
		assert.Equal(t, last, got.AttemptID)
	}
	attempt := func(id admission.AttemptID) {
		t.Helper()
		_, err := s.store.Attempt(s.ctx, a.ActionID, id, epoch)
		require.NoError(t, err)
	}
	withdraw("x", 1, a.AttemptID)
	withdraw(a.AttemptID, 0, "")
	withdraw(a.AttemptID, 0, "")
	attempt("second")
	withdraw(a.AttemptID, 1, "second") // an old attempt presented again must not count twice
	attempt("third")
	withdraw("second", 2, "third") // only the last can be taken back
	withdraw("third", 1, "")
	attempt("fourth")
	_, err := s.store.Settle(s.ctx, admission.Settlement{ActionID: a.ActionID, Outcome: stream.Redirected, At: epoch,
		Sole: "fourth"})
	require.ErrorIs(t, err, admission.ErrContested, "the second attempt stays in doubt")
}

func testSettle(t *testing.T, s suite) {
	_, err := s.store.Settle(s.ctx, admission.Settlement{ActionID: admission.NewActionID(), Outcome: stream.Applied,
		At: epoch})
	require.ErrorIs(t, err, admission.ErrUnknownAction)

	for first := stream.Applied; first <= stream.Redirected; first++ {
		who := player()
		s.credit(who, "card", 1)
		a := action(who, "card", 1)
		s.admit(a)
		got := s.settle(a.ActionID, first, "")
		assert.Equal(t, first, got.Outcome)
		assert.Equal(t, epoch.Add(time.Second), got.Resolved)
		assert.Equal(t, admission.Amount(1), got.Spent(), "a tile's outcome gives nothing back")
		for next := stream.Applied; next <= stream.Redirected; next++ {
			assert.Equal(t, got, s.settle(a.ActionID, next, ""))
		}
		assert.Equal(t, got, s.settle(a.ActionID, stream.Redirected, a.AttemptID))
		assert.Equal(t, got, s.lookup(a.ActionID))
		assert.Zero(t, s.balance(who, "card").Balance)
	}
}

func testAbandon(t *testing.T, s suite) {
	_, err := s.store.Settle(s.ctx, admission.Settlement{ActionID: admission.NewActionID(), Outcome: stream.Redirected,
		At: epoch, Sole: "x"})
	require.ErrorIs(t, err, admission.ErrUnknownAction)

	for _, cost := range []admission.Amount{0, 2} {
		who := player()
		s.credit(who, "card", 3)
		a := action(who, "card", cost)
		a.Cooldown = time.Hour
		s.admit(a)
		got := s.settle(a.ActionID, stream.Redirected, a.AttemptID)
		assert.Equal(t, stream.Redirected, got.Outcome)
		assert.True(t, got.Refunded)
		assert.Zero(t, got.Spent())
		for range 2 {
			assert.Equal(t, got, s.settle(a.ActionID, stream.Redirected, a.AttemptID))
			assert.Equal(t, got, s.settle(a.ActionID, stream.Applied, ""))
			assert.Equal(t, got, s.admit(again(a)))
		}
		account := s.balance(who, "card")
		assert.Equal(t, admission.Amount(3), account.Balance)
		assert.True(t, account.CooldownUntil.IsZero(), "the cooldown is given back too")
		assert.True(t, s.admit(action(who, "card", 3)).Open())
	}
}

func testContested(t *testing.T, s suite) {
	who := player()
	s.credit(who, "card", 2)
	a := action(who, "card", 1)
	s.admit(a)
	second, err := s.store.Attempt(s.ctx, a.ActionID, "second", epoch)
	require.NoError(t, err)
	for _, sole := range []admission.AttemptID{a.AttemptID, "second", "other"} {
		got, err := s.store.Settle(s.ctx, admission.Settlement{ActionID: a.ActionID, Outcome: stream.Redirected,
			At: epoch, Sole: sole})
		require.ErrorIs(t, err, admission.ErrContested)
		assert.Equal(t, second, got)
	}
	assert.Equal(t, admission.Amount(1), s.balance(who, "card").Balance)
	assert.Equal(t, stream.Applied, s.settle(a.ActionID, stream.Applied, "").Outcome)

	// One that was withdrawn is no contest.
	b := action(who, "card", 1)
	s.admit(b)
	require.NoError(t, s.store.Withdraw(s.ctx, b.ActionID, b.AttemptID))
	_, err = s.store.Settle(s.ctx, admission.Settlement{ActionID: b.ActionID, Outcome: stream.Redirected, At: epoch,
		Sole: b.AttemptID})
	require.ErrorIs(t, err, admission.ErrContested)
	_, err = s.store.Attempt(s.ctx, b.ActionID, "second", epoch)
	require.NoError(t, err)
	_, err = s.store.Settle(s.ctx, admission.Settlement{ActionID: b.ActionID, Outcome: stream.Redirected, At: epoch,
		Sole: b.AttemptID})
	require.ErrorIs(t, err, admission.ErrContested, "the only attempt is another one's")
	assert.True(t, s.settle(b.ActionID, stream.Rejected, "second").Refunded)
	assert.Equal(t, admission.Amount(1), s.balance(who, "card").Balance)
}

func testAbandonCooldown(t *testing.T, s suite) {
	who := player()
	s.credit(who, "card", 2)
	first := action(who, "card", 1)
	first.Cooldown = time.Second
	s.admit(first)
	second := action(who, "card", 1)
	second.Admitted, second.Cooldown = epoch.Add(2*time.Second), time.Hour
	s.admit(second)
	s.settle(first.ActionID, stream.Redirected, first.AttemptID)
	account := s.balance(who, "card")
	assert.Equal(t, admission.Amount(1), account.Balance)
	assert.Equal(t, second.CooldownUntil(), account.CooldownUntil)
}

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

	pending := func(before time.Duration, limit int) []string {
		got, err := s.store.Pending(s.ctx, base.Add(before), limit)
		require.NoError(t, err)
		return got
	}
	require.Eventually(t, func() bool {
		return assert.ObjectsAreEqual(ids[2:], pending(time.Minute, 100))
	}, 10*time.Second, 50*time.Millisecond, "settled and newly attempted actions must leave the list")
	assert.Equal(t, ids[2:4], pending(time.Minute, 2))
	assert.Equal(t, ids[2:3], pending(3*time.Second, 100), "the bound is exclusive")
	assert.Empty(t, pending(0, 100))
	for _, id := range ids[2:] {
		s.settle(id, stream.Applied, "")
	}
}

func testCredit(t *testing.T, s suite) {
	g := admission.Credit{ID: admission.NewActionID(), Owner: player(), Asset: "gold", Amount: 7, At: epoch}
	for range 3 {
		require.NoError(t, s.store.Credit(s.ctx, g))
		assert.Equal(t, admission.Amount(7), s.balance(g.Owner, "gold").Balance)
		g.At = g.At.Add(time.Hour)
	}
	for _, change := range []func(*admission.Credit){
		func(g *admission.Credit) { g.Amount++ },
		func(g *admission.Credit) { g.Owner = player() },
		func(g *admission.Credit) { g.Asset = "silver" },
	} {
		other := g
		change(&other)
		var reused *admission.ReusedError
		require.ErrorAs(t, s.store.Credit(s.ctx, other), &reused)
		assert.Equal(t, g.ID, reused.ID)
	}
	assert.Equal(t, admission.Amount(7), s.balance(g.Owner, "gold").Balance)

	// Credits and actions are different things, so the same ID may name one of each.
	a := action(g.Owner, "gold", 7)
	a.ActionID = g.ID
	assert.True(t, s.admit(a).Open())
	assert.Equal(t, admission.Account{Owner: "unknown-" + g.Owner, Asset: "gold"},
		s.balance("unknown-"+g.Owner, "gold"))
}

func testCreditLimit(t *testing.T, s suite) {
	who := player()
	s.credit(who, "gold", admission.MaxAmount)
	g := admission.Credit{ID: admission.NewActionID(), Owner: who, Asset: "gold", Amount: 1, At: epoch}
	require.ErrorIs(t, s.store.Credit(s.ctx, g), admission.ErrBalanceLimit)
	s.admit(action(who, "gold", 1))
	require.NoError(t, s.store.Credit(s.ctx, g), "a refused credit leaves its ID unused")
	assert.Equal(t, admission.MaxAmount, s.balance(who, "gold").Balance)
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
	_, err = s.store.Pending(ctx, epoch, 1)
	require.ErrorAs(t, err, &failed)
	require.ErrorAs(t, s.store.Credit(ctx, admission.Credit{ID: admission.NewActionID(), Owner: who, Asset: "card",
		Amount: 1, At: epoch}), &failed)
}
