package dynamoledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
)

// BenchmarkAdmit compares an admission with a bare TransactWriteItems: a put and an update without conditions.
func BenchmarkAdmit(b *testing.B) {
	client, table := connect(b, nil), newTable(b)
	store, err := dynamoledger.New(client, table, nil)
	require.NoError(b, err)
	ledger, err := admission.New(store, nil)
	require.NoError(b, err)
	admit := func(actor string) {
		_, err := ledger.Admit(b.Context(), admission.Action{ID: admission.NewActionID(), Actor: actor, Asset: "card",
			Tile: 7, Body: make([]byte, 200)})
		require.NoError(b, err)
	}
	bare := func(actor string) {
		_, err := client.TransactWriteItems(b.Context(),
			&dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
				{Put: &types.Put{TableName: &table, Item: map[string]types.AttributeValue{
					"pk":   &types.AttributeValueMemberS{Value: "bare/" + admission.NewActionID()},
					"sk":   &types.AttributeValueMemberS{Value: "bare"},
					"body": &types.AttributeValueMemberB{Value: make([]byte, 200)},
					// In the index of open actions, as an artifact is.
					"open":         &types.AttributeValueMemberS{Value: fmt.Sprintf("%02d", rand.IntN(16))},
					"attempted_at": &types.AttributeValueMemberN{Value: fmt.Sprint(time.Now().UnixMilli())},
				}}},
				{Update: &types.Update{TableName: &table,
					Key: map[string]types.AttributeValue{
						"pk": &types.AttributeValueMemberS{Value: "bare/" + actor},
						"sk": &types.AttributeValueMemberS{Value: "card"},
					},
					UpdateExpression: aws.String("ADD balance :one"),
					ExpressionAttributeValues: map[string]types.AttributeValue{
						":one": &types.AttributeValueMemberN{Value: "1"}},
				}},
			}})
		require.NoError(b, err)
	}
	b.Run("ratio", func(b *testing.B) {
		// By turns, so that both meet the same machine; x-bare is the ratio of the medians.
		var took [2][]time.Duration
		for b.Loop() {
			for i, call := range []func(string){admit, bare} {
				began := time.Now()
				call("one")
				took[i] = append(took[i], time.Since(began))
			}
		}
		for i := range took {
			slices.Sort(took[i])
		}
		median := func(i int) float64 { return float64(took[i][len(took[i])/2]) }
		b.ReportMetric(median(0)/1e3, "ledger-p50-us")
		b.ReportMetric(median(1)/1e3, "bare-p50-us")
		b.ReportMetric(median(0)/median(1), "x-bare")
	})
	var n atomic.Int64
	for _, c := range []struct {
		name string
		call func(actor string)
	}{{"ledger", admit}, {"bare", bare}} {
		b.Run(c.name+"/one", func(b *testing.B) {
			for b.Loop() {
				c.call("one")
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				actor := fmt.Sprint("actor-", n.Add(1))
				for pb.Next() {
					c.call(actor)
				}
			})
		})
	}
}
