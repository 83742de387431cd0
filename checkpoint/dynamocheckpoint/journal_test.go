package dynamocheckpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/checkpointtest"
	"github.com/tilefence/tilefence/fence"
)

func TestJournalConformance(t *testing.T) {
	t.Parallel()
	checkpointtest.RunJournal(t, func(t *testing.T) checkpointtest.JournalHarness {
		table := newTable(t)
		return checkpointtest.JournalHarness{Journal: newStore(t, table, nil), Other: newStore(t, table, nil),
			Damage: func(t *testing.T, tile fence.TileID, seq fence.Seq) { damageEntry(t, table, tile, seq) }}
	})
}

// damageEntry flips a bit of an entry's frame, in the entry or in its first chunk.
func damageEntry(t *testing.T, table string, tile fence.TileID, seq fence.Seq) {
	t.Helper()
	client := newClient(t, nil)
	out, err := client.Query(t.Context(), &dynamodb.QueryInput{TableName: &table,
		KeyConditionExpression: ptr("tile = :t AND begins_with(part, :p)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":t": &types.AttributeValueMemberS{Value: tile.String()},
			":p": &types.AttributeValueMemberS{Value: entryKey(seq)},
		},
	})
	require.NoError(t, err)
	for _, item := range out.Items {
		if b, ok := item["frame"].(*types.AttributeValueMemberB); ok {
			b.Value[len(b.Value)/2] ^= 1
			_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item})
			require.NoError(t, err)
			return
		}
	}
	t.Fatal("no frame to damage")
}

// entryKey is the sort key of the entry at a sequence.
func entryKey(seq fence.Seq) string { return fmt.Sprintf("journal/%016x", uint64(seq)) }

// journalParts lists the sort keys of the tile's journal but for its head.
func journalParts(t testing.TB, table string) []string {
	t.Helper()
	var entries []string
	for _, part := range parts(t, table) {
		if strings.HasPrefix(part, "journal/") {
			entries = append(entries, part)
		}
	}
	return entries
}
