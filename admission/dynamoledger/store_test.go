package dynamoledger_test

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/admissiontest"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/dynamolimits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a client of the test server whose requests go through wrap, if there is one.
func connect(t testing.TB, wrap func(http.RoundTripper) http.RoundTripper) *dynamodb.Client {
	t.Helper()
	endpoint := stacktest.DynamoDB(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	var rt http.RoundTripper = transport
	if wrap != nil {
		rt = wrap(rt)
	}
	return dynamodb.New(dynamodb.Options{
		Region:       "local",
		BaseEndpoint: aws.String(endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:   &http.Client{Transport: rt},
		Retryer:      retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = 2 * time.Millisecond }),
	}, dynamolimits.Check(func(err error) { t.Error(err) }))
}

// newTable makes a table for this test alone.
func newTable(t testing.TB) string {
	t.Helper()
	name := stacktest.UniqueName(t)
	client := connect(t, nil)
	require.NoError(t, dynamoledger.CreateTable(t.Context(), client, name))
	t.Cleanup(func() {
		_, err := client.DeleteTable(context.WithoutCancel(t.Context()), &dynamodb.DeleteTableInput{TableName: &name})
		require.NoError(t, err)
	})
	return name
}

func TestStore(t *testing.T) {
	table := newTable(t)
	client := connect(t, nil)
	admissiontest.Run(t, func(t *testing.T) admission.Store {
		store, err := dynamoledger.New(client, table, nil)
		require.NoError(t, err)
		return store
	})
}

// TestWorldOfATable: a table is of one world, and its record is none of the ledger's.
func TestWorldOfATable(t *testing.T) {
	client := connect(t, nil)
	var table string
	open := func(t *testing.T, w fence.World) fence.WorldKeeper {
		if !w.ID.IsZero() { // a known ID begins a test
			table = newTable(t)
		}
		store, err := dynamoledger.New(client, table, nil)
		require.NoError(t, err)
		return store.(fence.WorldKeeper)
	}
	fencetest.RunWorld(t, true, open)
	keeper := open(t, fence.World{ID: fence.NewWorldID()})
	_, err := keeper.EnterWorld(t.Context(), fence.World{Name: "one", ID: fence.NewWorldID()})
	require.NoError(t, err)
	require.NoError(t, keeper.(admission.Store).Scan(t.Context(), func(r admission.Record) error {
		require.Fail(t, "the record is none of the ledger's", "%v", r)
		return nil
	}))
}

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
				dynamoledger.Mistime(store, off)
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

// FuzzItem: an item of the table is a record within the ledger's bounds, or it is corrupt.
func FuzzItem(f *testing.F) {
	f.Add("action/x", "action", "3", "60000", "85283473fffffff", "applied", "", "1", "1700000000000", make([]byte, 32),
		"", byte(0))
	f.Add("account/ann", "card", "9007199254740992", "-1", "", "", "", "18446744073709551615", "0", []byte(nil),
		"balance", byte(1))
	f.Add("credit/x", "credit", "3", "", "", "", "", "", "1700000000000", []byte{}, "", byte(0))
	f.Add("foreign", "", "", "", "", "", "", "", "", []byte{}, "", byte(0))
	f.Fuzz(func(t *testing.T, pk, sk, amount, cooldown, tile, outcome, reason, count, at string, bytes []byte,
		gone string, how byte) {
		text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
		number := func(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
		it := map[string]types.AttributeValue{"pk": text(pk), "sk": text(sk), "admission_id": text("a"),
			"fingerprint": &types.AttributeValueMemberB{Value: bytes}, "actor": text("ann"), "asset": text("card"),
			"owner": text("ann"), "cost": number(amount), "amount": number(amount), "balance": number(amount),
			"version": number(count), "cooldown": number(cooldown), "cooldown_until": number(at), "tile": text(tile),
			"body": &types.AttributeValueMemberB{Value: bytes}, "attempts": number(count), "attempt_id": text("a"),
			"admitted_at": number(at), "attempted_at": number(at), "credited_at": number(at), "outcome": text(outcome),
			"reason": text(reason), "resolved_at": number(at)}
		switch how % 3 {
		case 1:
			delete(it, gone)
		case 2:
			it[gone] = &types.AttributeValueMemberNULL{Value: true}
		}
		switch r := dynamoledger.DecodeRecord(it).(type) {
		case admission.Account:
			require.LessOrEqual(t, uint64(r.Balance), uint64(math.MaxInt64))
		case admission.Credit:
			require.LessOrEqual(t, r.Amount, admission.MaxAmount)
		case admission.Artifact:
			require.LessOrEqual(t, r.Cost, admission.MaxAmount)
			require.GreaterOrEqual(t, r.Cooldown, 0*r.Cooldown)
			require.Positive(t, r.Attempts+1)
			require.True(t, r.Open() || r.Outcome.Valid())
			require.False(t, r.CooldownUntil().Before(r.Admitted) && r.Cooldown > 0 && r.Reason == 0)
		case *fence.CorruptError:
		default:
			t.Fatalf("%T", r)
		}
	})
}
