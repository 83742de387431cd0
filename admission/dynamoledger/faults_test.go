package dynamoledger_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/admissiontest"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// roundTripper is a transport made of a function: the body it gets is the request's.
type roundTripper func(r *http.Request, body []byte) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return f(r, body)
}

// flaw decides what happens to a request: nil passes it on. next sends it.
type flaw func(target string, body []byte, next func() (*http.Response, error)) (*http.Response, error)

func flawed(t testing.TB, table string, cfg dynamoledger.Config, f flaw) admission.Store {
	t.Helper()
	client := connect(t, func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request, body []byte) (*http.Response, error) {
			target := r.Header.Get("X-Amz-Target")
			target = target[strings.LastIndexByte(target, '.')+1:]
			return f(target, body, func() (*http.Response, error) { return rt.RoundTrip(r) })
		})
	})
	store, err := dynamoledger.New(client, table, &cfg)
	require.NoError(t, err)
	return store
}

var errCut = errors.New("connection cut")

// lost sends the request and loses the answer.
func lost(next func() (*http.Response, error)) (*http.Response, error) {
	resp, err := next()
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return nil, errCut
}

// says answers in the service's name.
func says(body string) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusBadRequest, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:   io.NopCloser(strings.NewReader(body))}, nil
}

const prefix = `{"__type":"com.amazonaws.dynamodb.v20120810#`

const (
	conflict = prefix +
		`TransactionCanceledException","message":"x",` +
		`"CancellationReasons":[{"Code":"None"},{"Code":"TransactionConflict"}]}`
	throttle = prefix +
		`TransactionCanceledException","message":"x","CancellationReasons":[{"Code":"ThrottlingError"},{"Code":"None"}]}`
	// A condition that failed beside a conflict says nothing: the conflicting one may be about to change it.
	mixed = prefix +
		`TransactionCanceledException","message":"x",` +
		`"CancellationReasons":[{"Code":"TransactionConflict"},{"Code":"ConditionalCheckFailed"}]}`
	invalid = prefix +
		`TransactionCanceledException","message":"x",` +
		`"CancellationReasons":[{"Code":"None"},{"Code":"ValidationError","Message":"too big"}]}`
	unnamed = prefix + `TransactionCanceledException","message":"x"}`
)

func request(actor string, cost admission.Amount) admission.Artifact {
	id := fence.NewClaimID().String()
	now := time.UnixMilli(1_700_000_000_000).UTC()
	return admission.Artifact{
		ActionID: admission.NewActionID(), AdmissionID: admission.AdmissionID(id), AttemptID: admission.AttemptID(id),
		Actor: actor, Asset: "card", Cost: cost, Tile: 7, Body: []byte("b"), Attempts: 1, Admitted: now, Attempted: now,
	}
}

func credit(t testing.TB, store admission.Store, owner string, amount admission.Amount) {
	t.Helper()
	require.NoError(t, store.Credit(t.Context(),
		admission.Credit{ID: admission.NewActionID(), Owner: owner, Asset: "card", Amount: amount, At: time.Now()}))
}

func balance(t testing.TB, store admission.Store, owner string) admission.Amount {
	t.Helper()
	a, err := store.Balance(t.Context(), owner, "card")
	require.NoError(t, err)
	return a.Balance
}

// TestCancellationReasons: each reason but our own condition is retried or reported, never taken for an answer.
func TestCancellationReasons(t *testing.T) {
	table := newTable(t)
	for name, c := range map[string]struct {
		answer  string
		passes  bool  // it is retried
		outcome error // otherwise
	}{
		"conflict":              {answer: conflict, passes: true},
		"throttled":             {answer: throttle, passes: true},
		"condition in conflict": {answer: mixed, passes: true},
		"no reasons":            {answer: unnamed, passes: true},
		"transaction running":   {answer: prefix + `TransactionInProgressException","message":"x"}`, passes: true},
		"table throttled": {answer: prefix + `ProvisionedThroughputExceededException","message":"x"}`,
			passes: true},
		"server error":       {answer: prefix + `InternalServerError","message":"x"}`, passes: true},
		"validation in item": {answer: invalid, outcome: fence.ErrNotApplied},
		"validation":         {answer: prefix + `ValidationException","message":"x"}`, outcome: fence.ErrNotApplied},
		"no table": {answer: prefix + `ResourceNotFoundException","message":"x"}`,
			outcome: fence.ErrNotApplied},
		"access denied": {answer: prefix + `AccessDeniedException","message":"x"}`, outcome: fence.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			var left atomic.Int32
			store := flawed(t, table, dynamoledger.Config{},
				func(target string, _ []byte, next func() (*http.Response, error)) (*http.Response, error) {
					if target == "TransactWriteItems" && left.Add(-1) >= 0 {
						return says(c.answer)
					}
					return next()
				})
			who := "w-" + admission.NewActionID()
			credit(t, store, who, 2)
			left.Store(4)
			a := request(who, 1)
			got, err := store.Admit(t.Context(), a)
			if c.passes {
				require.NoError(t, err)
				assert.Equal(t, a, got)
				assert.Equal(t, admission.Amount(1), balance(t, store, who))
				assert.Negative(t, left.Load(), "all refusals were retried")
				left.Store(4)
				credit(t, store, who, 1)
				assert.Equal(t, admission.Amount(2), balance(t, store, who))
				return
			}
			require.ErrorIs(t, err, c.outcome)
			assert.Equal(t, admission.Amount(2), balance(t, store, who))
			assert.EqualValues(t, 3, left.Load(), "what does not pass is not retried")
		})
	}
}

