package dynamotx

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	transport "github.com/aws/smithy-go/endpoints"
)

// resolvedOnce remembers the endpoint. The SDK works it out for every request, and compiles regular expressions for it:
// some 50 µs, which is a fifth of what the SDK does for a small transaction.
type resolvedOnce struct {
	next dynamodb.EndpointResolverV2
	last atomic.Pointer[resolved]
}

type resolved struct {
	params   dynamodb.EndpointParameters
	endpoint transport.Endpoint
}

// ResolveEndpoint implements dynamodb.EndpointResolverV2.
func (r *resolvedOnce) ResolveEndpoint(ctx context.Context, params dynamodb.EndpointParameters) (transport.Endpoint,
	error) {
	if last := r.last.Load(); last != nil && reflect.DeepEqual(last.params, params) {
		return last.endpoint, nil
	}
	endpoint, err := r.next.ResolveEndpoint(ctx, params)
	if err == nil {
		r.last.Store(&resolved{params: params, endpoint: endpoint})
	}
	return endpoint, err
}

// Passing reports whether an error ends without a change of settings: the server does not answer, or is itself at
// fault. A wrong key or URL, a right that is missing, or a certificate that is not trusted fails again however often
// it is tried.
func Passing(err error) bool {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorFault() == smithy.FaultServer || Throttled(err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// readerOnly hides everything but Read and Close of the requests' bodies, so that a request survives being answered at
// once.
//
// The SDK closes a request's body as soon as the response's header is there, while net/http may still be
// about to look for the end of that body. Closed, the SDK's body answers io.EOF through Read, as it
// should, but also through io.WriterTo, where it is an error: net/http takes the request for failed and
// closes the connection in the middle of the response. Small responses have arrived by then; one of
// hundreds of kilobytes has not, and is read again, and paid for again. Without io.WriterTo, net/http
// uses Read.
type readerOnly struct{ next dynamodb.HTTPClient }

// Do implements dynamodb.HTTPClient.
func (c readerOnly) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.next.Do(r)
}
