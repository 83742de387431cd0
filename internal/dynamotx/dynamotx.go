// Package dynamotx is how this module's DynamoDB back ends make conditional writes and transactions: which requests
// the SDK makes again, and what is known of a write that failed. Only leaf packages named for DynamoDB import it.
//
// # Retries
//
// Client takes the place of the SDK's default retries: besides what is throttled or lost on the way, it makes requests
// again that were refused because of another one on the same item. Each call of TransactWriteItems has a token, which
// is kept for its retries, so a transaction that went through is answered as it was. A conditional write that is made
// again can meet its own success: the refusal carries the item, and the caller compares.
package dynamotx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/tilefence/tilefence/fence"
)

// The n-th pause before a request is made again is a random part of firstPause x 2^n, at most longestPause.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// ErrImpossible: a transaction was cancelled for a reason that does not pass. Nothing was written.
var ErrImpossible = errors.New("transaction impossible")

// Client returns a client with the options of another that makes each request up to the given number of times.
func Client(client *dynamodb.Client, attempts int) *dynamodb.Client {
	return dynamodb.New(client.Options(), func(o *dynamodb.Options) {
		o.HTTPClient = readerOnly{o.HTTPClient}
		o.Retryer = retry.NewStandard(func(s *retry.StandardOptions) {
			s.MaxAttempts = attempts
			s.MaxBackoff = longestPause
			s.Backoff = retry.BackoffDelayerFunc(pause)
			s.RateLimiter = ratelimit.None // conflicts are no sign of a service in trouble
			s.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(passes)}, s.Retryables...)
		})
		o.APIOptions = append(slices.Clone(o.APIOptions), func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("tilefenceOutcome", judge),
				middleware.After)
		})
	})
}

func pause(attempt int, _ error) (time.Duration, error) {
	return rand.N(min(longestPause, firstPause<<min(attempt, 16))) + 1, nil
}

// passes reports whether a request was refused for a reason that passes, so far as the SDK does not know.
func passes(err error) aws.Ternary {
	if _, conflict := errors.AsType[*types.TransactionConflictException](err); conflict {
		return aws.TrueTernary
	}
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		_, again, err := reasons(cancelled, len(cancelled.CancellationReasons))
		return aws.BoolTernary(err == nil && again)
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if ok && (api.ErrorFault() == smithy.FaultServer || api.ErrorCode() == "ReplicatedWriteConflictException") {
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// Refusal is whether the condition on one item of a transaction failed, and the item as it was.
type Refusal struct {
	Refused bool
	Item    map[string]types.AttributeValue
}

// Transact runs a transaction; a nil token lets the SDK make one up. A nil slice means that it was carried out;
// otherwise conditions failed, and the slice says which. The condition on the first item decides, whatever came of the
// others; short of that, a conflict or throttling of any item says nothing about the conditions, and is an error once
// there are no attempts left.
func Transact(ctx context.Context, client *dynamodb.Client, token *string, items ...types.TransactWriteItem) ([]Refusal,
	error) {
	_, err := client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{ClientRequestToken: token,
		TransactItems: items})
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return nil, err
	}
	refusals, again, impossible := reasons(cancelled, len(items))
	switch {
	case impossible != nil:
		return nil, fmt.Errorf("%w: %w", impossible, err)
	case again:
		return nil, err
	}
	return refusals, nil
}

// reasons reads why a transaction of n items was cancelled: because of its conditions, or for something that passes.
func reasons(cancelled *types.TransactionCanceledException, n int) (refusals []Refusal, again bool, err error) {
	if len(cancelled.CancellationReasons) > n {
		return nil, false, fmt.Errorf("%w: %d reasons for %d items", ErrImpossible, len(cancelled.CancellationReasons),
			n)
	}
	refusals = make([]Refusal, n)
	busy, refused := false, false
	for i, r := range cancelled.CancellationReasons {
		switch code := aws.ToString(r.Code); code {
		case "", "None":
		case "ConditionalCheckFailed":
			refusals[i], refused = Refusal{Refused: true, Item: r.Item}, true
		case "TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError":
			busy = true
		default: // ValidationError, ItemCollectionSizeLimitExceeded, and what is invented later
			return nil, false, fmt.Errorf("%w: item %d: %s: %s", ErrImpossible, i, code, aws.ToString(r.Message))
		}
	}
	first := n > 0 && refusals[0].Refused
	return refusals, !first && (busy || !refused), nil
}

// Throttled reports whether a request failed for want of the table's capacity.
func Throttled(err error) bool {
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		return slices.ContainsFunc(cancelled.CancellationReasons, func(r types.CancellationReason) bool {
			code := aws.ToString(r.Code)
			return code == "ProvisionedThroughputExceeded" || code == "ThrottlingError"
		})
	}
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains(throttles, api.ErrorCode())
}

var throttles = []string{"ProvisionedThroughputExceededException", "ThrottlingException", "Throttling",
	"RequestLimitExceeded",
	"LimitExceededException"}

// unapplied is a request of which every attempt was refused.
type unapplied struct{ error }

func (e *unapplied) Unwrap() error { return e.error }

// Outcome is what a write that failed may have done: fence.ErrNotApplied if every attempt was refused for certain, and
// fence.ErrUnknownOutcome otherwise.
func Outcome(err error) error {
	if _, ok := errors.AsType[*unapplied](err); ok {
		return fence.ErrNotApplied
	}
	return fence.ErrUnknownOutcome
}

// judge marks the errors of requests that did nothing. It looks at all attempts: the SDK returns the last error only,
// and one that says "throttled" may hide an attempt that was carried out.
func judge(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
	out middleware.InitializeOutput, metadata middleware.Metadata, err error) {
	out, metadata, err = next.HandleInitialize(ctx, in)
	if err == nil {
		return out, metadata, nil
	}
	attempts, _ := retry.GetAttemptResults(metadata)
	if !slices.ContainsFunc(attempts.Results, func(a retry.AttemptResult) bool { return !refused(a.Err) }) {
		err = &unapplied{err}
	}
	return out, metadata, err
}

// refused reports whether an attempt certainly did nothing. Its transaction may be in progress for an earlier attempt.
func refused(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && (slices.Contains(refusals, api.ErrorCode()) || slices.Contains(throttles, api.ErrorCode()))
}

var refusals = []string{"ConditionalCheckFailedException", "TransactionCanceledException",
	"TransactionConflictException",
	"ValidationException", "ResourceNotFoundException"}
