package dynamotx

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	transport "github.com/aws/smithy-go/endpoints"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counted is a resolver that counts its calls.
type counted struct{ calls int }

func (c *counted) ResolveEndpoint(_ context.Context, p dynamodb.EndpointParameters) (e transport.Endpoint, _ error) {
	c.calls++
	e.URI.Host = *p.Region
	return e, nil
}

func TestEndpointIsResolvedOnce(t *testing.T) {
	c := &counted{}
	r := &resolvedOnce{next: c}
	for i, region := range []string{"a", "a", "a", "b", "a"} {
		e, err := r.ResolveEndpoint(t.Context(), dynamodb.EndpointParameters{Region: &region})
		require.NoError(t, err)
		assert.Equal(t, region, e.URI.Host, i)
	}
	assert.Equal(t, 3, c.calls, "again for other parameters only")
}
