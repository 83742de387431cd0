package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// throttle is the way to DynamoDB. While it is on, every request is refused for want of the tables' capacity.
type throttle struct {
	dynamodb.HTTPClient
	on      atomic.Bool
	refused atomic.Int64
}

// refusals are the two ways of DynamoDB to say so: of a table, and of an account.
var refusals = []string{"ProvisionedThroughputExceededException", "ThrottlingException"}

// Do implements dynamodb.HTTPClient.
func (t *throttle) Do(r *http.Request) (*http.Response, error) {
	if !t.on.Load() {
		return t.HTTPClient.Do(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // it is not read
	}
	kind := refusals[int(t.refused.Add(1))%len(refusals)]
	body := fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"chaos"}`, kind)
	return &http.Response{StatusCode: http.StatusBadRequest, Status: "400 Bad Request", Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:   io.NopCloser(strings.NewReader(body))}, nil
}

// throttled is the fault that DynamoDB refuses all requests for a while. The ledger and the checkpointer go on
// afterwards: it is over when the ledger answers, and each snapshot that the stream holds by then is a checkpoint.
func throttled() fault {
	return fault{"DynamoDB throttled", "Every request is refused for want of capacity. The tiles go on; cards and " +
		"checkpoints wait.",
		on(durable, func(c *chaos) strike {
			t, before, began := c.backends.throttle, int64(0), time.Time{}
			var back time.Duration
			return strike{lasts: c.between(2*time.Second, 4*time.Second),
				hit: always(func() {
					began, before = time.Now(), t.refused.Load()
					t.on.Store(true)
				}),
				heal: func(ctx context.Context) error {
					err := c.until(ctx, "DynamoDB is asked", func() bool { return t.refused.Load() > before })
					t.on.Store(false)
					err = errors.Join(err, c.caughtUp(ctx))
					back = time.Since(began)
					return err
				},
				recovery: func() time.Duration { return back }}
		})}
}

// caughtUp waits until the ledger answers and the durable store has the snapshots that there are now.
func (c *chaos) caughtUp(ctx context.Context) error {
	err := c.until(ctx, "the ledger answers", func() bool {
		_, err := c.backends.Ledger.Balance(ctx, botName(0), energy)
		return err == nil
	})
	for _, id := range c.world {
		if err != nil {
			return err
		}
		var latest fence.Snapshot
		var found bool
		if latest, found, err = c.backends.Log.Snapshot(ctx, id); err == nil && found {
			err = c.until(ctx, "the latest snapshot of tile "+id.String()+" is a checkpoint", func() bool {
				stored, found, err := c.backends.Durable.Get(ctx, id)
				return err == nil && found && !checkpoint.Supersedes(latest.Position, stored.Position)
			})
		}
	}
	return err
}
