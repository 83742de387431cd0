package dynamocheckpoint_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/dynamolimits"
)

const tile fence.TileID = 0x85283473fffffff

// fault stands between the SDK's retries and the wire, once for each try: it may answer itself, or call
// send and change what comes back.
type fault func(ctx context.Context, input any, send func() error) error

// newClient returns a client of the test server. Closing its connections at the end of the test is what
// lets goleak see that a Store leaves nothing behind.
func newClient(t testing.TB, f fault) *dynamodb.Client {
	t.Helper()
	return dynamodb.New(dynamodb.Options{
		Region:       "local-1",
		BaseEndpoint: aws.String(stacktest.DynamoDB(t)),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient:   httpClient(t),
		Retryer:      retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = 5 * time.Millisecond }),
	}, dynamodb.WithAPIOptions(func(stack *middleware.Stack) error {
		if f == nil {
			return nil
		}
		type inputKey struct{}
		remember := middleware.InitializeMiddlewareFunc("rememberInput",
			func(ctx context.Context, in middleware.InitializeInput,
				next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				return next.HandleInitialize(context.WithValue(ctx, inputKey{}, in.Parameters), in)
			})
		inject := middleware.FinalizeMiddlewareFunc("injectFault",
			func(ctx context.Context, in middleware.FinalizeInput,
				next middleware.FinalizeHandler) (out middleware.FinalizeOutput, md middleware.Metadata, err error) {
				err = f(ctx, ctx.Value(inputKey{}), func() error {
					out, md, err = next.HandleFinalize(ctx, in)
					return err
				})
				return out, md, err
			})
		if err := stack.Initialize.Add(remember, middleware.Before); err != nil {
			return err
		}
		return stack.Finalize.Insert(inject, "Retry", middleware.After)
	}), dynamolimits.Check(func(err error) { t.Error(err) }))
}

// newTable creates an empty table and returns its name.
func newTable(t testing.TB) string {
	t.Helper()
	table := stacktest.UniqueName(t)
	client := newClient(t, nil)
	st, err := dynamocheckpoint.New(client, table, nil)
	require.NoError(t, err)
	require.NoError(t, st.EnsureTable(t.Context()))
	t.Cleanup(func() {
		_, err := client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table})
		require.NoError(t, err)
	})
	return table
}

// newStore returns a Store on the table, as one process has it.
func newStore(t testing.TB, table string, f fault) *dynamocheckpoint.Store {
	t.Helper()
	st, err := dynamocheckpoint.New(newClient(t, f), table, nil)
	require.NoError(t, err)
	return st
}

// newSmall returns a Store that chunks every 1,000 bytes.
func newSmall(t testing.TB, table string, f fault) *dynamocheckpoint.Store {
	t.Helper()
	st := newStore(t, table, f)
	st.SetChunkSize(1000)
	return st
}

// parts lists the sort keys of all items of the tile.
func parts(t testing.TB, table string) []string {
	t.Helper()
	return partsOf(t, table, tile)
}

func partsOf(t testing.TB, table string, tile fence.TileID) []string {
	t.Helper()
	out, err := newClient(t, nil).Query(context.Background(), &dynamodb.QueryInput{
		TableName: &table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("tile = :t"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":t": &types.AttributeValueMemberS{Value: tile.String()}},
	})
	require.NoError(t, err)
	require.Empty(t, out.LastEvaluatedKey, "more than a page")
	var parts []string
	for _, item := range out.Items {
		parts = append(parts, item["part"].(*types.AttributeValueMemberS).Value)
	}
	return parts
}

// partOf is the sort key an input writes, empty for other calls.
func partOf(input any) string {
	if in, ok := input.(*dynamodb.PutItemInput); ok {
		return in.Item["part"].(*types.AttributeValueMemberS).Value
	}
	return ""
}

func isManifest(input any) bool { return partOf(input) == "manifest" }

// snapshot returns a snapshot of n random bytes.
func snapshot(epoch fence.Epoch, seq fence.Seq, n int) fence.Snapshot {
	blob := make([]byte, n)
	rng := rand.New(rand.NewPCG(uint64(epoch), uint64(seq)))
	for i := range blob {
		blob[i] = byte(rng.Uint32())
	}
	return fence.Snapshot{Position: fence.Position{Epoch: epoch, Seq: seq, Chain: 7}, Tick: 1, Contact: "10.0.0.1:7000",
		Sum: fence.Checksum(blob), Taken: fence.FromMillis(1), Blob: blob}
}

// holds requires that a Get gives exactly s.
func holds(t testing.TB, st *dynamocheckpoint.Store, s fence.Snapshot) {
	t.Helper()
	got, found, err := st.Get(t.Context(), tile)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, s, got)
}
