package dynamocheckpoint_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// benchSizes: inside one item, and three chunks.
var benchSizes = []int{100 << 10, 1 << 20}

// BenchmarkPut is to be compared with BenchmarkRawPut: the same bytes as plain items.
func BenchmarkPut(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dKB", n>>10), func(b *testing.B) {
			st := newStore(b, newTable(b), nil)
			s := snapshot(1, 1, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				require.NoError(b, st.Put(b.Context(), tile, s))
				s.Seq++
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dKB", n>>10), func(b *testing.B) {
			st := newStore(b, newTable(b), nil)
			require.NoError(b, st.Put(b.Context(), tile, snapshot(1, 1, n)))
			b.SetBytes(int64(n))
			for b.Loop() {
				_, found, err := st.Get(b.Context(), tile)
				require.True(b, found && err == nil)
			}
		})
	}
}

func BenchmarkRawPut(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dKB", n>>10), func(b *testing.B) {
			client, table := newClient(b, nil), newTable(b)
			items := rawItems(snapshot(1, 1, n))
			b.SetBytes(int64(n))
			for b.Loop() {
				for _, item := range items {
					_, err := client.PutItem(b.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item})
					require.NoError(b, err)
				}
			}
		})
	}
}

func BenchmarkRawGet(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dKB", n>>10), func(b *testing.B) {
			client, table := newClient(b, nil), newTable(b)
			items := rawItems(snapshot(1, 1, n))
			for _, item := range items {
				_, err := client.PutItem(b.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item})
				require.NoError(b, err)
			}
			b.SetBytes(int64(n))
			for b.Loop() {
				for _, item := range items {
					out, err := client.GetItem(b.Context(), &dynamodb.GetItemInput{TableName: &table,
						ConsistentRead: aws.Bool(true),
						Key:            map[string]types.AttributeValue{"tile": item["tile"], "part": item["part"]}})
					require.NoError(b, err)
					require.Len(b, out.Item, 3)
				}
			}
		})
	}
}

// rawItems are the snapshot's bytes in as few items as hold them.
func rawItems(s fence.Snapshot) []map[string]types.AttributeValue {
	const most = 384 << 10
	var items []map[string]types.AttributeValue
	for i := 0; i < len(s.Blob); i += most {
		items = append(items, map[string]types.AttributeValue{
			"tile": &types.AttributeValueMemberS{Value: tile.String()},
			"part": &types.AttributeValueMemberS{Value: fmt.Sprint("raw", i)},
			"blob": &types.AttributeValueMemberB{Value: s.Blob[i:min(len(s.Blob), i+most)]},
		})
	}
	return items
}

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