func TestGivesUpOnLastingConflict(t *testing.T) {
	table := newTable(t)
	var on atomic.Bool
	store := flawed(t, table, dynamoledger.Config{}.Attempts(3),
		func(_ string, _ []byte, next func() (*http.Response, error)) (*http.Response, error) {
			if on.Load() {
				return says(conflict)
			}
			return next()
		})
	credit(t, store, "w", 1)
	on.Store(true)
	_, err := store.Admit(t.Context(), request("w", 1))
	require.ErrorIs(t, err, fence.ErrNotApplied)
	on.Store(false)
	assert.Equal(t, admission.Amount(1), balance(t, store, "w"))
}

// TestAnswersLostAfterCommit: every write is carried out, and its answer lost more often than the SDK asks.
func TestAnswersLostAfterCommit(t *testing.T) {
	table := newTable(t)
	withoutToken := regexp.MustCompile(`"ClientRequestToken":"[^"]*",?`)
	for _, tokens := range []bool{true, false} {
		name := map[bool]string{true: "within the token's life", false: "after the token's life"}[tokens]
		t.Run(name, func(t *testing.T) {
			var left atomic.Int32
			client := connect(t, func(rt http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request, body []byte) (*http.Response, error) {
					if !tokens {
						body = withoutToken.ReplaceAll(body, nil)
						r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
					}
					if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetItem") && left.Add(-1) >= 0 {
						return lost(func() (*http.Response, error) { return rt.RoundTrip(r) })
					}
					return rt.RoundTrip(r)
				})
			})
			store, err := dynamoledger.New(client, table, nil)
			require.NoError(t, err)
			const replies = 4 // more than the SDK's own attempts

			who := "w-" + admission.NewActionID()
			left.Store(replies)
			credit(t, store, who, 5)
			assert.Equal(t, admission.Amount(5), balance(t, store, who))

			a := request(who, 2)
			a.Cooldown = time.Minute
			left.Store(replies)
			got, err := store.Admit(t.Context(), a)
			require.NoError(t, err)
			assert.Equal(t, a, got, "its own success is no duplicate")
			assert.Equal(t, admission.Amount(3), balance(t, store, who))

			poor := request(who, 100)
			left.Store(2 * replies) // both transactions
			got, err = store.Admit(t.Context(), poor)
			require.NoError(t, err)
			assert.Equal(t, poor.AdmissionID, got.AdmissionID)
			assert.Equal(t, admission.ReasonBalance, got.Reason)

			left.Store(replies)
			got, err = store.Attempt(t.Context(), a.ActionID, "second", a.Admitted)
			require.NoError(t, err)
			assert.Equal(t, 2, got.Attempts)
			left.Store(replies)
			require.NoError(t, store.Withdraw(t.Context(), a.ActionID, "second"))
			left.Store(replies)
			got, err = store.Attempt(t.Context(), a.ActionID, "third", a.Admitted)
			require.NoError(t, err)
			assert.Equal(t, 2, got.Attempts)
			left.Store(replies)
			got, err = store.Settle(t.Context(),
				admission.Settlement{ActionID: a.ActionID, Outcome: stream.Applied, At: a.Admitted})
			require.NoError(t, err)
			assert.Equal(t, stream.Applied, got.Outcome)

			b := request(who, 1)
			b.Admitted = a.CooldownUntil()
			_, err = store.Admit(t.Context(), b)
			require.NoError(t, err)
			left.Store(replies)
			got, err = store.Settle(t.Context(),
				admission.Settlement{ActionID: b.ActionID, Outcome: stream.Redirected, At: b.Admitted,
					Refund: true, Sole: b.AttemptID})
			require.NoError(t, err)
			assert.True(t, got.Refunded)
			assert.Equal(t, admission.Amount(3), balance(t, store, who), "given back once")
		})
	}
}

func TestAnswerLostForGood(t *testing.T) {
	table := newTable(t)
	var on atomic.Bool
	store := flawed(t, table, dynamoledger.Config{}.Attempts(2),
		func(target string, _ []byte, next func() (*http.Response, error)) (*http.Response, error) {
			if on.Load() && target == "TransactWriteItems" {
				return lost(next)
			}
			return next()
		})
	credit(t, store, "w", 3)
	on.Store(true)
	a := request("w", 1)
	_, err := store.Admit(t.Context(), a)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)

	// The ledger on top reads the artifact, and answers.
	ledger, err := admission.New(store, nil)
	require.NoError(t, err)
	got, err := ledger.Admit(t.Context(), admission.Action{ID: admission.NewActionID(), Actor: "w", Asset: "card",
		Cost: 1, Tile: 7})
	require.NoError(t, err)
	assert.True(t, got.Open())
	assert.False(t, got.Duplicate)
	on.Store(false)
	assert.Equal(t, admission.Amount(1), balance(t, store, "w"))
}

