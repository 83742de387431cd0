package dynamoledger_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/admissiontest"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
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
	})
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
