package dynamoledger_test

import (
	"fmt"
	"sync/atomic"
	"testing"

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
					"open":         &types.AttributeValueMemberS{Value: "00"},
					"attempted_at": &types.AttributeValueMemberN{Value: "1700000000000"},
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
