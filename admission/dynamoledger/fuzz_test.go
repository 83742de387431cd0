package dynamoledger_test

import (
	"math"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/fence"
)

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
