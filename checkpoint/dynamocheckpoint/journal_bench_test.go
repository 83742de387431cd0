package dynamocheckpoint_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// batchSize is a usual batch.
const batchSize = 2 << 10

// BenchmarkAppend is to be compared with BenchmarkRawAppend: the same bytes as a plain item.
func BenchmarkAppend(b *testing.B) {
	st := newStore(b, newTable(b), nil)
	require.NoError(b, st.Seal(b.Context(), tile, 1))
	e := journalEntry(1, fence.Position{}, batchSize)
	b.SetBytes(batchSize)
	for b.Loop() {
		require.NoError(b, st.Append(b.Context(), tile, e))
		e = journalEntry(1, e.Position, batchSize)
	}
}

func BenchmarkRawAppend(b *testing.B) {
	client, table := newClient(b, nil), newTable(b)
	b.SetBytes(batchSize)
	e := journalEntry(1, fence.Position{}, batchSize)
	for b.Loop() {
		_, err := client.PutItem(b.Context(), &dynamodb.PutItemInput{TableName: &table,
			Item: map[string]types.AttributeValue{
				"tile": &types.AttributeValueMemberS{Value: tile.String()},
				"part": &types.AttributeValueMemberS{Value: fmt.Sprint("raw", e.Seq)},
				"blob": &types.AttributeValueMemberB{Value: e.Payload},
			}})
		require.NoError(b, err)
		e = journalEntry(1, e.Position, batchSize)
	}
}

// BenchmarkTail reads what a successor reads: a snapshot interval's batches.
func BenchmarkTail(b *testing.B) {
	st := newStore(b, newTable(b), nil)
	require.NoError(b, st.Seal(b.Context(), tile, 1))
	prev := fence.Position{}
	for range 60 {
		e := journalEntry(1, prev, batchSize)
		require.NoError(b, st.Append(b.Context(), tile, e))
		prev = e.Position
	}
	b.SetBytes(60 * batchSize)
	for b.Loop() {
		tail, err := st.Tail(b.Context(), tile, 0)
		require.NoError(b, err)
		require.Len(b, tail, 60)
	}
}