// TestCreditBetweenRefusalAndRecord: a rejection is recorded only at a moment at which it is true.
func TestCreditBetweenRefusalAndRecord(t *testing.T) {
	table := newTable(t)
	plain := flawed(t, table, dynamoledger.Config{},
		func(_ string, _ []byte, next func() (*http.Response, error)) (*http.Response, error) { return next() })
	var once sync.Once
	store := flawed(t, table, dynamoledger.Config{},
		func(_ string, body []byte, next func() (*http.Response, error)) (*http.Response, error) {
			if bytes.Contains(body, []byte("ConditionCheck\"")) {
				once.Do(func() { credit(t, plain, "w", 5) })
			}
			return next()
		})
	got, err := store.Admit(t.Context(), request("w", 5))
	require.NoError(t, err)
	assert.True(t, got.Open(), "the account could pay before the rejection was written")
	assert.Zero(t, balance(t, plain, "w"))
}

// TestFlakyService soaks a store whose every request may be lost, lose its answer, or be refused for a while.
func TestFlakyService(t *testing.T) {
	table := newTable(t)
	store := flawed(t, table, dynamoledger.Config{}.Attempts(3),
		func(target string, _ []byte, next func() (*http.Response, error)) (*http.Response, error) {
			switch p := rand.IntN(100); {
			case p < 6:
				return nil, errCut
			case p < 12:
				return lost(next)
			case p < 18 && target == "TransactWriteItems":
				return says([]string{conflict, throttle, mixed}[rand.IntN(3)])
			case p < 18:
				return says(prefix + `TransactionConflictException","message":"x"}`)
			}
			return next()
		})
	seed := rand.Uint64()
	require.NoError(t, admissiontest.Soak(t.Context(), store, seed), "seed %d", seed)
}

func TestRetention(t *testing.T) {
	table := newTable(t)
	var seen atomic.Value
	store := flawed(t, table, dynamoledger.Config{Retention: 24 * time.Hour},
		func(_ string, body []byte, next func() (*http.Response, error)) (*http.Response, error) {
			seen.Store(string(body))
			return next()
		})
	credit(t, store, "w", 3)
	assert.NotContains(t, seen.Load(), "expires", "a credit is kept for ever, or it could be minted again")
	a, b := request("w", 1), request("w", 1)
	for _, x := range []admission.Artifact{a, b} {
		_, err := store.Admit(t.Context(), x)
		require.NoError(t, err)
		assert.NotContains(t, seen.Load(), "expires", "an open action is kept until it is settled")
	}
	_, err := store.Settle(t.Context(), admission.Settlement{ActionID: a.ActionID, Outcome: stream.Applied,
		At: a.Admitted})
	require.NoError(t, err)
	assert.Contains(t, seen.Load(), "expires")
	_, err = store.Settle(t.Context(), admission.Settlement{ActionID: b.ActionID, Outcome: stream.Redirected,
		At: b.Admitted, Refund: true, Sole: b.AttemptID})
	require.NoError(t, err)
	assert.Contains(t, seen.Load(), "expires")
	_, err = store.Admit(t.Context(), request("w", 9))
	require.NoError(t, err)
	assert.Contains(t, seen.Load(), "expires")

	// These dates are long past: an artifact the service has not yet deleted still counts.
	got, err := store.Lookup(t.Context(), a.ActionID)
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, got.Outcome)
}

func TestNew(t *testing.T) {
	client := connect(t, nil)
	for name, c := range map[string]struct {
		table string
		cfg   dynamoledger.Config
	}{
		"no table":       {},
		"hasty deletion": {table: "t", cfg: dynamoledger.Config{Retention: time.Minute}},
	} {
		_, err := dynamoledger.New(client, c.table, &c.cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	_, err := dynamoledger.New(nil, "t", nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	table := newTable(t)
	require.NoError(t, dynamoledger.CreateTable(t.Context(), client, table), "a table that exists is left alone")
	expiry := func(attribute string, on bool) {
		_, err := client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &table,
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &attribute, Enabled: &on}})
		require.NoError(t, err)
	}
	expiry("expires", false) // as a process leaves it that ended right after it had made the table
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, dynamoledger.CreateTable(t.Context(), client, table)) })
	}
	wg.Wait()
	is, err := client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	require.NoError(t, err)
	require.Equal(t, types.TimeToLiveStatusEnabled, is.TimeToLiveDescription.TimeToLiveStatus)
	expiry("expires", false)
	expiry("other", true)
	require.ErrorIs(t, dynamoledger.CreateTable(t.Context(), client, table), fence.ErrSetting)
}
