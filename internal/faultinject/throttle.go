package faultinject

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
)

// Throttle is the way to DynamoDB, as its client's HTTPClient. It refuses requests for want of the tables' capacity.
type Throttle struct {
	HTTPClient interface {
		Do(r *http.Request) (*http.Response, error)
	}
	Share   atomic.Int64 // of a thousand requests; zero: none is refused
	Refused atomic.Int64 // requests, so far
}

// refusals are the two ways of DynamoDB to say so: of a table, and of an account.
var refusals = []string{"ProvisionedThroughputExceededException", "ThrottlingException"}

// Do passes a request on, or refuses it.
func (t *Throttle) Do(r *http.Request) (*http.Response, error) {
	if rand.Int64N(1000) >= t.Share.Load() {
		return t.HTTPClient.Do(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // it is not read
	}
	kind := refusals[int(t.Refused.Add(1))%len(refusals)]
	body := fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"chaos"}`, kind)
	return &http.Response{StatusCode: http.StatusBadRequest, Status: "400 Bad Request", Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:   io.NopCloser(strings.NewReader(body))}, nil
}
