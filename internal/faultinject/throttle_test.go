package faultinject

import (
	"errors"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/internal/dynamotx"
)

// TestThrottle: what DynamoDB is made to say is what it says for want of capacity, in both ways, and nothing is sent.
func TestThrottle(t *testing.T) {
	way := &Throttle{HTTPClient: http.DefaultClient}
	way.Share.Store(1000)
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://127.0.0.1:1"),
		HTTPClient: way, RetryMaxAttempts: 1, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")})
	codes := map[string]bool{}
	for range 2 {
		_, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("t"),
			Key: map[string]types.AttributeValue{"k": &types.AttributeValueMemberS{Value: "v"}}})
		assert.True(t, dynamotx.Throttled(err), "%v", err)
		if api, ok := errors.AsType[smithy.APIError](err); assert.True(t, ok) {
			codes[api.ErrorCode()] = true
		}
	}
	assert.Len(t, codes, 2)
	assert.EqualValues(t, 2, way.Refused.Load())
}
