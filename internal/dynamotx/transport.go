package dynamotx

import (
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

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
