package dynamocheckpoint_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/checkpoint/checkpointtest"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

func TestMain(m *testing.M) {
	// Each call is a round trip. The back ends without one play the models of the suites more often.
	_ = flag.Set("rapid.checks", "40")
	goleak.VerifyTestMain(m)
}

func httpClient(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, func(t *testing.T) checkpointtest.Harness {
		table := newTable(t)
		return checkpointtest.Harness{Store: newStore(t, table, nil), Other: newStore(t, table, nil),
			Damage: func(t *testing.T, tile fence.TileID) { damage(t, table, tile) }}
	})
}

// damage flips a bit of the first blob of a tile, in a chunk or in the manifest.
func damage(t *testing.T, table string, tile fence.TileID) {
	client := newClient(t, nil)
	out, err := client.Query(t.Context(), &dynamodb.QueryInput{TableName: &table,
		KeyConditionExpression: ptr("tile = :t"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":t": &types.AttributeValueMemberS{Value: tile.String()}},
	})
	require.NoError(t, err)
	item := out.Items[0]
	item["blob"].(*types.AttributeValueMemberB).Value[50] ^= 1
	_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item})
	require.NoError(t, err)
}

func ptr[T any](v T) *T { return &v }

func TestNewArguments(t *testing.T) {
	client := dynamodb.New(dynamodb.Options{})
	_, err := dynamocheckpoint.New(nil, "t", nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = dynamocheckpoint.New(client, "", nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = dynamocheckpoint.New(client, "t", nil)
	require.NoError(t, err)
}

// TestBodiesAreReaders sees that no request's body offers io.WriterTo; see derive.
func TestBodiesAreReaders(t *testing.T) {
	t.Parallel()
	answer := errors.New("seen")
	client := dynamodb.New(dynamodb.Options{Region: "local-1", BaseEndpoint: ptr("http://127.0.0.1:1"),
		Retryer:     aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient: doer(func(r *http.Request) (*http.Response, error) {
			_, direct := r.Body.(io.WriterTo)
			assert.False(t, direct)
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			assert.Contains(t, string(body), "manifest")
			return nil, answer
		})})
	st, err := dynamocheckpoint.New(client, "t", nil)
	require.NoError(t, err)
	_, _, err = st.Get(t.Context(), tile)
	require.ErrorIs(t, err, answer)
}

type doer func(r *http.Request) (*http.Response, error)

// Do implements dynamodb.HTTPClient.
func (f doer) Do(r *http.Request) (*http.Response, error) { return f(r) }

func TestEnsureTableTwice(t *testing.T) {
	table := newTable(t)
	require.NoError(t, newStore(t, table, nil).EnsureTable(t.Context()))
}

func TestMissingTable(t *testing.T) {
	st := newStore(t, "no_such_table", nil)
	err := st.Put(t.Context(), tile, snapshot(1, 1, 10))
	_, ok := asType[*types.ResourceNotFoundException](err)
	assert.True(t, ok, "%v", err)
	_, _, err = st.Get(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrNotApplied)
}

// TestUnknownVersion sees that a manifest of a later format is refused and not guessed at, by readers and
// by writers.
func TestUnknownVersion(t *testing.T) {
	table := newTable(t)
	st := newStore(t, table, nil)
	require.NoError(t, st.Put(t.Context(), tile, snapshot(3, 30, 10)))
	client := newClient(t, nil)
	_, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: &table,
		Key: map[string]types.AttributeValue{
			"tile": &types.AttributeValueMemberS{Value: tile.String()},
			"part": &types.AttributeValueMemberS{Value: "manifest"},
		},
		UpdateExpression:          ptr("SET v = :v"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":v": &types.AttributeValueMemberN{Value: "2"}},
	})
	require.NoError(t, err)
	_, _, err = st.Get(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrCorrupt)
	require.ErrorContains(t, err, "version 2")
	require.ErrorIs(t, st.Put(t.Context(), tile, snapshot(3, 30, 10)), fence.ErrCorrupt)
	require.ErrorIs(t, st.Put(t.Context(), tile, snapshot(3, 31, 1<<20)), fence.ErrCorrupt)
	for _, err = range st.List(t.Context()) {
	}
	require.ErrorIs(t, err, fence.ErrCorrupt)
}

// TestListPages lists more than one page of a scan, most of it chunks.
func TestListPages(t *testing.T) {
	table := newTable(t)
	st := newStore(t, table, nil)
	want := map[fence.TileID]int{}
	for i := range 5 {
		id := tile + fence.TileID(i)
		s := snapshot(1, 1, 700<<10)
		require.NoError(t, st.Put(t.Context(), id, s))
		want[id] = len(s.Blob)
	}
	got := map[fence.TileID]int{}
	for head, err := range st.List(t.Context()) {
		require.NoError(t, err)
		got[head.Tile] = head.Size
	}
	assert.Equal(t, want, got)
}

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

// TestWorldOfATable: a table is of one world, also one that has checkpoints from before there were worlds.
func TestWorldOfATable(t *testing.T) {
	var table string
	fencetest.RunWorld(t, true, func(t *testing.T, w fence.World) fence.WorldKeeper {
		if !w.ID.IsZero() { // a known ID begins a test
			table = newTable(t)
			require.NoError(t, newStore(t, table, nil).Put(t.Context(), tile, snapshot(1, 1, 10)))
		}
		return newStore(t, table, nil)
	})
	table = newTable(t)
	own := fence.World{Name: "one", ID: fence.NewWorldID()}
	reader := newStore(t, table, readPolicy(t, "viewer").fault)
	_, err := reader.EnterWorld(t.Context(), own)
	require.NoError(t, err, "it leaves the record to a writer")
	for _, actor := range []string{"checkpointer", "tile", "viewer"} {
		found, err := newStore(t, table, readPolicy(t, actor).fault).EnterWorld(t.Context(), own)
		require.NoError(t, err, actor)
		if actor != "viewer" {
			require.Equal(t, own, found)
		}
	}
	for head, err := range reader.List(t.Context()) {
		require.NoError(t, err)
		require.Fail(t, "the record is no checkpoint", "%v", head)
	}
}
