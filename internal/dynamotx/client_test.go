package dynamotx

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
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

func TestPassing(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, passes := range []error{&url.Error{Op: "Post", Err: refused}, io.EOF, context.DeadlineExceeded,
		&smithy.GenericAPIError{Code: "InternalServerError", Fault: smithy.FaultServer},
		&smithy.GenericAPIError{Code: "ThrottlingException", Fault: smithy.FaultClient}} {
		require.True(t, Passing(passes), "%v", passes)
	}
	for _, stays := range []error{&url.Error{Op: "Post", Err: errors.New("unsupported protocol scheme")},
		&url.Error{Op: "Post", Err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}},
		&smithy.GenericAPIError{Code: "AccessDeniedException", Fault: smithy.FaultClient},
		&smithy.GenericAPIError{Code: "UnrecognizedClientException", Fault: smithy.FaultClient}} {
		require.False(t, Passing(stays), "%v", stays)
	}
}
