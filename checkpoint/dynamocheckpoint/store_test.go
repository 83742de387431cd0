package dynamocheckpoint_test

import (
	"errors"
	"flag"
	"io"
	"net/http"
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
